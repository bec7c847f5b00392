"""How much of the KV cache is in use: active is what working slots hold, reclaimable is what idle slots keep for reuse. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from inspector.model import Slot
from inspector.reading import Known, Origin, Reading, Reason, Unknown, from_unknown
from inspector_llamacpp import causes
from inspector_llamacpp.numbers import Numbers
from inspector_llamacpp.slots import SlotRow, SlotTable


@dataclass(frozen=True, slots=True)
class Use:
    """`ratio` is the engine's own share (until May 2025) or what follows from it; else unknown."""

    busy: Reading[int]
    used: Reading[int]
    reclaimable: Reading[int]
    ratio: Reading[float]
    slots: tuple[Slot, ...] = ()


def unknown_use(cause: Unknown) -> Use:
    return Use(cause, cause, cause, cause)


def use(table: Reading[SlotTable], numbers: Numbers, slots: Reading[int], *, counts_tokens: bool) -> Use:
    """What /slots shows; where it does not tell, what follows from /metrics of the same poll."""
    from_slots = unknown_use(table) if isinstance(table, Unknown) else use_of_slots(table.value, counts_tokens=counts_tokens)
    unread = isinstance(table, Unknown) and was_not_read(table)
    busy = from_slots.busy
    if unread and isinstance(numbers.processing, Known) and _can_be(numbers.processing.value, slots):
        busy = numbers.processing  # it counts the slots that work
    used = numbers.processing if unread and _is(numbers.processing, 0) else _used(from_slots.used, numbers, slots)
    reclaimable = _reclaimable(from_slots.reclaimable, numbers, slots)
    return replace(from_slots, busy=busy, used=used, reclaimable=reclaimable, ratio=_ratio(numbers, slots))


def was_not_read(cause: Unknown) -> bool:
    """Whether a page was not to be had, as opposed to one that is broken: only then may another page stand in, for the two tell of different moments."""
    return cause.reason not in (Reason.INVALID, Reason.NOT_REPORTED)


def use_of_slots(table: SlotTable, *, counts_tokens: bool) -> Use:
    """`n_prompt_tokens` is what a slot holds now, generated tokens included.

    Completions of one prompt (`n` above 1) share its cells: then the sum is an upper bound."""
    era = counts_tokens or any(isinstance(row.tokens, Known) for row in table.rows)
    held = [_held(row, era) for row in table.rows]
    detail = tuple(_detail(row, tokens, table.origin) for row, tokens in zip(table.rows, held, strict=True))
    working = _whole(table.rows)
    if isinstance(working, Unknown):
        return Use(working, from_unknown(working), from_unknown(working), from_unknown(working), detail)
    busy = [tokens for tokens, works in zip(held, working, strict=True) if works]
    idle = [tokens for tokens, works in zip(held, working, strict=True) if not works]
    used = _sum(busy, table.origin)
    if isinstance(used, Unknown) and used.reason is Reason.NOT_REPORTED:
        used = replace(used, bounds=_decoded([row for row, works in zip(table.rows, working, strict=True) if works]))
    return Use(Known(len(busy), table.origin), used, _sum(idle, table.origin), causes.NO_TOKEN_COUNT, detail)


def _whole(rows: Iterable[SlotRow]) -> list[bool] | Unknown:
    """Whether each slot works; unknown as soon as one of them does not say."""
    works = []
    for row in rows:
        if isinstance(row.busy, Unknown):
            return row.busy
        works.append(row.busy.value)
    return works


def _held(row: SlotRow, era: bool) -> Reading[int]:
    """The tokens that a slot holds. Only a slot that has served nothing yet, in a build that counts, holds none for want of a count."""
    if row.tokens is not None:
        return row.tokens
    if era and row.untouched and isinstance(row.busy, Known) and not row.busy.value:
        return Known(0, row.busy.origin)
    return causes.UNTOUCHED if row.untouched else causes.NO_TOKEN_COUNT


def _sum(held: Sequence[Reading[int]], origin: Origin) -> Reading[int]:
    """The sum, known only if every part is; of nothing it is a measured zero."""
    total = 0
    for tokens in held:
        if isinstance(tokens, Unknown):
            return tokens
        total += tokens.value
    return Known(total, origin)


def _decoded(rows: Sequence[SlotRow]) -> tuple[float | None, float | None] | None:
    """A lower bound where there are no counts: what was generated lies in the cache."""
    decoded = [row.decoded.value for row in rows if isinstance(row.decoded, Known)]
    return (sum(decoded), None) if decoded else None


def _detail(row: SlotRow, held: Reading[int], origin: Origin) -> Slot:
    if isinstance(row.busy, Unknown):
        return Slot(row.id, row.busy, row.context, from_unknown(row.busy), from_unknown(row.busy), from_unknown(row.busy))
    none = Known(0, origin)
    if row.busy.value:
        return Slot(row.id, row.busy, row.context, held, none, row.remain)
    return Slot(row.id, row.busy, row.context, none, held, none)


def _can_be(busy: int, slots: Reading[int]) -> bool:
    return isinstance(slots, Unknown) or busy <= slots.value


def _is(reading: Reading[int], value: int) -> bool:
    return isinstance(reading, Known) and reading.value == value


def _full(numbers: Numbers, slots: Reading[int]) -> bool:
    """Every slot works, so nothing in the cache is kept for an idle one."""
    return isinstance(slots, Known) and _is(numbers.processing, slots.value)


def _used(by_slots: Reading[int], numbers: Numbers, slots: Reading[int]) -> Reading[int]:
    if isinstance(by_slots, Known):
        return by_slots
    if isinstance(numbers.kv_tokens, Unknown):
        return by_slots
    if numbers.kv_tokens.value == 0 or _full(numbers, slots):
        return numbers.kv_tokens
    return Unknown(Reason.AMBIGUOUS, "this build counts active and cached tokens together", bounds=(0, numbers.kv_tokens.value))


def _reclaimable(by_slots: Reading[int], numbers: Numbers, slots: Reading[int]) -> Reading[int]:
    if isinstance(by_slots, Known) or isinstance(numbers.kv_tokens, Unknown):
        return by_slots
    if numbers.kv_tokens.value == 0 or _is(numbers.processing, 0):
        return numbers.kv_tokens
    if _full(numbers, slots):
        return Known(0, numbers.kv_tokens.origin)
    return Unknown(Reason.AMBIGUOUS, "this build counts active and cached tokens together", bounds=(0, numbers.kv_tokens.value))


def _ratio(numbers: Numbers, slots: Reading[int]) -> Reading[float]:
    """The active share, out of a gauge that counts cached tokens too."""
    if isinstance(numbers.kv_ratio, Unknown):
        return numbers.kv_ratio
    if numbers.kv_ratio.value == 0 or _full(numbers, slots):
        return numbers.kv_ratio
    if _is(numbers.processing, 0):
        return Known(0.0, numbers.kv_ratio.origin)
    return Unknown(Reason.AMBIGUOUS, "this build counts active and cached tokens together", bounds=(0, numbers.kv_ratio.value))
