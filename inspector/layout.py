"""How a server's KV memory is laid out, and what follows from it. Pure.

A pool carries the layouts that the evidence has not excluded: one means known, several mean bounded, none means unknown. Each function here answers for
one layout; `over` gives the least (guaranteed) and the most (possible) over several.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

N = TypeVar("N", int, float)


@dataclass(frozen=True, slots=True)
class Split:
    """Every slot has cells of its own (llama.cpp without a unified cache)."""

    slots: int
    slot_tokens: int


@dataclass(frozen=True, slots=True)
class Shared:
    """All slots draw on one pool; one request may use at most `request_tokens` of it (llama.cpp with a unified cache)."""

    slots: int
    pool_tokens: int
    request_tokens: int


@dataclass(frozen=True, slots=True)
class Paged:
    """Blocks handed out on demand (vLLM). `reserved_blocks` never serve a request.

    `groups` is the number of KV cache groups, 2 where it is only known that there are several; above 1, blocks do not convert to tokens. `blocks_of` then
    tells the blocks of a session by the tokens that it stored, where that is known; it is given for one group, too, whose sessions do not grow with every
    token (sliding windows)."""

    blocks: int
    block_tokens: int
    reserved_blocks: int
    slots: int | None
    request_tokens: int | None
    groups: int = 1
    blocks_of: Callable[[int], int] | None = None

    @property
    def is_uniform(self) -> bool:
        """Every block holds `block_tokens` tokens of one session."""
        return self.groups == 1 and self.blocks_of is None


@dataclass(frozen=True, slots=True)
class MemoryBound:
    """No pool: KV grows in memory with every session (MLX LM). `bytes_of` gives a session's bytes for its tokens."""

    slots: int | None
    bytes_of: Callable[[int], int]
    budget_bytes: int


Layout: TypeAlias = Split | Shared | Paged | MemoryBound


@dataclass(frozen=True, slots=True)
class Span(Generic[N]):
    """The least and the most over all layouts that may hold."""

    guaranteed: N
    possible: N

    @property
    def exact(self) -> bool:
        return self.guaranteed == self.possible


def over(layouts: Sequence[Layout], f: Callable[[Layout], N | None]) -> Span[N] | None:
    """`f` over all alternatives; None when there is none, or when one of them has no answer."""
    values = [f(layout) for layout in layouts]
    known = [v for v in values if v is not None]
    if not known or len(known) < len(values):
        return None
    return Span(min(known), max(known))


def capacity_tokens(layout: Layout) -> int | None:
    """Tokens that requests can hold at once; cells that no request may use do not count."""
    match layout:
        case Split(slots, slot_tokens):
            return slots * slot_tokens
        case Shared(slots, pool_tokens, request_tokens):
            return min(pool_tokens, slots * request_tokens)
        case Paged(blocks, block_tokens, reserved):
            return (blocks - reserved) * block_tokens if layout.is_uniform else None
        case MemoryBound():
            return None


def request_tokens(layout: Layout) -> int | None:
    """The most that one request may use when it is alone."""
    match layout:
        case Split(_, slot_tokens):
            return slot_tokens
        case Shared(_, pool_tokens, most):
            return min(pool_tokens, most)
        case Paged(_, _, _, _, most):
            usable = capacity_tokens(layout)
            return most if usable is None or most is None else min(most, usable)
        case MemoryBound():
            return None


def guaranteed_tokens(layout: Layout) -> int | None:
    """What each of `slots` concurrent requests surely has when all of them are busy."""
    match layout:
        case Split(_, slot_tokens):
            return slot_tokens
        case Shared(slots, pool_tokens, most):
            return min(most, pool_tokens // slots)
        case Paged(blocks, block_tokens, reserved, slots, most) if layout.is_uniform and slots is not None and most is not None:
            return min(most, (blocks - reserved) // slots * block_tokens)
        case _:
            return None


def kv_headroom_ratio(layout: Layout, used_tokens: int | None, slots_busy: int | None) -> float | None:
    """The share of KV that new work can still claim: free slots where each has cells of its own, free tokens where all share."""
    match layout:
        case Split(slots, _):
            return None if slots_busy is None else _clamp(1 - slots_busy / slots)
        case Shared() | Paged():
            capacity = capacity_tokens(layout)
            return None if used_tokens is None or not capacity else _clamp(1 - used_tokens / capacity)
        case MemoryBound():
            return None


def kv_headroom_tokens(layout: Layout, used_tokens: int | None, slots_busy: int | None) -> int | None:
    """Tokens that new work can still claim."""
    match layout:
        case Split(slots, slot_tokens):
            return None if slots_busy is None else max(0, slots - slots_busy) * slot_tokens
        case Shared() | Paged():
            capacity = capacity_tokens(layout)
            return None if used_tokens is None or capacity is None else max(0, capacity - used_tokens)
        case MemoryBound():
            return None


def _clamp(share: float) -> float:
    return min(1.0, max(0.0, share))
