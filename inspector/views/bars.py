"""Bars: what is used, reclaimable and free, in proportion to a capacity. What may be there and may not, because several capacities or uses are possible, is
a part of its own. There is no bar for an unknown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from inspector import wording
from inspector.headroom import Headroom, busy_slots
from inspector.layout import Span, capacity_tokens, over
from inspector.model import Memory, Pool
from inspector.reading import NOT_OFFERED, Known, Reading, Unknown

Tell = Callable[[float], str]


class PartKind(StrEnum):
    USED = "used"
    HELD = "held"
    RECLAIMABLE = "reclaimable"
    FREE = "free"
    UNSURE = "unsure"


MEANINGS = {
    PartKind.USED: "used",
    PartKind.HELD: "held by busy slots",
    PartKind.RECLAIMABLE: "reclaimable",
    PartKind.FREE: "free",
    PartKind.UNSURE: "possible, not certain",
}


@dataclass(frozen=True, slots=True)
class Part:
    """`start` and `share` are shares of the whole bar, 0 to 1. `text` is the amount and what it is."""

    kind: PartKind
    start: float
    share: float
    text: str


@dataclass(frozen=True, slots=True)
class Bar:
    """`whole` tells the size of what the bar stands for. `missing` names what belongs into the bar and is unknown."""

    parts: Sequence[Part]
    whole: str
    missing: Sequence[str] = ()

    @property
    def label(self) -> str:
        """The bar in words."""
        return ", ".join([*(part.text for part in self.parts), *self.missing]) + (f", {self.whole}" if self.whole else "")


def kv_bar(pool: Pool, headroom: Headroom | None) -> Bar | None:
    """In tokens, or in shares where blocks do not convert to tokens. None where the headroom is unknown, or not shown by the engine."""
    if headroom is None or isinstance(headroom.ratio, Unknown):
        return None
    whole = over(pool.layouts, capacity_tokens)
    if whole is None or not isinstance(headroom.tokens, Span):
        return _shares(headroom.ratio)
    used, kept = pool.kv_used_tokens, pool.kv_reclaimable_tokens
    parts = _parts(_least(used), headroom.tokens, whole.possible, _least(kept), _count)
    unknown = [name for name, reading in (("used", used), ("reclaimable", kept)) if _is_missing(reading)]
    bounded = isinstance(used, Unknown)
    told = [replace(part, text=f"at least {part.text}") if bounded and part.kind is PartKind.USED else part for part in parts]
    return Bar(told, f"of {wording.span(whole)} tokens", [f"{name} unknown" for name in unknown])


def memory_bar(memory: Memory, headroom: Headroom | None) -> Bar | None:
    """What the server holds of the most that it may hold."""
    if headroom is None or isinstance(headroom.ratio, Unknown) or isinstance(memory.used_bytes, Unknown):
        return None
    low, high = _bounds(memory.ceiling_bytes)
    if low is None or high is None:
        return None
    used = memory.used_bytes.value
    free = Span(max(0, low - used), max(0, high - used))
    ceiling = wording.size(low) if low == high else f"{wording.size(low)} to {wording.size(high)}"
    return Bar(list(_parts(used, free, high, None, wording.size)), f"of {ceiling}")


def slots_bar(pool: Pool) -> Bar | None:
    """Busy slots of all; for servers with too many of them to draw one by one."""
    busy = busy_slots(pool)
    if isinstance(busy, Unknown) or isinstance(pool.slots, Unknown):
        return None
    free = max(0, pool.slots.value - busy.value)
    return Bar(list(_parts(busy.value, Span(free, free), pool.slots.value, None, _count)), f"of {pool.slots.value:,} slots")


def _shares(ratio: Span[float]) -> Bar:
    return Bar(list(_parts(1 - ratio.possible, ratio, 1, None, wording.share)), "of the KV cache")


def _parts(used: float | None, free: Span[int] | Span[float], whole: float, kept: float | None, tell: Tell) -> Iterator[Part]:
    """`kept` is what idle work keeps of the free amount. `whole` is the largest size that is possible."""
    taken = 0 if used is None else used
    # Readings of one moment may disagree by a few tokens: the bar is never overfull.
    scale = max(whole, taken + free.possible)
    rest = max(0, scale - taken - free.guaranteed)
    unsure = min(rest, free.possible - free.guaranteed)
    reclaimable = None if kept is None else min(kept, free.guaranteed)
    amounts = [
        (PartKind.USED, used),
        (PartKind.HELD, rest - unsure or None),
        (PartKind.RECLAIMABLE, reclaimable),
        (PartKind.FREE, free.guaranteed - (reclaimable if reclaimable is not None else 0)),
        (PartKind.UNSURE, unsure or None),
    ]
    start = 0.0
    for kind, amount in amounts:
        if amount is None:
            continue
        share = amount / scale if scale else 0.0
        yield Part(kind, start, share, f"{tell(amount)} {MEANINGS[kind]}")
        start += share


def _count(number: float) -> str:
    return f"{number:,.0f}"


def _bounds(reading: Reading[int]) -> tuple[float | None, float | None]:
    if isinstance(reading, Known):
        return reading.value, reading.value
    return reading.bounds if reading.bounds is not None else (None, None)


def _least(reading: Reading[int]) -> float | None:
    return _bounds(reading)[0]


def _is_missing(reading: Reading[int]) -> bool:
    return isinstance(reading, Unknown) and reading != NOT_OFFERED and _least(reading) is None
