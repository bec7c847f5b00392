"""One KV pool: its bar, its slots, the sessions that fit, and its fields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from inspector import wording
from inspector.budget import Budget
from inspector.headroom import busy_slots
from inspector.judge import Assessment, Level
from inspector.model import POOL_FIELDS, SLOT_FIELDS, Pool, Slot
from inspector.reading import NOT_OFFERED, Known, Reading, Unknown
from inspector.views.bars import Bar, kv_bar, slots_bar
from inspector.views.rows import Gauge, Named, Row, gauge, is_unknown, remedy, row

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

FACTS: Mapping[str, str] = {
    "requests_running": "Running",
    "requests_waiting": "Waiting",
    "requests_in_flight": "In flight",
    "context_limit_tokens": "Context limit",
    "context_guaranteed_tokens": "Context guaranteed",
    "preemptions_total": "Preemptions",
    "kv_exhaustions_total": "KV exhaustions",
}
"""Fields that stand on their own beside the bars, and what to call them there."""

MOST_BOXES = 64
"""Slots that are drawn one by one; more of them are a bar."""


class SlotState(StrEnum):
    BUSY = "busy"
    IDLE = "idle"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class SlotBox:
    """`id` is "" where only the number of busy slots is known. `fill`: share of the slot's context that its request uses; None: unknown, or idle."""

    id: str
    state: SlotState
    fill: float | None = None


@dataclass(frozen=True, slots=True)
class SlotsView:
    """`text` says how many are busy and idle. `boxes` or a `bar`; neither where too little is known. `remedy`: what to do where they are unknown."""

    text: str
    boxes: Sequence[SlotBox] = ()
    bar: Bar | None = None
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class SessionView:
    """Sessions of one shape: `now` still fit, `capacity` fit into an empty server, which `limited_by` limits. `known`: both are."""

    name: str
    now: str
    capacity: str
    limited_by: str
    known: bool
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
    kv: Bar | None = None
    slot_boxes: SlotsView | None = None
    budgets: Sequence[SessionView] = ()
    facts: Sequence[tuple[str, Row]] = ()
    """(what to call it, field) of `FACTS`."""

    def gauge(self, resource: str) -> Gauge | None:
        """The headroom of a resource; None where the pool shows none."""
        return next((g for g in self.gauges if g.resource == resource), None)


def pool_view(pool: Pool, assessment: Assessment, now: float) -> PoolView:
    rows = {name: row(name, POOL_FIELDS[name].help, pool.reading(name), now) for name in POOL_FIELDS if pool.reading(name) != NOT_OFFERED}
    headrooms = assessment.pools.get(pool.id, ())
    budgets = assessment.sessions.get(pool.id, {})
    levels = {finding.resource: finding.level for finding in assessment.findings if finding.pool == pool.id}
    return PoolView(
        id=pool.id,
        model=wording.told("model", pool.model) if pool.model != NOT_OFFERED else "",
        gauges=[gauge(h, levels.get(h.resource, Level.OK)) for h in headrooms],
        sessions=[wording.sessions(name, budget) for name, budget in budgets.items()],
        headlines=[rows[name] for name in HEADLINES if name in rows],
        others=[r for name, r in rows.items() if name not in HEADLINES],
        not_offered=[name for name in POOL_FIELDS if name not in rows],
        layouts=list(dict.fromkeys(map(wording.layout, pool.layouts))),  # Alternatives may differ in what has no words.
        slots=list(_slot_rows(pool, now)),
        kv=kv_bar(pool, next((h for h in headrooms if h.resource == "kv"), None)),
        slot_boxes=slots_view(pool),
        budgets=[_session(name, budget) for name, budget in budgets.items()],
        facts=[(label, rows[name]) for name, label in FACTS.items() if name in rows],
    )


def slots_view(pool: Pool) -> SlotsView | None:
    """Slots one by one where the engine shows them, else as far as their numbers go; None where the engine has none to show."""
    if pool.slots_detail:
        boxes = [_box(slot) for slot in pool.slots_detail]
        return _drawn(boxes) if len(boxes) <= MOST_BOXES else SlotsView(_counted(boxes), bar=slots_bar(pool))
    busy = busy_slots(pool)
    if pool.slots == NOT_OFFERED:
        return None
    if isinstance(pool.slots, Unknown):
        of = wording.told("slots", pool.slots)
        return SlotsView(f"{wording.told('slots_busy', busy)} busy, of how many: {of}" if isinstance(busy, Known) else of, remedy=pool.slots.detail)
    if busy == NOT_OFFERED:
        return SlotsView(f"{pool.slots.value:,} slots")
    if isinstance(busy, Unknown):
        count, told = pool.slots.value, wording.told("slots_busy", busy)
        drawn = [SlotBox("", SlotState.UNKNOWN)] * count if count <= MOST_BOXES else []
        return SlotsView(f"{count:,} slots, busy ones {told}", drawn, remedy=busy.detail)
    idle = max(0, pool.slots.value - busy.value)
    if pool.slots.value > MOST_BOXES:
        return SlotsView(f"{busy.value:,} of {pool.slots.value:,} busy", bar=slots_bar(pool))
    return _drawn([SlotBox("", SlotState.BUSY)] * min(busy.value, pool.slots.value) + [SlotBox("", SlotState.IDLE)] * idle)


def pool_unknowns(pool: Pool, assessment: Assessment, place: str) -> Iterator[Named]:
    """Everything unknown about the pool and its slots, read or computed; `place` is the pool's id where there are several."""
    for name in POOL_FIELDS:
        if is_unknown(reading := pool.reading(name)):
            yield Named(name, reading, place)
    for slot in pool.slots_detail:
        yield from (Named(name, value, place, slot.id) for name in SLOT_FIELDS if is_unknown(value := getattr(slot, name)))
    for headroom in assessment.pools.get(pool.id, ()):
        if is_unknown(headroom.ratio):
            yield Named(f"{headroom.resource} headroom", headroom.ratio, place)
    for name, budget in assessment.sessions.get(pool.id, {}).items():
        if unknown := _first_unknown(budget):
            yield Named(f"sessions {name}", unknown, place)


def _slot_rows(pool: Pool, now: float) -> Iterator[list[Row]]:
    """The slots one by one, with the fields that the engine offers of them."""
    offered = [name for name in SLOT_FIELDS if any(getattr(slot, name) != NOT_OFFERED for slot in pool.slots_detail)]
    for slot in pool.slots_detail:
        number = Row("slot", "Number of the slot", str(slot.id), True, "", "")
        yield [number, *(row(name, SLOT_FIELDS[name].help, getattr(slot, name), now) for name in offered)]


def _box(slot: Slot) -> SlotBox:
    if isinstance(slot.busy, Unknown):
        return SlotBox(str(slot.id), SlotState.UNKNOWN)
    if not slot.busy.value:
        return SlotBox(str(slot.id), SlotState.IDLE)
    return SlotBox(str(slot.id), SlotState.BUSY, _fill(slot.used_tokens, slot.context_tokens))


def _fill(used: Reading[int], most: Reading[int]) -> float | None:
    if isinstance(used, Unknown) or isinstance(most, Unknown) or most.value <= 0:
        return None
    return min(1.0, used.value / most.value)


def _drawn(boxes: Sequence[SlotBox]) -> SlotsView:
    return SlotsView(_counted(boxes), boxes)


def _counted(boxes: Sequence[SlotBox]) -> str:
    """`1 busy, 2 idle, 1 unknown`; a state that no slot is in is left out, except that none busy is worth a word."""
    counts = {state: sum(box.state is state for box in boxes) for state in SlotState}
    if counts[SlotState.UNKNOWN] < len(boxes):
        return ", ".join(f"{n} {state}" for state, n in counts.items() if n or state is SlotState.BUSY)
    return f"{len(boxes)} unknown"


def _session(name: str, budget: Budget) -> SessionView:
    unknown = _first_unknown(budget)
    return SessionView(
        name=name,
        now="unknown" if isinstance(budget.headroom, Unknown) else wording.span(budget.headroom),
        capacity="unknown" if isinstance(budget.capacity, Unknown) else wording.span(budget.capacity),
        limited_by=budget.limited_by or "",
        known=unknown is None,
        remedy=remedy(unknown) if unknown else "",
    )


def _first_unknown(budget: Budget) -> Unknown | None:
    return next((limits for limits in (budget.headroom, budget.capacity) if isinstance(limits, Unknown)), None)
