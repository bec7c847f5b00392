"""One poll of one target, as an adapter sees it: routes with their cadence and deadlines, and the other sources, all for the running generation."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import urlencode

from inspector.clocks import Clock
from inspector.contract import GENERATION, POLL, Deadline, LaunchView, LogView, ProcessView, Reply, Route
from inspector.generation import NOT_LOOKED_AT, BackOff, Generation, Kept
from inspector.reading import Known, Reason, Unknown

LONGEST_BACK_OFF = 4
"""Polls that are skipped at most after a route that may block has timed out again and again."""

BUSY = Unknown(Reason.TIMEOUT, "the server did not answer in time; it is busy, probably behind a long decode or prefill")


class Get(Protocol):
    """The one way to a server: `inspector.fetch.Client.get`."""

    def __call__(self, route: Route, query: Mapping[str, str], /, *, deadline: float, send_key: bool = True) -> Awaitable[Reply | Unknown]: ...


@dataclass(slots=True)
class PollAsk:
    """`inspector.contract.Ask` for one poll.

    `deadlines` are seconds for each kind of route; `interval` is the poll interval in seconds; `monotonic` measures durations.
    """

    fetch: Get
    routes: tuple[Route, ...]
    generation: Generation
    now: float
    monotonic: Clock
    interval: float
    deadlines: Mapping[Deadline, float]
    log: LogView | Unknown
    launch_file: LaunchView | Unknown
    process: ProcessView | Unknown = NOT_LOOKED_AT
    stated: Mapping[str, Known[Any]] = field(default_factory=dict)
    may_wake: bool = False
    may_scrape: bool = True
    asked: int = 0

    @property
    def launch(self) -> LaunchView | Unknown:
        return self.generation.launch

    async def get(self, route: Route, /, **query: str) -> Reply | Unknown:
        if route not in self.routes:
            raise ValueError(f"{route.path} is not among the routes that this adapter lists")
        key = (route.path, urlencode(sorted((*route.required, *query.items()))))
        kept = self.generation.replies.get(key)
        began = self.monotonic()
        if kept is not None and _is_fresh(kept, route, began):
            return kept.reply
        if route.deadline is Deadline.MAY_BLOCK and self._is_left_alone(key):
            return BUSY
        self.asked += 1
        reply = await self.fetch(route, query, deadline=self.deadlines[route.deadline])
        if route.deadline is Deadline.MAY_BLOCK:
            reply = self._note_blocking(key, reply)
        if isinstance(reply, Unknown) and reply.reason is Reason.UNREACHABLE:
            self.generation.refused = True
        if isinstance(reply, Reply) and reply.status == 200 and route.every != POLL:
            self.generation.replies[key] = Kept(reply, began)
        return reply

    def _is_left_alone(self, key: tuple[str, str]) -> bool:
        back_off = self.generation.blocked.get(key)
        return back_off is not None and self.monotonic() < back_off.until

    def _note_blocking(self, key: tuple[str, str], reply: Reply | Unknown) -> Reply | Unknown:
        """After a time-out the server still has our request in its queue: put no further one behind it too soon."""
        blocked = self.generation.blocked
        if isinstance(reply, Unknown) and reply.reason is Reason.TIMEOUT:
            times = 1 + (blocked[key].times if key in blocked else 0)
            skipped = min(2 ** (times - 1), LONGEST_BACK_OFF)
            blocked[key] = BackOff(times, self.monotonic() + (skipped - 0.5) * self.interval)
            return BUSY
        blocked.pop(key, None)
        return reply


def _is_fresh(kept: Kept, route: Route, moment: float) -> bool:
    return route.every == GENERATION or (route.every.seconds is not None and moment - kept.asked_at < route.every.seconds)
