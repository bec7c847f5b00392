"""The session budget: how many sessions of a shape an empty server holds, and how many more fit now. Pure; over layouts, blind to engines.

All engines store one token less than prompt and output together, because the last sampled token is never decoded. A running session counts with what it holds
and, for the guaranteed figure, with what it may still grow to: to its limit where its end is not known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from inspector.headroom import busy_slots
from inspector.layout import Layout, MemoryBound, Paged, Shared, Span, Split
from inspector.model import Pool
from inspector.reading import Known, Reading, Reason, Unknown, from_unknown

LAYOUT_UNKNOWN = Unknown(Reason.NO_SOURCE, "how this server's KV cache is laid out is not known")
SIZE_UNKNOWN = Unknown(Reason.NO_SOURCE, "the number of slots or the size of the KV cache is not known")


@dataclass(frozen=True, slots=True)
class Shape:
    """A kind of session: tokens of its longest useful prompt and of its intended output."""

    prompt: int
    output: int

    @property
    def total(self) -> int:
        return self.prompt + self.output

    @property
    def stored(self) -> int:
        """Tokens that the KV cache holds at the end."""
        return max(1, self.total - 1)


@dataclass(frozen=True, slots=True)
class Fit:
    """How many sessions fit into one layout, and the resource that sets the limit."""

    sessions: int
    resource: str


@dataclass(frozen=True, slots=True)
class Budget:
    """Of one shape: sessions that an empty server holds, sessions that still fit now, and what limits the former."""

    capacity: Span[int] | Unknown
    headroom: Span[int] | Unknown
    limited_by: str | None


@dataclass(frozen=True, slots=True)
class _Use:
    """What running sessions take at one bound: slots, tokens, and requests that wait before any newcomer."""

    slots: int
    tokens: int
    waiting: int


def budgets(pool: Pool, shapes: Mapping[str, Shape]) -> dict[str, Budget]:
    """The budget of each shape in a pool."""
    return {name: budget(pool, shape) for name, shape in shapes.items()}


def budget(pool: Pool, shape: Shape) -> Budget:
    """The least and the most over all layouts that the evidence allows."""
    if not pool.layouts:
        return Budget(LAYOUT_UNKNOWN, LAYOUT_UNKNOWN, None)
    fits = [capacity(layout, shape) for layout in pool.layouts]
    if any(fit is None for fit in fits):
        return Budget(SIZE_UNKNOWN, SIZE_UNKNOWN, None)
    known = [fit for fit in fits if fit is not None]
    least = min(known, key=lambda fit: fit.sessions)
    span = Span(least.sessions, max(fit.sessions for fit in known))
    return Budget(span, _headroom(pool, shape), least.resource)


def capacity(layout: Layout, shape: Shape) -> Fit | None:
    """Sessions of a shape in an empty server; None where the layout's size is not known."""
    return _fit(layout, shape, _Use(0, 0, 0))


def _headroom(pool: Pool, shape: Shape) -> Span[int] | Unknown:
    least, most = [], []
    for layout in pool.layouts:
        worst, best = _use_at_most(pool, layout), _use_at_least(pool)
        if isinstance(worst, Unknown) or isinstance(best, Unknown):
            return worst if isinstance(worst, Unknown) else best if isinstance(best, Unknown) else SIZE_UNKNOWN
        low, high = _fit(layout, shape, worst), _fit(layout, shape, best)
        if low is None or high is None:
            return SIZE_UNKNOWN
        least.append(low.sessions)
        most.append(high.sessions)
    return Span(min(least), max(most))


def _fit(layout: Layout, shape: Shape, use: _Use) -> Fit | None:
    limit, slots = _request_limit(layout), layout.slots
    if slots is None:
        return None
    if limit is not None and shape.total > limit:
        return Fit(0, "context")
    by_slots = max(0, slots - use.slots)
    by_kv, resource = _fit_kv(layout, shape, use)
    if by_kv is None:
        return None
    fit = Fit(by_slots, "slots") if by_slots <= by_kv else Fit(by_kv, resource)
    return Fit(max(0, fit.sessions - use.waiting), fit.resource)


def _fit_kv(layout: Layout, shape: Shape, use: _Use) -> tuple[int | None, str]:
    match layout:
        case Split(slots, _):
            return max(0, slots - use.slots), "slots"
        case Shared(_, pool_tokens, _):
            return max(0, pool_tokens - use.tokens) // shape.stored, "kv"
        case Paged():
            return _fit_blocks(layout, shape, use), "kv"
        case MemoryBound(_, bytes_of, budget_bytes):
            return budget_bytes // max(1, bytes_of(shape.total)), "memory"


def _fit_blocks(layout: Paged, shape: Shape, use: _Use) -> int | None:
    """Where blocks are not tokens, a sum of tokens in use does not tell the blocks that are taken."""
    usable = layout.blocks - layout.reserved_blocks
    if layout.is_uniform:
        free = usable - _blocks(use.tokens, layout.block_tokens)
        return max(0, free) // _blocks(shape.stored, layout.block_tokens)
    if layout.blocks_of is None or use.tokens:
        return None
    return max(0, usable) // max(1, layout.blocks_of(shape.stored))


def _request_limit(layout: Layout) -> int | None:
    match layout:
        case Split(_, slot_tokens):
            return slot_tokens
        case Shared(_, pool_tokens, request_tokens):
            return min(pool_tokens, request_tokens)
        case Paged(_, _, _, _, request_tokens):
            return request_tokens
        case MemoryBound():
            return None


def _blocks(tokens: int, block_tokens: int) -> int:
    return -(-tokens // block_tokens)


def _use_at_least(pool: Pool) -> _Use | Unknown:
    """What is surely taken now: nobody grows, nobody who waits comes in."""
    busy = _bound(busy_slots(pool), 0)
    used = _bound(pool.kv_used_tokens, 0)
    if isinstance(busy, Unknown):
        return busy
    if isinstance(used, Unknown):
        return _Use(busy, 0, 0) if _all_split(pool) else used
    return _Use(busy, used, 0)


def _use_at_most(pool: Pool, layout: Layout) -> _Use | Unknown:
    """What may come to be taken: every running session grows to its end, and those who wait go first."""
    busy = _bound(busy_slots(pool), 1)
    if isinstance(busy, Unknown):
        return busy
    limit = _request_limit(layout)
    grown = _grown(pool, limit)
    if grown is None:
        if limit is None:
            return SIZE_UNKNOWN
        grown = busy * limit
    waiting = pool.requests_waiting.value if isinstance(pool.requests_waiting, Known) else 0
    return _Use(busy, grown, waiting)


def _grown(pool: Pool, limit: int | None) -> int | None:
    """Tokens that the running sessions hold at their ends, None where the engine shows no sessions one by one."""
    if not pool.slots_detail or limit is None or any(isinstance(slot.busy, Unknown) for slot in pool.slots_detail):
        return None
    total = 0
    for slot in pool.slots_detail:
        if isinstance(slot.busy, Known) and slot.busy.value:
            known = isinstance(slot.used_tokens, Known) and isinstance(slot.growth_tokens, Known)
            end = slot.used_tokens.value + slot.growth_tokens.value if known else limit  # type: ignore[union-attr]  # `known` says so
            total += min(limit, end)
    return total


def _bound(reading: Reading[int], side: int) -> int | Unknown:
    """The value, or the lower (0) or upper (1) bound of an unknown that has one."""
    if isinstance(reading, Known):
        return reading.value
    bound = reading.bounds[side] if reading.bounds is not None else None
    return from_unknown(reading) if bound is None else int(bound)


def _all_split(pool: Pool) -> bool:
    return all(isinstance(layout, Split) for layout in pool.layouts)
