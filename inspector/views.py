"""What a person looks at: entries of the board as rows, gauges and sentences. Pure; the status page and the terminal lay the same views out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from inspector import wording
from inspector.board import Entry
from inspector.headroom import Headroom
from inspector.judge import Assessment, Finding, Level
from inspector.layout import Span
from inspector.model import MEMORY_FIELDS, POOL_FIELDS, SLOT_FIELDS, Memory, Pool, Slot, Snapshot, State
from inspector.reading import NOT_OFFERED, Known, Reading

HEADLINES = (
    "context_limit_tokens",
    "slots_busy",
    "slots",
    "requests_running",
    "requests_waiting",
    "kv_used_tokens",
    "kv_reclaimable_tokens",
    "kv_capacity_tokens",
)
"""Fields that answer the operator's first questions; the others follow in a table that can be folded away."""

RESOURCES = {"kv": "KV cache", "slots": "Slots", "context": "Context of the fullest session", "memory": "Memory of the server, of its ceiling"}


@dataclass(frozen=True, slots=True)
class Row:
    """One field: `text` is the value or `unknown (reason)`; `remedy` what to do about an unknown; `where` source and age."""

    name: str
    help: str
    text: str
    known: bool
    remedy: str
    where: str


@dataclass(frozen=True, slots=True)
class Gauge:
    """Headroom of one resource. `free` is the guaranteed share (None: unknown), for the meter."""

    name: str
    text: str
    tokens: str
    free: float | None
    remedy: str


@dataclass(frozen=True, slots=True)
class PoolView:
    id: str
    model: str
    gauges: Sequence[Gauge]
    sessions: Sequence[str]
    headlines: Sequence[Row]
    others: Sequence[Row]
    not_offered: Sequence[str]
    layouts: Sequence[str]
    slots: Sequence[Sequence[Row]]


@dataclass(frozen=True, slots=True)
class TargetView:
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


def view(entry: Entry, now: float) -> TargetView:
    snapshot, assessment = entry.snapshot, entry.assessment
    if snapshot is None or assessment is None:
        return _not_polled(entry)
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
        pools=[_pool(pool, assessment, now) for pool in snapshot.pools] if snapshot.state.is_up else [],
        memory=list(_memory(snapshot.memory, now)),
        memory_gauge=_gauge(assessment.memory) if assessment.memory else None,
        notes=list(_notes(snapshot)),
    )


def _version(snapshot: Snapshot) -> str:
    if snapshot.version == NOT_OFFERED:
        return ""
    told = wording.told("version", snapshot.version)
    return told if isinstance(snapshot.version, Known) else f"version {told}"


def _not_polled(entry: Entry) -> TargetView:
    info = entry.info
    return TargetView(info.name, info.address, info.engine, "", "not polled yet", "", Level.UNKNOWN, "never", (), (), (), None, ())


def _pool(pool: Pool, assessment: Assessment, now: float) -> PoolView:
    rows = {name: row(name, POOL_FIELDS[name].help, pool.reading(name), now) for name in POOL_FIELDS if pool.reading(name) != NOT_OFFERED}
    return PoolView(
        id=pool.id,
        model=wording.told("model", pool.model) if pool.model != NOT_OFFERED else "",
        gauges=[_gauge(h) for h in assessment.pools.get(pool.id, ())],
        sessions=[wording.sessions(name, budget) for name, budget in assessment.sessions.get(pool.id, {}).items()],
        headlines=[rows[name] for name in HEADLINES if name in rows],
        others=[r for name, r in rows.items() if name not in HEADLINES],
        not_offered=[name for name in POOL_FIELDS if name not in rows],
        layouts=[wording.layout(alternative) for alternative in pool.layouts],
        slots=[_slot(slot, now) for slot in pool.slots_detail],
    )


def _slot(slot: Slot, now: float) -> list[Row]:
    number = Row("slot", "Number of the slot", str(slot.id), True, "", "")
    return [number, *(row(name, info.help, getattr(slot, name), now) for name, info in SLOT_FIELDS.items())]


def _memory(memory: Memory, now: float) -> Iterator[Row]:
    for name, info in MEMORY_FIELDS.items():
        if memory.reading(name) != NOT_OFFERED:
            yield row(name, info.help, memory.reading(name), now)


def row(name: str, help_text: str, reading: Reading[object], now: float) -> Row:
    text = wording.told(name, reading)
    if isinstance(reading, Known):
        return Row(name, help_text, text, True, "", f"{reading.origin}, {wording.age(now - reading.origin.at)}")
    return Row(name, help_text, text, False, reading.detail, "")


def _gauge(headroom: Headroom) -> Gauge:
    ratio, tokens = headroom.ratio, headroom.tokens
    known = isinstance(ratio, Span)
    return Gauge(
        name=RESOURCES[headroom.resource],
        text=wording.span(ratio, as_share=True),
        tokens=f"{wording.span(tokens)} tokens" if isinstance(tokens, Span) else "",
        free=ratio.guaranteed if isinstance(ratio, Span) else None,
        remedy="" if known or isinstance(ratio, Span) else ratio.detail,
    )


def _notes(snapshot: Snapshot) -> Iterator[str]:
    """What disagrees, and what went wrong while the target was read."""
    for drift in snapshot.drift:
        yield f"{drift.field}: {drift.used} and {drift.other} disagree, {drift.used} is shown. {drift.detail}"
    for fault in snapshot.faults:
        yield f"{fault.source}: {fault.detail} ({fault.reason})"
    if snapshot.state is State.READY and not snapshot.pools:
        yield "the server answers, but it shows no pool"
