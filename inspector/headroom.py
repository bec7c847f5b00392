"""Headroom: the share of each resource that new work can still claim. Pure.

A pool's layouts and the bounds of its readings give the least (guaranteed) and the most (possible); an unknown stays unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from inspector.layout import Layout, Span, Split, kv_headroom_ratio, kv_headroom_tokens
from inspector.model import Memory, Pool, Slot
from inspector.reading import NOT_OFFERED, Known, Reading, Reason, Unknown, derive, from_unknown

Interval: TypeAlias = tuple[float, float]
"""(lowest, highest): one number twice where it is known."""

RESOURCES = ("kv", "slots", "context", "memory")

_UNSEEN = Unknown(Reason.NOT_REPORTED, "slots are busy, and how full each of them is was not told")
_NO_LAYOUT = Unknown(Reason.NO_SOURCE, "how this server's KV cache is laid out is not known")


@dataclass(frozen=True, slots=True)
class Headroom:
    """Of one resource: the free share (0 to 1), and free tokens where the resource is counted in tokens (kv, context)."""

    resource: str
    ratio: Span[float] | Unknown
    tokens: Span[int] | Unknown | None = None


def pool_headroom(pool: Pool) -> tuple[Headroom, ...]:
    """Headroom of each resource that this pool shows; a resource that the engine does not offer, or that nobody uses now, is left out."""
    found = (_kv(pool), _slots(pool), _context(pool))
    return tuple(h for h in found if h is not None)


def memory_headroom(memory: Memory) -> Headroom | None:
    """(ceiling - used) / ceiling; None where the target shows no memory."""
    if NOT_OFFERED in (memory.ceiling_bytes, memory.used_bytes):
        return None
    share = _share_left(memory.used_bytes, memory.ceiling_bytes)
    ceiling = _interval(memory.ceiling_bytes)
    if isinstance(share, Known) or ceiling is None or isinstance(memory.used_bytes, Unknown):
        return Headroom("memory", _exact(share))
    return Headroom("memory", Span(_free_share(memory.used_bytes.value, ceiling[0]), _free_share(memory.used_bytes.value, ceiling[1])))


def busy_slots(pool: Pool) -> Reading[int]:
    """Slots at work: the engine's own count, else its running requests."""
    return pool.slots_busy if pool.slots_busy != NOT_OFFERED else pool.requests_running


def _kv(pool: Pool) -> Headroom | None:
    used, busy = _interval(pool.kv_used_tokens), _interval(busy_slots(pool))
    tokens = _spread(pool, used, busy, lambda layout, u, b: kv_headroom_tokens(layout, None if u is None else int(u), None if b is None else int(b)))
    own = _interval(pool.kv_usage_ratio)
    if own is not None and not any(isinstance(layout, Split) for layout in pool.layouts):
        return Headroom("kv", Span(1 - own[1], 1 - own[0]), tokens if isinstance(tokens, Unknown) else Span(int(tokens.guaranteed), int(tokens.possible)))
    if pool.kv_used_tokens == NOT_OFFERED and pool.kv_usage_ratio == NOT_OFFERED:
        return None
    ratio = _spread(pool, used, busy, lambda layout, u, b: kv_headroom_ratio(layout, None if u is None else int(u), None if b is None else int(b)))
    return Headroom("kv", ratio, tokens if isinstance(tokens, Unknown) else Span(int(tokens.guaranteed), int(tokens.possible)))


def _spread(pool: Pool, used: Interval | None, busy: Interval | None, f: Callable[[Layout, float | None, float | None], float | None]) -> Span[float] | Unknown:
    """`f` over every layout, at the most use (guaranteed) and the least use (possible) that the readings allow."""
    if not pool.layouts:
        return _NO_LAYOUT
    least, most = [], []
    for layout in pool.layouts:
        low = f(layout, used and used[1], busy and busy[1])
        high = f(layout, used and used[0], busy and busy[0])
        if low is None or high is None:
            return _why_unknown(layout, pool)
        least.append(low)
        most.append(high)
    return Span(min(least), max(most))


def _why_unknown(layout: Layout, pool: Pool) -> Unknown:
    use = pool.kv_used_tokens if pool.kv_used_tokens != NOT_OFFERED else pool.kv_usage_ratio
    cause = busy_slots(pool) if isinstance(layout, Split) else use
    return from_unknown(cause) if isinstance(cause, Unknown) else Unknown(Reason.NO_SOURCE, "this layout has no size in tokens")


def _slots(pool: Pool) -> Headroom | None:
    busy = busy_slots(pool)
    if NOT_OFFERED in (pool.slots, busy):
        return None
    return Headroom("slots", _exact(_share_left(busy, pool.slots)))


def _context(pool: Pool) -> Headroom | None:
    """What the fullest busy session has left; None when none is busy or the engine shows no sessions."""
    busy = pool.slots_busy
    if busy == NOT_OFFERED or (isinstance(busy, Known) and busy.value == 0):
        return None
    if not pool.slots_detail:
        unseen = from_unknown(busy) if isinstance(busy, Unknown) else _UNSEEN
        return Headroom("context", unseen, unseen)
    unsure = next((s.busy for s in pool.slots_detail if isinstance(s.busy, Unknown)), None)
    if unsure is not None:
        return Headroom("context", from_unknown(unsure), from_unknown(unsure))
    left = list(_left_of_busy(pool.slots_detail))
    if not left:
        return None
    broken = next((r for r in left if isinstance(r, Unknown)), None)
    if broken is not None:
        return Headroom("context", broken, broken)
    shares = [r.value for r in left if isinstance(r, Known)]
    share, tokens = min(shares)
    return Headroom("context", Span(share, share), Span(tokens, tokens))


def _left_of_busy(slots: tuple[Slot, ...]) -> Iterator[Reading[tuple[float, int]]]:
    for slot in slots:
        if isinstance(slot.busy, Known) and slot.busy.value:
            share = _share_left(slot.used_tokens, slot.context_tokens)
            yield derive(lambda left, used, most: (left, max(0, most - used)), share, slot.used_tokens, slot.context_tokens)


def _interval(reading: Reading[int] | Reading[float]) -> Interval | None:
    """The interval that a reading allows: bounds may be used, a guess may not. None where it has no upper bound."""
    if isinstance(reading, Known):
        return reading.value, reading.value
    if reading.bounds is None or reading.bounds[0] is None or reading.bounds[1] is None:
        return None
    return reading.bounds[0], reading.bounds[1]


def _share_left(used: Reading[int], most: Reading[int]) -> Reading[float]:
    if isinstance(most, Known) and most.value <= 0:
        return Unknown(Reason.INVALID, "the resource has no size")
    return derive(_free_share, used, most)


def _exact(reading: Reading[float]) -> Span[float] | Unknown:
    return Span(reading.value, reading.value) if isinstance(reading, Known) else reading


def _free_share(used: float, most: float) -> float:
    return min(1.0, max(0.0, 1 - used / most))
