"""Values as people read them: numbers with their units, ages, spans, unknowns with their reason. Pure; the page and the terminal share it."""

from __future__ import annotations

from inspector.budget import Budget
from inspector.layout import Layout, MemoryBound, Paged, Shared, Span, Split
from inspector.reading import Known, Reading, Unknown

BINARY_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def told(field: str, reading: Reading[object]) -> str:
    """A reading of a field: the value with its unit, or `unknown (reason)` and the bounds that the evidence leaves."""
    if isinstance(reading, Known):
        return quantity(field, reading.value)
    if reading.bounds is None:
        return f"unknown ({reading.reason})"
    return f"unknown ({reading.reason}), {_between(field, *reading.bounds)}"


def quantity(field: str, value: object) -> str:
    """A value, written as the field's name asks for: bytes, a share, a count."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, int | float):
        return str(value)
    if field.endswith("_bytes"):
        return size(value)
    if field.endswith("_ratio"):
        return share(value)
    return f"{value:,.0f}" if value == int(value) else f"{value:,.2f}"


def size(value: float) -> str:
    """Bytes in the largest binary unit that leaves at least 1."""
    power = 0
    while abs(value) >= 1024 and power < len(BINARY_UNITS) - 1:
        value /= 1024
        power += 1
    return f"{value:.0f} {BINARY_UNITS[power]}" if power == 0 else f"{value:.2f} {BINARY_UNITS[power]}"


def share(value: float) -> str:
    """A share as a percentage, never rounded to a full or an empty one that it is not."""
    if 0 < value < 0.001:
        return "<0.1%"
    if 0.999 < value < 1:
        return ">99.9%"
    return f"{value:.1%}".replace(".0%", "%")


def span(limits: Span[float] | Span[int] | Unknown, as_share: bool = False) -> str:
    """The least and the most, one number where they agree."""
    if isinstance(limits, Unknown):
        return f"unknown ({limits.reason})"
    low, high = (share(v) if as_share else f"{v:,.0f}" for v in (limits.guaranteed, limits.possible))
    return low if limits.exact else f"{low} to {high}"


def sessions(name: str, budget: Budget) -> str:
    """The budget of one session shape in one line."""
    now = f"sessions {name}: {span(budget.headroom)} more fit now"
    if isinstance(budget.headroom, Unknown):
        now += f", {budget.headroom.detail}"
    limit = f", limited by {budget.limited_by}" if budget.limited_by else ""
    return f"{now}; an empty server holds {span(budget.capacity)}{limit}"


def age(seconds: float) -> str:
    """How long ago, in the largest whole unit."""
    if seconds < 1:
        return "now"
    for unit, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= unit:
            return f"{seconds // unit:.0f} {name} ago"
    return f"{seconds:.0f} s ago"


def layout(alternative: Layout) -> str:
    """A KV layout in one line."""
    match alternative:
        case Split(slots, slot_tokens):
            return f"split: {slots} slots with {slot_tokens:,} tokens each"
        case Shared(slots, pool_tokens, request_tokens):
            return f"shared: {slots} slots on one pool of {pool_tokens:,} tokens, at most {request_tokens:,} a request"
        case Paged(blocks, block_tokens, reserved, _, _, groups):
            several = ", several groups" if groups > 1 else ""  # How many is not always known.
            return f"paged: {blocks:,} blocks of {block_tokens} tokens, {reserved} reserved{several}"
        case MemoryBound(_, _, budget_bytes):
            return f"bound by memory: {size(budget_bytes)}"


def _between(field: str, low: float | None, high: float | None) -> str:
    if low is None:
        return "no bound" if high is None else f"at most {quantity(field, high)}"
    return f"at least {quantity(field, low)}" if high is None else f"{quantity(field, low)} to {quantity(field, high)}"
