"""Evaluates the alerts of the board again and again, puts their states there, and tells the journal and Alertmanager what changed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass
from typing import Protocol

import anyio
import structlog

from inspector.alerts.alerts import Alerts, Change
from inspector.alerts.conditions import Key
from inspector.alerts.status import AlertState
from inspector.board import Board
from inspector.clocks import Clock, monotonic_beside
from inspector.notify.notice import Notice, notice
from inspector.watching import place_of

EVALUATE_EVERY = 5.0
"""Seconds between two evaluations."""


INHERITED_FOR = 600.0
"""Seconds for which an alert of an earlier process waits for its target to be found."""


@dataclass(frozen=True, slots=True)
class _Inherited:
    started: float
    until: float


class Listener(Protocol):
    """What is told of alerts: `inspector.notify.Notifier`."""

    def put(self, firing: Iterable[Notice], ended: Iterable[Notice], *, changed: bool) -> None: ...


class Alerting:
    """`names` tells which targets are watched: one that is not on the board for a moment, because its settings changed, keeps its alerts.

    `listener` may be replaced at any time; None: nobody is told."""

    def __init__(self, board: Board, alerts: Alerts, names: Callable[[], Iterable[str]], clock: Clock = time.time, monotonic: Clock | None = None) -> None:
        self.listener: Listener | None = None
        self._board = board
        self._alerts = alerts
        self._names = names
        self._clock = clock
        self._monotonic = monotonic or monotonic_beside(clock)
        self._inherited: dict[tuple[str, Key], _Inherited] = {}
        self._log = structlog.get_logger()

    def inherit(self, target: str, key: Key, started: float) -> None:
        """An alert that an earlier process left firing. It is taken over once its target is watched, if that is soon."""
        self._inherited[target, key] = _Inherited(started, self._monotonic() + INHERITED_FOR)

    async def run(self, every: float = EVALUATE_EVERY) -> None:
        while True:
            try:
                self.evaluate()
            except Exception as error:  # A bug here must not take the inspector with it.
                self._log.error("alerts not evaluated", error=type(error).__name__, place=place_of(error))
            await anyio.sleep(every)

    def evaluate(self) -> None:
        """One look at every target of the board."""
        now, at = self._monotonic(), self._clock()
        wanted = frozenset(self._names())
        changes = list(self._alerts.keep(wanted, at))
        # One that is on its way out is not looked at any more: it would begin anew, and end a second time.
        watched = [entry for entry in self._board.entries() if entry.info.name in wanted]
        for entry in watched:
            statuses, more = self._alerts.look(entry.info.name, entry.snapshot, entry.assessment, stale=entry.stale, now=now, at=at, polls=entry.polls)
            self._board.put_alerts(entry.info.name, statuses)
            changes += more
        self._take_over({entry.info.name for entry in watched}, now)
        self._tell(changes, at)

    def _take_over(self, watched: Set[str], now: float) -> None:
        for (target, key), inherited in list(self._inherited.items()):
            if target in watched and now <= inherited.until:
                self._alerts.adopt(target, key, inherited.started)
                self._log.info("alert taken over", alert=key.alert, severity=key.severity, target=target)
            if target in watched or now > inherited.until:
                del self._inherited[target, key]

    def _tell(self, changes: Sequence[Change], at: float) -> None:
        for change in changes:
            self._note(change)
        if self.listener is not None:
            ended = [change for change in changes if change.before is AlertState.FIRING]
            firing = (notice(target, status, status.since) for target, status in self._alerts.firing())
            told = any(AlertState.FIRING in (change.before, change.status.state) for change in changes)
            self.listener.put(firing, [notice(c.target, c.status, c.started, ended=at) for c in ended], changed=told)

    def _note(self, change: Change) -> None:
        """One event for each change: loud when it fires or ends, else for those who look for it."""
        status = change.status
        about = {"alert": status.alert, "severity": status.severity, "target": change.target, "detail": status.detail}
        about |= {name: value for name, value in (("pool", status.pool), ("session", status.session)) if value}
        if status.state is AlertState.FIRING:
            self._log.warning("alert fires", **about)
        elif change.before is AlertState.FIRING:
            self._log.info("alert ends", **about)
        else:
            self._log.debug("alert changed", before=str(change.before), state=str(status.state), **about)
