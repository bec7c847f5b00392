"""The alerts of all targets, from look to look. They outlive a reload of the configuration and a new process of the server; the caller keeps the clocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from inspector.alerts import catalogue
from inspector.alerts.conditions import Condition, Counters, Key, conditions, missing
from inspector.alerts.machine import Signal, Timing, Track, held, step, unseen
from inspector.alerts.status import AlertState, AlertStatus
from inspector.judge import Assessment
from inspector.model import Snapshot

LONGEST_GAP = 60.0
"""Seconds between two looks above which the time between them counts for nothing: the machine slept, or we were stopped."""

DROPPED = "nothing judges this any more"


@dataclass(frozen=True, slots=True)
class Change:
    """An alert that went from one state to another. `started`: Unix seconds at which it began to fire, for one that fires or did."""

    target: str
    before: AlertState
    status: AlertStatus
    started: float


@dataclass(slots=True)
class _Kept:
    track: Track
    condition: Condition


@dataclass(slots=True)
class _Target:
    looked: float
    polls: int = 0
    alerts: dict[Key, _Kept] = field(default_factory=dict)
    counters: Counters = field(default_factory=dict)


class Alerts:
    """`timing` may be replaced at any time: states stay, only the clocks change."""

    def __init__(self, timing: Timing) -> None:
        self.timing = timing
        self._targets: dict[str, _Target] = {}

    def look(
        self, target: str, snapshot: Snapshot | None, assessment: Assessment | None, *, stale: bool, now: float, at: float, polls: int = 1
    ) -> tuple[tuple[AlertStatus, ...], Sequence[Change]]:
        """The state of a target's alerts after a look at it, and what changed. `now` is in monotonic seconds, `at` in Unix seconds.

        `polls`: how many polls there were. With fewer than before the target was begun anew, perhaps on another server: its counters are new ones."""
        kept = self._targets.setdefault(target, _Target(now))
        if polls < kept.polls:
            kept.counters.clear()
        kept.polls = polls
        found = conditions(snapshot, assessment, stale=stale, counters=kept.counters, now=now)
        elapsed, kept.looked = now - kept.looked, now
        elapsed = elapsed if elapsed <= LONGEST_GAP else 0.0
        changes = []
        for key in [*found, *(key for key in kept.alerts if key not in found)]:
            alert = kept.alerts.setdefault(key, _Kept(unseen(at), Condition(Signal.UNKNOWN, "")))
            before = alert.track
            alert.condition = found[key] if key in found else _unmentioned(key, alert, snapshot, stale=stale)
            alert.track = self._step(key, before, alert.condition.signal, elapsed, at)
            if alert.track.state is not before.state:
                started = before.since if before.state is AlertState.FIRING else alert.track.since
                changes.append(Change(target, before.state, _status(key, alert), started))
            if key not in found and alert.track.state is AlertState.OK:
                del kept.alerts[key]
        return tuple(_status(key, alert) for key, alert in kept.alerts.items()), changes

    def keep(self, targets: Iterable[str], at: float) -> Sequence[Change]:
        """Forgets every other target; what fired there resolves, because nobody watches it any more."""
        kept = set(targets)
        gone = [name for name in self._targets if name not in kept]
        return [change for name in gone for change in _ended(name, self._targets.pop(name), at)]

    def firing(self) -> Iterator[tuple[str, AlertStatus]]:
        """Every alert that fires, with its target."""
        for name, target in self._targets.items():
            for key, alert in target.alerts.items():
                if alert.track.state is AlertState.FIRING:
                    yield name, _status(key, alert)

    def adopt(self, target: str, key: Key, started: float) -> None:
        """An alert that an earlier process of ours had firing: it fires on until it is measured, whatever was seen of it in the meantime."""
        kept = self._targets.get(target)
        if kept is not None:
            condition = kept.alerts[key].condition if key in kept.alerts else Condition(Signal.UNKNOWN, "it fired before the inspector was started anew")
            kept.alerts[key] = _Kept(held(AlertState.FIRING, started), condition)

    def _step(self, key: Key, track: Track, signal: Signal, elapsed: float, at: float) -> Track:
        own = catalogue.BY_NAME[key.alert].before_firing
        before_firing = self.timing.before_unknown if key.alert == catalogue.UNKNOWN.name else self.timing.before_firing if own is None else own
        return step(track, signal, elapsed=elapsed, at=at, before_firing=before_firing, before_resolving=self.timing.before_resolving)


def _unmentioned(key: Key, alert: _Kept, snapshot: Snapshot | None, *, stale: bool) -> Condition:
    signal = missing(key, snapshot, stale=stale)
    if signal is not Signal.UNKNOWN:
        return Condition(signal, DROPPED)
    why = snapshot.state_detail or str(snapshot.state).replace("_", " ") if snapshot is not None and not stale else "nothing newer is known"
    return Condition(signal, alert.condition.detail if alert.condition.signal is Signal.UNKNOWN else f"{alert.condition.detail}; now unknown: {why}")


LASTING: Mapping[Signal, str] = {
    Signal.GOOD: "good again, and ends once that has lasted",
    Signal.ALMOST: "almost good again",
}
"""What is said of an alert that fires beside what was found last, where that alone would look like a mistake."""


def _status(key: Key, alert: _Kept) -> AlertStatus:
    track = alert.track
    detail = alert.condition.detail
    if track.state is AlertState.FIRING and track.signal in LASTING:
        detail = f"{detail} ({LASTING[track.signal]})"
    return AlertStatus(key.alert, key.severity, key.pool, key.resource, key.session, track.state, track.since, detail, track.is_held)


def _ended(name: str, target: _Target, at: float) -> Iterator[Change]:
    for key, alert in target.alerts.items():
        if alert.track.state is AlertState.FIRING:
            ended = _Kept(held(AlertState.OK, at), Condition(Signal.GOOD, "the target is not watched any more"))
            yield Change(name, AlertState.FIRING, _status(key, ended), alert.track.since)
