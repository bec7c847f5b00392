"""Keeps an Alertmanager told: resends what fires before it expires there, tells ends once, and tries again with growing pauses."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import anyio
import structlog

from inspector.alerts.conditions import Key
from inspector.clocks import Clock
from inspector.notify.client import Answer, Outcome
from inspector.notify.notice import Notice, alert_of
from inspector.notify.outbox import Outbox

EXPIRES_AFTER = 4
"""Resends for which an alert lives on in Alertmanager without us, so that a lost one does no harm and a dead inspector's alerts end."""

MOST_AT_ONCE = 500
"""Alerts in one request."""

LONGEST_PAUSE = 60.0

Inherit = Callable[[str, Key, float], None]


class Alertmanager(Protocol):
    """What the notifier talks to: `AlertmanagerClient`."""

    async def post(self, alerts: Sequence[dict[str, object]]) -> Answer: ...
    async def active(self) -> Answer: ...
    async def aclose(self) -> None: ...


@dataclass(slots=True)
class Deliveries:
    """What the daemon tells about its deliveries: alerts taken by Alertmanager, requests that failed, ends that were given up, ends that wait.

    `failing`: the last request failed."""

    sent: int = 0
    failures: int = 0
    dropped: int = 0
    waiting: int = 0
    failing: bool = False


class Notifier:
    """`inherit` takes each alert that an earlier process of ours left firing there: target, alert, Unix time of its start."""

    def __init__(self, server: Alertmanager, inherit: Inherit, *, resend: float = 60.0, clock: Clock = time.time, first_pause: float = 1.0) -> None:
        self.deliveries = Deliveries()
        self._server = server
        self._inherit = inherit
        self._resend = resend
        self._clock = clock
        self._first_pause = first_pause
        self._outbox = Outbox()
        self._wake = anyio.Event()
        self._is_new = True
        self._has_inherited = False
        self._log = structlog.get_logger()

    def put(self, firing: Iterable[Notice], ended: Iterable[Notice], *, changed: bool) -> None:
        """All that fires now, and what has ended; `changed`: to be told at once rather than with the next resend. So is what fired before this began."""
        self._outbox.put(firing, ended)
        self._count()
        if changed or self._is_new:
            self._wake.set()
        self._is_new = False

    async def run(self) -> None:
        """Until cancelled. What fires in Alertmanager when it ends expires there by itself."""
        pause = self._first_pause
        try:
            while True:
                if await self._deliver():
                    pause = self._first_pause
                    with anyio.move_on_after(self._resend):
                        await self._wake.wait()
                else:
                    # With some chance in it, so that many inspectors do not come back at once.
                    await anyio.sleep(pause * random.uniform(0.75, 1.25))  # noqa: S311
                    pause = min(2 * pause, LONGEST_PAUSE)
        finally:
            with anyio.CancelScope(shield=True):
                await self._server.aclose()

    async def _deliver(self) -> bool:
        """One round. False: the same is to be tried again soon."""
        self._wake = anyio.Event()
        if not self._has_inherited and not await self._read_back():
            return False
        batch = self._outbox.batch()
        for start in range(0, len(batch), MOST_AT_ONCE):
            if not await self._send(batch[start : start + MOST_AT_ONCE]):
                return False
        return True

    async def _read_back(self) -> bool:
        answer = await self._server.active()
        if not self._note(answer):
            return False
        for labels, started in answer.alerts:
            ours = alert_of(labels)
            if ours is not None:
                self._inherit(*ours, started)
        self._has_inherited = True
        return True

    async def _send(self, part: Sequence[Notice]) -> bool:
        expires = self._clock() + EXPIRES_AFTER * self._resend
        answer = await self._server.post([notice.payload(expires) for notice in part])
        if not self._note(answer):
            return False
        taken = answer.outcome is Outcome.TAKEN
        self._outbox.settled(part, taken=taken)
        if taken:
            self.deliveries.sent += len(part)
        self._count()
        return True

    def _note(self, answer: Answer) -> bool:
        """Tells when deliveries begin to fail and when they are well again, not each one. False: to be tried again."""
        if answer.outcome is not Outcome.TAKEN:
            self.deliveries.failures += 1
            if not self.deliveries.failing or answer.outcome is Outcome.REFUSED:
                self._log.error("alerts not delivered", detail=f"Alertmanager {answer.detail}", waiting=self._outbox.waiting)
        elif self.deliveries.failing:
            self._log.info("alerts are delivered again")
        self.deliveries.failing = answer.outcome is not Outcome.TAKEN
        return answer.outcome is not Outcome.FAILED

    def _count(self) -> None:
        self.deliveries.waiting, self.deliveries.dropped = self._outbox.waiting, self._outbox.dropped
