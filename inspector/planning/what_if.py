"""What one more launch flag would change: from the layouts that a server has to those that it would have. Pure, over layouts and an adapter's flag table.

Nothing here was measured: each change says what it rests on. Where an engine rounds sizes, or a figure is not known, both ends stand as alternatives.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from inspector.budget import Shape, capacity
from inspector.contract import Flag, FlagTable
from inspector.layout import Layout, Paged, Shared, Span, Split, over
from inspector.model import Pool
from inspector.reading import Known

SHARING = "kv_unified"
SLOTS = ("parallel", "max_num_seqs", "decode_concurrency")
CACHE_TYPES = (("cache_type_k", "cache_type_v"), ("kv_cache_dtype",))
"""Names of flags in the adapters' tables, by what they set."""

SMALLER_TYPES = {"q8_0": (32, 17), "fp8": (2, 1)}
"""Tokens in the bytes of one now, as a fraction, where keys and values are 16-bit floats: 32 values take 34 bytes in q8_0."""


@dataclass(frozen=True, slots=True)
class Change:
    """One more flag: its words, the layouts that a server would then have, the sessions that it would hold when empty, and what that rests on."""

    words: str
    layouts: tuple[Layout, ...]
    capacity: Span[int]
    rests_on: str


def changes(pool: Pool, shape: Shape, flags: FlagTable) -> list[Change]:
    """The changes of one flag that would let an empty server hold another number of such sessions. None where the layout is not known."""
    now = _sessions(pool.layouts, shape)
    if now is None or len(pool.layouts) != 1:
        return []
    (layout,) = pool.layouts
    made = (_change(words, layouts, why, shape) for words, layouts, why in _alternatives(pool, layout, shape, flags))
    return [change for change in made if change is not None and change.capacity != now]


Alternative = tuple[str, tuple[Layout, ...], str]


def _alternatives(pool: Pool, layout: Layout, shape: Shape, flags: FlagTable) -> Iterator[Alternative]:
    named = {flag.name: flag for flag in flags.flags}
    yield from _sharing(pool, layout, named)
    yield from _slots(pool, layout, shape, named)
    yield from _smaller_types(layout, named)


def _sharing(pool: Pool, layout: Layout, named: dict[str, Flag]) -> Iterator[Alternative]:
    flag = named.get(SHARING)
    if flag is None or layout.slots is None or layout.slots < 2:
        return
    match layout:
        case Split(slots, each):
            total = slots * each
            shared = tuple(Shared(slots, total, most) for most in _request_limits(pool, each, total))
            yield _spelled(flag), shared, "the cells of all slots in one pool, which kills all sessions when it runs out"
        case Shared(slots, total, most) if flag.off:
            yield flag.off[-1], (Split(slots, min(most, total // slots)),), "the pool divided among the slots; the engine may round up"
        case _:
            return


def _slots(pool: Pool, layout: Layout, shape: Shape, named: dict[str, Flag]) -> Iterator[Alternative]:
    """As many slots as there is room for such sessions."""
    flag = next((named[name] for name in SLOTS if name in named), None)
    if flag is None or layout.slots is None:
        return
    match layout:
        case Split(slots, each):
            total = slots * each
            number = min(total // shape.total, total)
            if number and number != slots:
                sizes = dict.fromkeys(_request_limits(pool, min(each, total // number), total // number))
                yield f"{_spelled(flag)} {number}", tuple(Split(number, size) for size in sizes), "the same cells divided among other slots"
        case Shared() | Paged():
            wider = capacity(replace(layout, slots=2**31), shape)
            if wider is not None and wider.sessions > layout.slots:
                yield f"{_spelled(flag)} {wider.sessions}", (replace(layout, slots=wider.sessions),), "the KV cache as it is, for more sessions"
        case _:
            return


def _smaller_types(layout: Layout, named: dict[str, Flag]) -> Iterator[Alternative]:
    for names in CACHE_TYPES:
        flags = [named[name] for name in names if name in named]
        for word, (more, less) in SMALLER_TYPES.items():
            if flags and all(word in flag.words for flag in flags):
                larger = _scaled(layout, more, less)
                words = " ".join(f"{_spelled(flag)} {word}" for flag in flags)
                why = "the same bytes, if keys and values are 16-bit floats now and the context setting is raised accordingly"
                yield words, (layout, larger), why


def _scaled(layout: Layout, more: int, less: int) -> Layout:
    match layout:
        case Split(slots, each):
            return Split(slots, each * more // less)
        case Shared(slots, total, most):
            return Shared(slots, total * more // less, most)
        case Paged(blocks):
            return replace(layout, blocks=blocks * more // less)
        case _:
            return layout


def _request_limits(pool: Pool, least: int, most: int) -> tuple[int, ...]:
    """What one request may use: no more than the model was made for; where that is not known, both ends."""
    if isinstance(pool.model_context_tokens, Known):
        return (min(most, pool.model_context_tokens.value),)
    return (least, most) if least < most else (most,)


def _spelled(flag: Flag) -> str:
    return next((spelling for spelling in flag.spellings if spelling.startswith("--")), flag.spellings[0])


def _change(words: str, layouts: tuple[Layout, ...], why: str, shape: Shape) -> Change | None:
    sessions = _sessions(layouts, shape)
    return None if sessions is None else Change(words, layouts, sessions, why)


def _sessions(layouts: tuple[Layout, ...], shape: Shape) -> Span[int] | None:
    def of(layout: Layout) -> int | None:
        fit = capacity(layout, shape)
        return None if fit is None else fit.sessions

    return over(layouts, of)
