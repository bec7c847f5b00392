"""Verdicts: thresholds applied to headroom with bounds. Pure; shared by `check` and the alerts.

On a threshold t: low when even the possible headroom is below t, ok when the guaranteed one is not below, otherwise undecided, which is an unknown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from inspector.budget import Budget, Shape, budgets
from inspector.headroom import Headroom, busy_slots, memory_headroom, pool_headroom
from inspector.layout import Span
from inspector.model import Pool, Snapshot, State
from inspector.reading import NOT_OFFERED, Known, Reason, Unknown


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"
    CRITICAL = "critical"
    UNKNOWN = "unknown"

    @property
    def exit_code(self) -> int:
        """Nagios plug-in convention."""
        return {"ok": 0, "warning": 1, "critical": 2, "unknown": 3}[self]


class Verdict(StrEnum):
    """What a headroom with bounds says of one threshold."""

    LOW = "low"
    OK = "ok"
    UNDECIDED = "undecided"


RANK = (Level.OK, Level.UNKNOWN, Level.WARNING, Level.CRITICAL)
"""From mildest to worst: a certain warning outranks an unknown."""


def worst(levels: Iterator[Level] | list[Level]) -> Level:
    """The worst of several levels, ok when there is none."""
    return max(levels, key=RANK.index, default=Level.OK)


@dataclass(frozen=True, slots=True)
class Threshold:
    """Free share below which a resource is low; None: not judged."""

    warning: float | None = None
    critical: float | None = None


DEFAULT_THRESHOLDS: Mapping[str, Threshold] = {"kv": Threshold(0.15, 0.05), "memory": Threshold(0.15, 0.05)}


@dataclass(frozen=True, slots=True)
class Finding:
    """One judged thing of a pool ("" for the whole target): its level, and a sentence that says why.

    With a threshold also what was compared with it, so that an alert can judge it mark by mark; `session` names the shape where it is about one."""

    pool: str
    resource: str
    level: Level
    detail: str
    headroom: Span[float] | Span[int] | Unknown | None = None
    threshold: Threshold | None = None
    session: str = ""


@dataclass(frozen=True, slots=True)
class Rules:
    """What snapshots are judged by: thresholds by resource, session shapes by name, and for shapes the numbers of sessions that must still fit."""

    thresholds: Mapping[str, Threshold] = field(default_factory=lambda: DEFAULT_THRESHOLDS)
    shapes: Mapping[str, Shape] = field(default_factory=dict)
    sessions: Mapping[str, Threshold] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Assessment:
    """What follows from one snapshot: headroom of each pool and of memory, each pool's session budgets, and what was found."""

    pools: Mapping[str, tuple[Headroom, ...]]
    memory: Headroom | None
    findings: tuple[Finding, ...]
    sessions: Mapping[str, Mapping[str, Budget]] = field(default_factory=dict)

    @property
    def level(self) -> Level:
        return worst([f.level for f in self.findings])


STATE_LEVELS: Mapping[State, Level] = {
    State.LOADING: Level.UNKNOWN,
    State.SLEEPING: Level.OK,
    State.STALLED: Level.CRITICAL,
    State.UNAUTHORIZED: Level.UNKNOWN,
    State.NOT_RECOGNIZED: Level.UNKNOWN,
    State.UNREACHABLE: Level.CRITICAL,
}


def assess(snapshot: Snapshot, rules: Rules | None = None) -> Assessment:
    """Headroom, session budgets and findings of a snapshot. A target that is not ready is judged by its state alone."""
    rules = rules or Rules()
    pools = {pool.id: pool_headroom(pool) for pool in snapshot.pools}
    memory = memory_headroom(snapshot.memory)
    sessions = {pool.id: budgets(pool, rules.shapes) for pool in snapshot.pools}
    if snapshot.state is not State.READY:
        level = STATE_LEVELS[snapshot.state]
        return Assessment(pools, memory, (Finding("", "state", level, snapshot.state_detail or str(snapshot.state)),), sessions)
    limits = rules.thresholds
    findings = [_compare(pool_id, h, limits[h.resource]) for pool_id, all_ in pools.items() for h in all_ if h.resource in limits]
    findings += [
        _compare_sessions(pool_id, name, made[name], limit) for pool_id, made in sessions.items() for name, limit in rules.sessions.items() if name in made
    ]
    findings += [f for pool in snapshot.pools for f in _events(pool)]
    if memory is not None and "memory" in limits:
        findings.append(_compare("", memory, limits["memory"]))
    return Assessment(pools, memory, tuple(findings), sessions)


def verdict(headroom: Span[float] | Span[int] | Unknown, mark: float, ok_from: float | None = None) -> Verdict:
    """Low when even the possible headroom is below the mark, ok when the guaranteed one is not below `ok_from` (else the mark), otherwise undecided."""
    if isinstance(headroom, Unknown):
        return Verdict.UNDECIDED
    if headroom.possible < mark:
        return Verdict.LOW
    return Verdict.OK if headroom.guaranteed >= (mark if ok_from is None else ok_from) else Verdict.UNDECIDED


def compare(headroom: Span[float] | Span[int] | Unknown, threshold: Threshold) -> Level:
    """The level of a headroom with bounds."""
    marks = {Level.CRITICAL: threshold.critical, Level.WARNING: threshold.warning}
    found = {level: verdict(headroom, mark) for level, mark in marks.items() if mark is not None}
    low = next((level for level, said in found.items() if said is Verdict.LOW), None)
    if low is not None:
        return low
    return Level.UNKNOWN if isinstance(headroom, Unknown) or Verdict.UNDECIDED in found.values() else Level.OK


def _compare(pool: str, headroom: Headroom, threshold: Threshold) -> Finding:
    level = compare(headroom.ratio, threshold)
    return Finding(pool, headroom.resource, level, f"{headroom.resource} headroom {_told(headroom.ratio)}", headroom.ratio, threshold)


def _compare_sessions(pool: str, name: str, made: Budget, threshold: Threshold) -> Finding:
    """A threshold that not even an empty server can meet says nothing about the load: it is told, not judged."""
    subject = f"sessions {name}"
    highest = max((t for t in (threshold.warning, threshold.critical) if t is not None), default=None)
    if highest is not None and isinstance(made.capacity, Span) and made.capacity.possible < highest:
        detail = f"the threshold {highest:g} for {subject} is above the {made.capacity.possible} that an empty server holds; lower it"
        return Finding(pool, subject, Level.UNKNOWN, detail, Unknown(Reason.INVALID, detail), threshold, name)
    if isinstance(made.headroom, Unknown):
        detail = f"{subject} that still fit: unknown: {made.headroom.detail}"
        return Finding(pool, subject, Level.UNKNOWN, detail, made.headroom, threshold, name)
    least, most = made.headroom.guaranteed, made.headroom.possible
    told = f"{least}" if made.headroom.exact else f"between {least} and {most}"
    return Finding(pool, subject, compare(made.headroom, threshold), f"{subject} that still fit: {told}", made.headroom, threshold, name)


def _told(ratio: Span[float] | Unknown) -> str:
    if isinstance(ratio, Unknown):
        return f"unknown: {ratio.detail}"
    if ratio.exact:
        return _percent(ratio.guaranteed)
    return f"between {_percent(ratio.guaranteed)} and {_percent(ratio.possible)}"


def _percent(share: float) -> str:
    """In whole percent, but never nothing or all where there is something or not all."""
    if 0 < share < 0.005:
        return "<1%"
    return ">99%" if 0.995 <= share < 1 else f"{share:.0%}"


def queue(pool: Pool) -> Verdict | None:
    """Whether requests wait while every slot is taken: low when they do. None where the engine does not show a queue."""
    slots, busy, waiting = pool.slots, busy_slots(pool), pool.requests_waiting
    if NOT_OFFERED in (busy, waiting):
        return None
    if (isinstance(waiting, Known) and waiting.value == 0) or (isinstance(slots, Known) and isinstance(busy, Known) and busy.value < slots.value):
        return Verdict.OK
    return Verdict.LOW if all(isinstance(reading, Known) for reading in (slots, busy, waiting)) else Verdict.UNDECIDED


def queue_told(pool: Pool) -> str:
    """The queue in a sentence, for an operator."""
    slots, waiting = pool.slots, pool.requests_waiting
    unknown = next((reading for reading in (waiting, busy_slots(pool), slots) if isinstance(reading, Unknown)), None)
    if queue(pool) is Verdict.UNDECIDED and unknown is not None:
        return f"whether requests wait for a slot is unknown: {unknown.detail}"
    if isinstance(slots, Known) and isinstance(waiting, Known) and queue(pool) is Verdict.LOW:
        return f"all {slots.value} slots are busy and {waiting.value} requests wait"
    return "no request waits while every slot is busy"


def _events(pool: Pool) -> Iterator[Finding]:
    """What is bad whatever the thresholds: a queue while every slot is taken."""
    if queue(pool) is Verdict.LOW:
        yield Finding(pool.id, "queue", Level.WARNING, queue_told(pool))
