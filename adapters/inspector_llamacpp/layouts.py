"""From what was settled to the layouts that are possible, and to the figures that follow from them. Pure.

HTTP tells a slot's context, never whether the slots share their cells nor how many there are: without another source there are alternatives and bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from inspector.layout import Layout, Shared, Split, capacity_tokens, guaranteed_tokens, over
from inspector.reading import Known, Reading, Reason, Unknown, derive, from_unknown
from inspector_llamacpp import causes
from inspector_llamacpp.evidence import Settled
from inspector_llamacpp.slots import SlotTable


def layouts(settled: Settled, seen_tokens: int) -> tuple[Layout, ...]:
    """All layouts that the evidence has not excluded. `seen_tokens` were once held at the same time: a shared pool is at least as large."""
    if isinstance(settled.slots, Unknown) or isinstance(settled.context, Unknown):
        return ()
    slots, context = settled.slots.value, settled.context.value
    split = Split(slots, context)
    if slots == 1 or (isinstance(settled.unified, Known) and not settled.unified.value):
        return (split,)
    pools = _pools(settled, slots * context, max(context, seen_tokens))
    shared = tuple(Shared(slots, pool, context) for pool in pools)
    if isinstance(settled.unified, Known):
        return shared
    if isinstance(settled.capacity, Known) and settled.capacity.value < slots * context:
        return shared  # the operator's figure leaves no room for cells of each slot's own
    return (*shared, split)


def _pools(settled: Settled, most: int, least: int) -> tuple[int, ...]:
    """The sizes that a shared pool may have; two stand for all between them. A size below a slot's context would contradict it."""
    if isinstance(settled.pool, Known) and settled.pool.value >= least:
        return (settled.pool.value,)
    return (least, most) if least < most else (most,)


def seen_together(table: Reading[SlotTable]) -> int:
    """Tokens that the cache surely holds at once: all that idle slots keep, and the largest working slot. Others that work may share its cells."""
    if isinstance(table, Unknown):
        return 0
    idle, busy = [0], [0]
    for row in table.value.rows:
        if isinstance(row.busy, Known) and isinstance(row.tokens, Known):
            (busy if row.busy.value else idle).append(row.tokens.value)
    return sum(idle) + max(busy)


def capacity(settled: Settled, possible: Sequence[Layout]) -> Reading[int]:
    """Tokens that requests can hold at once."""
    reading = _over(settled, possible, capacity_tokens)
    if not possible:
        return settled.capacity if _says_more(settled.capacity) else reading
    stated = settled.capacity
    if isinstance(reading, Unknown) and isinstance(stated, Known) and _within(stated.value, reading):
        return stated
    return reading


def guarantee(settled: Settled, possible: Sequence[Layout]) -> Reading[int]:
    """Tokens that each request has when all slots work."""
    return _over(settled, possible, guaranteed_tokens)


def unified(settled: Settled) -> Reading[bool]:
    return settled.unified if isinstance(settled.unified, Known) or settled.unified.reason is Reason.AMBIGUOUS else causes.LAYOUT


def usage_ratio(used: Reading[int], possible: Sequence[Layout], total: Reading[int]) -> Reading[float]:
    """The active share; nothing in use is a share of zero, however large the cache is."""
    if isinstance(used, Known) and used.value == 0:
        return derive(lambda _: 0.0, used)
    if len(possible) != 1:
        return from_unknown(used) if isinstance(used, Unknown) else _share_bounds(used.value, total)
    return derive(lambda u, t: min(1.0, u / t), used, total)


def _share_bounds(used: int, total: Reading[int]) -> Unknown:
    if isinstance(total, Known):
        return causes.LAYOUT
    low, high = total.bounds or (None, None)
    if not low or not high:
        return from_unknown(total)
    return Unknown(Reason.AMBIGUOUS, total.detail, bounds=(min(1.0, used / high), min(1.0, used / low)))


def _over(settled: Settled, possible: Sequence[Layout], f: Callable[[Layout], int | None]) -> Reading[int]:
    span = over(possible, f)
    if span is None:
        cause = settled.slots if isinstance(settled.slots, Unknown) else settled.context
        return from_unknown(cause) if isinstance(cause, Unknown) else causes.LAYOUT
    if not span.exact:
        cause = causes.POOL_SIZE if isinstance(settled.unified, Known) else causes.LAYOUT
        return Unknown(cause.reason, cause.detail, bounds=(span.guaranteed, span.possible))
    parts = [r for r in (settled.unified, settled.pool if isinstance(possible[0], Shared) else None) if isinstance(r, Known)]
    if len(parts) == 2:
        return derive(lambda *_: span.guaranteed, settled.slots, settled.context, parts[0], parts[1])
    if parts:
        return derive(lambda *_: span.guaranteed, settled.slots, settled.context, parts[0])
    return derive(lambda *_: span.guaranteed, settled.slots, settled.context)


def _says_more(reading: Reading[int]) -> bool:
    return isinstance(reading, Known) or reading.bounds is not None


def _within(value: int, reading: Unknown) -> bool:
    low, high = reading.bounds or (None, None)
    return low is not None and high is not None and low <= value <= high
