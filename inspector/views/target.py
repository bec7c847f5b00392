"""One target: what it is, how it is judged, its alerts, its pools, its memory, and everything about it that is unknown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from inspector import wording
from inspector.alerts.status import AlertState, AlertStatus
from inspector.board import Entry
from inspector.judge import Assessment, Finding, Level, worst
from inspector.model import MEMORY_FIELDS, Fault, Memory, Snapshot, State
from inspector.reading import NOT_OFFERED, Known
from inspector.views.bars import Bar, memory_bar
from inspector.views.pool import PoolView, pool_unknowns, pool_view
from inspector.views.rows import Gauge, Named, Row, UnknownGroup, gauge, is_unknown, row, unknown_groups

SEVERITIES = {"warning": Level.WARNING, "critical": Level.CRITICAL}

TOLD_FIRST = (AlertState.FIRING, AlertState.PENDING, AlertState.UNKNOWN)


@dataclass(frozen=True, slots=True)
class AlertView:
    """An alert that is not ok. `lasting`: for how long, in words; `subject`: what it is about, pool, resource, session; "" for the whole target."""

    name: str
    severity: str
    level: Level
    state: AlertState
    lasting: str
    subject: str
    detail: str
    firing: bool
    held: bool

    @property
    def told(self) -> str:
        """`firing for 4 min`, and that it is held where it is."""
        return f"{self.state} {self.lasting}" + (", held: what it watches is unknown now" if self.held else "")


@dataclass(frozen=True, slots=True)
class TargetView:
    """`level` is the verdict of the newest snapshot; `urgency` the worst of it and of the alerts that fire.

    `least_free` is the least guaranteed headroom of KV cache and memory; None where none is known.
    """

    name: str
    address: str
    engine: str
    version: str
    state: str
    detail: str
    level: Level
    seen: str
    findings: Sequence[Finding]
    pools: Sequence[PoolView]
    memory: Sequence[Row]
    memory_gauge: Gauge | None
    notes: Sequence[str]
    memory_bar: Bar | None = None
    unknowns: Sequence[UnknownGroup] = ()
    drift: Sequence[str] = ()
    faults: Sequence[str] = ()
    alerts: Sequence[AlertView] = ()
    alerts_ok: int = 0
    urgency: Level = Level.UNKNOWN
    least_free: float | None = None

    @property
    def tightest(self) -> PoolView | None:
        """The pool with the least KV headroom; one whose headroom is unknown only where no other is known."""
        known = [(gauge.free, place) for place, pool in enumerate(self.pools) if (gauge := pool.gauge("kv")) and gauge.free is not None]
        return self.pools[min(known)[1]] if known else next(iter(self.pools), None)


def view(entry: Entry, now: float) -> TargetView:
    """`now` is Unix seconds: ages are told against it."""
    snapshot, assessment = entry.snapshot, entry.assessment
    alerts = [_alert(alert, now) for state in TOLD_FIRST for alert in entry.alerts if alert.state is state]
    firing = [alert.level for alert in alerts if alert.firing]
    alerts_ok = sum(alert.state is AlertState.OK for alert in entry.alerts)
    if snapshot is None or assessment is None:
        return _not_polled(entry, alerts, alerts_ok, worst([Level.UNKNOWN, *firing]))
    pools = [pool_view(pool, assessment, now) for pool in snapshot.pools] if snapshot.state.is_up else []
    level = next((f.level for f in assessment.findings if f.resource == "memory"), Level.OK)
    memory = gauge(assessment.memory, level) if assessment.memory else None
    drift, faults = list(_drift(snapshot)), list(_faults(snapshot, snapshot.faults))
    return TargetView(
        name=entry.info.name,
        address=entry.info.address,
        engine=snapshot.engine or "engine not recognized",
        version=_version(snapshot),
        state="stale" if entry.stale else str(snapshot.state).replace("_", " "),
        detail=snapshot.state_detail,
        level=assessment.level,
        seen=wording.age(now - snapshot.observed_at),
        findings=[f for f in assessment.findings if f.level is not Level.OK and not (f.resource == "state" and f.detail == snapshot.state_detail)],
        pools=pools,
        memory=list(_memory(snapshot.memory, now)),
        memory_gauge=memory,
        notes=[*drift, *faults],
        memory_bar=memory_bar(snapshot.memory, assessment.memory),
        unknowns=unknown_groups(_unknowns(snapshot, assessment)),
        drift=drift,
        faults=list(_faults(snapshot, [fault for fault in snapshot.faults if fault.detail != snapshot.state_detail])),
        alerts=alerts,
        alerts_ok=alerts_ok,
        urgency=worst([assessment.level, *firing]),
        least_free=_least_free(pools, memory),
    )


def now_of(entry: Entry, monotonic: float, wall: float) -> float:
    """Unix seconds of now as the target's snapshot would have it: its own stamp and the time since by a clock that nobody sets. `wall` where there is none."""
    return wall if entry.snapshot is None else entry.snapshot.observed_at + max(0.0, monotonic - entry.seen_at)


def _not_polled(entry: Entry, alerts: Sequence[AlertView], alerts_ok: int, urgency: Level) -> TargetView:
    info = entry.info
    return TargetView(
        *(info.name, info.address, info.engine, "", "not polled yet", "", Level.UNKNOWN, "never", (), (), (), None, ()),
        alerts=alerts,
        alerts_ok=alerts_ok,
        urgency=urgency,
    )


def _version(snapshot: Snapshot) -> str:
    if snapshot.version == NOT_OFFERED:
        return ""
    told = wording.told("version", snapshot.version)
    return told if isinstance(snapshot.version, Known) else f"version {told}"


def _memory(memory: Memory, now: float) -> Iterator[Row]:
    for name, info in MEMORY_FIELDS.items():
        if memory.reading(name) != NOT_OFFERED:
            yield row(name, info.help, memory.reading(name), now)


def _unknowns(snapshot: Snapshot, assessment: Assessment) -> Iterator[Named]:
    if is_unknown(snapshot.version):
        yield Named("version", snapshot.version)
    if snapshot.state.is_up:
        for pool in snapshot.pools:
            yield from pool_unknowns(pool, assessment, pool.id if len(snapshot.pools) > 1 else "")
    yield from (Named(f"memory_{name}", reading) for name in MEMORY_FIELDS if is_unknown(reading := snapshot.memory.reading(name)))
    if assessment.memory is not None and is_unknown(assessment.memory.ratio):
        yield Named("memory headroom", assessment.memory.ratio)


def _alert(alert: AlertStatus, now: float) -> AlertView:
    about = (f"pool {alert.pool}" if alert.pool else "", alert.resource, f"session {alert.session}" if alert.session else "")
    return AlertView(
        name=alert.alert,
        severity=alert.severity,
        level=SEVERITIES.get(alert.severity, Level.UNKNOWN) if alert.state is not AlertState.UNKNOWN else Level.UNKNOWN,
        state=alert.state,
        lasting=_lasting(now - alert.since),
        subject=", ".join(word for word in about if word),
        detail=alert.detail,
        firing=alert.state is AlertState.FIRING,
        held=alert.held,
    )


def _lasting(seconds: float) -> str:
    return "since just now" if seconds < 1 else f"for {wording.age(seconds).removesuffix(' ago')}"


def _least_free(pools: Sequence[PoolView], memory: Gauge | None) -> float | None:
    gauges = [g for pool in pools for g in pool.gauges if g.resource == "kv"] + ([memory] if memory else [])
    return min((g.free for g in gauges if g.free is not None), default=None)


def _drift(snapshot: Snapshot) -> Iterator[str]:
    """What two sources disagree about."""
    for drift in snapshot.drift:
        yield f"{drift.field}: {drift.used} and {drift.other} disagree, {drift.used} is shown. {drift.detail}"


def _faults(snapshot: Snapshot, faults: Sequence[Fault]) -> Iterator[str]:
    """What went wrong while the target was read."""
    for fault in faults:
        yield f"{fault.source}: {fault.detail} ({fault.reason})"
    if snapshot.state is State.READY and not snapshot.pools:
        yield "the server answers, but it shows no pool"
