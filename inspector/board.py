"""The board: the newest snapshot of each target and what follows from it, aged when it is read.

Everything that is shown (metrics, JSON, pages, alerts) reads the board, so all of them agree. A snapshot is put whole; nothing is merged.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from inspector.alerts.status import AlertStatus
from inspector.clocks import Clock, monotonic_beside
from inspector.judge import Assessment, Finding, Level, assess
from inspector.model import Snapshot, memory_without_live, without_live
from inspector.reading import Reason, Unknown


@dataclass(frozen=True, slots=True)
class TargetInfo:
    """Who a target is: its configured name, engine ("" until it is recognized) and address without secrets.

    `stale_after`: seconds after which its live facts are too old to be shown.
    """

    name: str
    engine: str
    address: str
    stale_after: float
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Entry:
    """One target on the board. `snapshot` is None before the first poll has ended; `stale`: its live facts were too old and are unknown now.
    `seen_at`: when it was observed, in monotonic seconds. `alerts`: the state of each alert, as it was evaluated last."""

    info: TargetInfo
    snapshot: Snapshot | None = None
    assessment: Assessment | None = None
    polls: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    last_success: float | None = None
    stale: bool = False
    seen_at: float = 0.0
    alerts: tuple[AlertStatus, ...] = ()


class Board:
    """Newest entry of each target, in the order in which targets were added. `assess` turns a snapshot into its assessment."""

    def __init__(self, assess: Callable[[Snapshot], Assessment] = assess, clock: Clock = time.time, monotonic: Clock | None = None) -> None:
        self._assess = assess
        self._clock = clock
        self._monotonic = monotonic or monotonic_beside(clock)
        self._entries: dict[str, Entry] = {}

    def add(self, info: TargetInfo) -> None:
        """A target that is watched from now on; one that is already there keeps what is known of it."""
        entry = self._entries.get(info.name)
        self._entries[info.name] = replace(entry, info=info) if entry else Entry(info)

    def remove(self, name: str) -> None:
        self._entries.pop(name, None)

    def put(self, snapshot: Snapshot) -> None:
        """Replaces what is known of the snapshot's target. A target that was removed meanwhile stays removed."""
        entry = self._entries.get(snapshot.target)
        if entry is None:
            return
        # As old as its poll took; older if it waited to be put, as far as the wall clock tells.
        age_now = max(snapshot.duration, self._clock() - snapshot.observed_at)
        self._entries[snapshot.target] = Entry(
            info=replace(entry.info, engine=snapshot.engine),
            snapshot=snapshot,
            assessment=self._assess(snapshot),
            polls=entry.polls + 1,
            failures=_counted(entry.failures, snapshot),
            last_success=snapshot.observed_at if snapshot.state.is_up else entry.last_success,
            seen_at=self._monotonic() - age_now,
            alerts=entry.alerts,
        )

    def put_alerts(self, name: str, alerts: tuple[AlertStatus, ...]) -> None:
        """The state of a target's alerts, evaluated from its entry. Nothing for a target that is not watched."""
        entry = self._entries.get(name)
        if entry is not None:
            self._entries[name] = replace(entry, alerts=alerts)

    def entry(self, name: str) -> Entry | None:
        """The entry of a target, aged; None for a name that is not watched."""
        entry = self._entries.get(name)
        return self._aged(entry) if entry else None

    def entries(self) -> tuple[Entry, ...]:
        """All entries, aged."""
        return tuple(self._aged(entry) for entry in self._entries.values())

    def _aged(self, entry: Entry) -> Entry:
        snapshot = entry.snapshot
        seconds = self._monotonic() - entry.seen_at
        if snapshot is None or seconds <= entry.info.stale_after:
            return entry
        aged = age(snapshot, seconds)
        # Whatever the last poll found, ready or down: it says nothing of now, so neither does a verdict.
        late = Finding("", "state", Level.UNKNOWN, _how_late(seconds))
        return replace(entry, snapshot=aged, assessment=replace(self._assess(aged), findings=(late,)), stale=True)


def age(snapshot: Snapshot, seconds: float) -> Snapshot:
    """The snapshot with its live facts unknown, because they are `seconds` old, too old to be believed."""
    why = Unknown(Reason.STALE, _how_late(seconds))
    return replace(snapshot, pools=without_live(snapshot.pools, why), memory=memory_without_live(snapshot.memory, why))


def _how_late(seconds: float) -> str:
    return f"last observed {seconds:.0f} s ago"


def _counted(failures: Counter[str], snapshot: Snapshot) -> Counter[str]:
    """Failed polls by reason: a poll failed when the target did not answer as its engine."""
    if snapshot.state.is_up:
        return failures
    counted = Counter(failures)
    counted[str(snapshot.state)] += 1
    return counted
