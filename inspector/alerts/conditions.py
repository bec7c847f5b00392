"""What one look at a target says of each of its alerts: bad, good, or unknown. Pure but for the counters that it is given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from inspector.alerts import catalogue
from inspector.alerts.catalogue import Kind
from inspector.alerts.counters import Rise
from inspector.alerts.machine import Signal
from inspector.judge import Assessment, Finding, Level, Threshold, Verdict, queue, queue_told, verdict
from inspector.model import POOL_FIELDS, Pool, Snapshot, State
from inspector.reading import NOT_OFFERED, Known, Reading

HYSTERESIS = 0.02
"""Share by which headroom must rise above a mark before the alert resolves, so that a value at the mark does not flap."""

Counters = dict[tuple[str, str], Rise]
"""Rises by (pool, field)."""


@dataclass(frozen=True, slots=True)
class Key:
    """Which alert of a target: `pool` and `session` are "" where it is not about one."""

    alert: str
    severity: str
    pool: str = ""
    resource: str = ""
    session: str = ""


@dataclass(frozen=True, slots=True)
class Condition:
    """What a look says of one alert, and in which words."""

    signal: Signal
    detail: str


Conditions = Mapping[Key, Condition]


def conditions(snapshot: Snapshot | None, assessment: Assessment | None, *, stale: bool, counters: Counters, now: float) -> Conditions:
    """The alerts of a target by what is known of it now. `counters` remembers from look to look; `now` is in monotonic seconds."""
    if snapshot is None or assessment is None:
        return _of_state(None, "not polled yet")
    if stale:
        detail = next((f.detail for f in assessment.findings), "the last poll is too old")
        return _of_state(None, detail)
    found = _of_state(snapshot.state, snapshot.state_detail or f"the server is {str(snapshot.state).replace('_', ' ')}")
    if snapshot.state is State.READY:
        for finding in assessment.findings:
            found |= _of_finding(finding)
        for pool in snapshot.pools:
            found |= _of_pool(pool, counters, now)
    return found


def missing(key: Key, snapshot: Snapshot | None, *, stale: bool) -> Signal:
    """What it says of an alert that a look did not mention. Only a server that is ready can have ended it: nothing judges it any more, or its pool has gone."""
    if snapshot is None or stale:
        return Signal.UNKNOWN
    if snapshot.state is State.SLEEPING and key.alert == catalogue.UNKNOWN.name:
        return Signal.GOOD
    if snapshot.state is not State.READY:
        return Signal.UNKNOWN
    there = key.pool == "" or any(pool.id == key.pool for pool in snapshot.pools)
    return Signal.GOOD if there or not snapshot.faults else Signal.UNKNOWN


def _of_state(state: State | None, detail: str) -> dict[Key, Condition]:
    """The alerts of the target as a whole; `state` is None where it is not known."""
    down = Signal.UNKNOWN if state is None else Signal.BAD if state is State.UNREACHABLE else Signal.GOOD
    stalled = Signal.BAD if state is State.STALLED else Signal.GOOD if state is not None and state.is_up else Signal.UNKNOWN
    return {
        _key(catalogue.DOWN): Condition(down, detail),
        _key(catalogue.STALLED): Condition(stalled, detail),
        _key(catalogue.UNKNOWN, resource="state"): Condition(Signal.BAD if state in _UNDECIDED_STATES else Signal.GOOD, detail),
    }


_UNDECIDED_STATES = (None, State.LOADING, State.UNAUTHORIZED, State.NOT_RECOGNIZED)
"""States that leave all that has thresholds undecided. One that is stalled or unreachable is known, and has an alert of its own."""


def _of_finding(finding: Finding) -> dict[Key, Condition]:
    if finding.headroom is None or finding.threshold is None:
        return {}
    resource = "sessions" if finding.session else finding.resource
    kind = catalogue.OF_RESOURCE[resource]
    found = {
        _key(kind, severity, finding.pool, session=finding.session): Condition(_signal(finding, mark), f"{finding.detail}; {_wanted(finding, mark)}")
        for severity, mark in _marks(finding.threshold)
    }
    undecided = Signal.BAD if finding.level is Level.UNKNOWN else Signal.GOOD
    found[_key(catalogue.UNKNOWN, pool=finding.pool, resource=resource, session=finding.session)] = Condition(undecided, finding.detail)
    return found


def _marks(threshold: Threshold) -> Iterator[tuple[str, float]]:
    if threshold.warning is not None:
        yield catalogue.WARNING, threshold.warning
    if threshold.critical is not None:
        yield catalogue.CRITICAL, threshold.critical


def _wanted(finding: Finding, mark: float) -> str:
    """The mark, as the configuration has it."""
    least = f"{mark:.0f}" if finding.session else f"{mark * 100:.6g}%"
    return f"wanted: at least {least}"


def _signal(finding: Finding, mark: float) -> Signal:
    headroom = finding.headroom
    assert headroom is not None  # noqa: S101 (for the type checker: `_of_finding` has looked)
    # Sessions are whole: the next number above the mark may be more than the server can ever hold.
    ok_from = mark if finding.session else min(mark + HYSTERESIS, (mark + 1) / 2)
    match verdict(headroom, mark):
        case Verdict.LOW:
            return Signal.BAD
        case Verdict.UNDECIDED:
            return Signal.UNKNOWN
        case _:
            return Signal.GOOD if verdict(headroom, mark, ok_from) is Verdict.OK else Signal.ALMOST


def _of_pool(pool: Pool, counters: Counters, now: float) -> dict[Key, Condition]:
    """What is bad whatever the thresholds: a queue, and counters that rise."""
    found = {}
    waits = queue(pool)
    if waits is not None:
        signal = {Verdict.LOW: Signal.BAD, Verdict.OK: Signal.GOOD, Verdict.UNDECIDED: Signal.UNKNOWN}[waits]
        found[_key(catalogue.QUEUE, pool=pool.id)] = Condition(signal, queue_told(pool))
    for field, kind in catalogue.COUNTED.items():
        reading: Reading[int] = pool.reading(field)
        if reading != NOT_OFFERED:
            rise = counters.setdefault((pool.id, field), Rise(kind.window))
            found[_key(kind, pool=pool.id)] = _counted(field, reading, rise, now)
    return found


def _counted(field: str, reading: Reading[int], rise: Rise, now: float) -> Condition:
    what = POOL_FIELDS[field].help
    if not isinstance(reading, Known):
        return Condition(Signal.UNKNOWN, f"{field} is unknown: {reading.detail}")
    rise.see(reading.value, now)
    minutes = f"{rise.window / 60:.0f} min"
    if rise.rose(now):
        return Condition(Signal.BAD, f"{field} rose within the last {minutes}, to {reading.value} ({what})")
    return Condition(Signal.GOOD if rise.covered(now) else Signal.ALMOST, f"{field} has not risen while it was watched, at most {minutes}")


def _key(kind: Kind, severity: str | None = None, pool: str = "", *, resource: str | None = None, session: str = "") -> Key:
    return Key(kind.name, severity or kind.severities[0], pool, kind.resource if resource is None else resource, session)
