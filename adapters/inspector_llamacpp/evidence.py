"""What each source says of slots, contexts and the shape of the KV cache; which one is believed, and where they disagree. Pure.

Trust, in this order: HTTP, the log of this process, its live command line (or a router's `status.args`), the operator, a launch file. A source that
contradicts a better one about slots or contexts speaks of another server: then it is not believed about the KV cache either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from inspector.contract import Flag, LaunchView, LogView
from inspector.model import Drift
from inspector.reading import Kind, Known, Origin, Reading, Reason, Unknown, first_known, flag, positive
from inspector_llamacpp import causes, log
from inspector_llamacpp.flags import CACHE_TYPE, CACHE_TYPES, CONTEXT, PARALLEL, PER_SLOT, UNIFIED, setting, switch

T = TypeVar("T")

PADDING = 256
"""llama.cpp rounds a context up to a multiple of this."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What one source says. `pool` is the size of a shared KV cache in tokens; `capacity` that of a cache of either kind."""

    source: str
    slots: Reading[int] = causes.NO_SETTING
    context: Reading[int] = causes.NO_SETTING
    unified: Reading[bool] = causes.NO_SETTING
    pool: Reading[int] = causes.NO_SETTING
    capacity: Reading[int] = causes.NO_SETTING
    most_context: Unknown | None = None
    """Where the context is unknown: what bounds it."""


@dataclass(frozen=True, slots=True)
class Settled:
    """What holds after all sources were heard."""

    slots: Reading[int]
    context: Reading[int]
    unified: Reading[bool]
    pool: Reading[int]
    capacity: Reading[int]
    believed: frozenset[str]
    drift: tuple[Drift, ...] = field(default=())


def of_log(view: LogView) -> Evidence:
    block = log.block(view)
    return Evidence("log", block.slots, block.context, block.unified, block.pool)


def of_operator(stated: Mapping[str, Known[Any]]) -> Evidence:
    """The operator's statements, checked: a wrong type in the configuration is no fact."""

    def number(name: str) -> Reading[int]:
        known = stated.get(name)
        return causes.NOT_STATED if known is None else positive(known.value, known.origin, f"{name} in the configuration")

    unified = stated.get("kv_unified")
    capacity = number("kv_capacity_tokens")
    return Evidence(
        "operator",
        number("slots"),
        number("context_limit_tokens"),
        causes.NOT_STATED if unified is None else flag(unified.value, unified.origin, "kv_unified in the configuration"),
        capacity,
        capacity,
    )


def of_launch(view: LaunchView, slots: Reading[int], context: Reading[int], trained: Reading[int]) -> Evidence:
    """What a command line says, in the light of what is known of the server: its slots, a slot's context, the context that the model was trained on."""
    source = "launch" if view.live else "launch file"
    parallel, total, per_slot = setting(view, PARALLEL), setting(view, CONTEXT), setting(view, PER_SLOT)
    own_slots: Reading[int] = parallel if isinstance(parallel, Known) and parallel.value > 0 else causes.AUTO_SLOTS
    if isinstance(parallel, Unknown):
        own_slots = parallel
    unified = _unified(view, parallel, slots)
    if isinstance(context, Unknown):
        capacity, most = _launched_capacity(own_slots, total, per_slot, unified)
        return Evidence(source, own_slots, unified=unified, capacity=capacity, most_context=most)
    wrong = _contradiction(own_slots, total, per_slot, unified, context, trained)
    pool = _pool(view, total, per_slot, slots, context, trained)
    return Evidence(source, own_slots, causes.NO_SETTING if wrong is None else wrong, unified, pool)


def settle(sources: Sequence[Evidence], pool_id: str) -> Settled:
    """The first known answer to each question, and every disagreement. The last two questions are put to those only that agree about the first two."""
    slots, drift = _agree("slots", [(s.source, s.slots) for s in sources], pool_id)
    context, more = _agree("context_limit_tokens", [(s.source, s.context) for s in sources], pool_id)
    drift += more
    doubted = {d.other for d in drift}
    believed = [s for s in sources if s.source not in doubted]
    unified, more = _agree("kv_unified", [(s.source, s.unified) for s in believed], pool_id)
    drift += more
    doubted = {d.other for d in more}
    pool, more = _agree("kv_capacity_tokens", [(s.source, s.pool) for s in believed if s.source not in doubted], pool_id)
    drift += more if isinstance(unified, Known) and unified.value else []
    if isinstance(context, Unknown):
        context = next((s.most_context for s in believed if s.most_context is not None), context)
    capacity = first_known(*(s.capacity for s in believed))
    return Settled(slots, context, unified, pool, capacity, frozenset(s.source for s in believed), tuple(drift))


def _agree(field_name: str, answers: Sequence[tuple[str, Reading[T]]], pool_id: str) -> tuple[Reading[T], list[Drift]]:
    used = first_known(*(reading for _, reading in answers))
    if isinstance(used, Unknown):
        return used, []
    by = next(source for source, reading in answers if reading is used)
    drift = [
        Drift(pool_id, field_name, by, source, f"{used.origin} says {used.value}, {reading.origin} says {reading.value}")
        for source, reading in answers
        if isinstance(reading, Known) and reading.value != used.value
    ]
    return used, drift


def cache_type_drift(live: LaunchView | Unknown, file: LaunchView | Unknown, pool_id: str) -> list[Drift]:
    """Where the process runs with another type of cached keys or values than the launch file states; no field shows it."""
    if isinstance(live, Unknown) or isinstance(file, Unknown):
        return []
    return [
        drift
        for each in CACHE_TYPES
        for drift in _agree(each.name, [("launch", _cache_type(live, each)), ("launch file", _cache_type(file, each))], pool_id)[1]
    ]


def padded(tokens: int) -> int:
    return -(-tokens // PADDING) * PADDING


def _cache_type(view: LaunchView, each: Flag) -> Reading[str]:
    stated = view.get(each.name)
    return Known(CACHE_TYPE, Origin(Kind.LAUNCH, f"{view.path}, by default,", view.at)) if stated is None else stated


def _unified(view: LaunchView, parallel: Reading[int] | None, slots: Reading[int]) -> Reading[bool]:
    """Left out, `-np` means four slots over one cache since autumn 2025, and one slot before; given, it means split unless `-kvu` is there."""
    given = switch(view, UNIFIED)
    if isinstance(parallel, Unknown):
        return parallel
    if isinstance(given, Unknown):
        return given
    if parallel is not None and parallel.value > 0:
        return given if given is not None else Known(False, view.origin)
    if given is not None and not given.value:
        return causes.AUTO_OR_SPLIT
    if given is not None:
        return given
    return Known(True, view.origin) if isinstance(slots, Known) and slots.value > 1 else causes.AUTO_SLOTS


def _contradiction(
    own: Reading[int], total: Reading[int] | None, per_slot: Reading[int] | None, unified: Reading[bool], context: Known[int], trained: Reading[int]
) -> Known[int] | None:
    """The most context that a slot can have by this command line, if the one it has is larger, or smaller than what could have capped it."""
    if not isinstance(total, Known) or total.value <= 0 or isinstance(unified, Unknown):
        return None
    parts = own.value if isinstance(own, Known) and not unified.value else 1
    most = padded(-(-padded(total.value) // parts))
    if context.value > most:
        return Known(most, total.origin)
    cap = per_slot if unified.value else None
    if isinstance(trained, Unknown) or isinstance(cap, Unknown):
        return None
    caps = [trained.value, *([cap.value] if cap is not None and cap.value > 0 else [])]
    return Known(min(most, *caps), total.origin) if context.value < min(total.value // parts, *caps) else None


def _pool(
    view: LaunchView, total: Reading[int] | None, per_slot: Reading[int] | None, slots: Reading[int], context: Known[int], trained: Reading[int]
) -> Reading[int]:
    """The size of a shared cache. A slot's context is all of it unless it was capped: at the trained context, or by --kv-unified-per-slot."""
    if isinstance(total, Unknown):
        return total
    if isinstance(per_slot, Unknown):
        return per_slot
    cap = per_slot.value if per_slot is not None and per_slot.value > 0 else None
    if total is not None and total.value > 0:
        return _stated_pool(total, view, cap, context, trained)
    if cap is None or context.value < cap:
        return Known(context.value, view.origin)  # sized to the model or to the memory, never above the trained context
    if total is not None:
        return causes.POOL_SIZE  # `-c 0` with a cap: the whole trained context
    return slots if isinstance(slots, Unknown) else Known(padded(cap * slots.value), view.origin)


def _stated_pool(total: Known[int], view: LaunchView, cap: int | None, context: Known[int], trained: Reading[int]) -> Reading[int]:
    most = padded(total.value)
    if total.value <= context.value <= most:
        return Known(context.value, total.origin)
    capped_by = [c for c in (cap, trained.value if isinstance(trained, Known) else None) if c is not None]
    explained = bool(capped_by) and context.value == min(most, *capped_by)
    # A live command line is this server's: a smaller context can only have been capped. A file may be another's.
    if context.value < total.value and (explained or (view.live and isinstance(trained, Unknown))):
        return Known(most, total.origin)
    return causes.POOL_SIZE


def _launched_capacity(
    own: Reading[int], total: Reading[int] | None, per_slot: Reading[int] | None, unified: Reading[bool]
) -> tuple[Reading[int], Unknown | None]:
    """For a server that says nothing: the cache that a command line asks for, and what bounds a request's context."""
    if not isinstance(total, Known) or total.value <= 0 or per_slot is not None or isinstance(unified, Unknown) or isinstance(own, Unknown):
        return causes.NO_SETTING, None
    parts = 1 if unified.value else own.value
    slot = padded(-(-padded(total.value) // parts))
    most = Unknown(Reason.AMBIGUOUS, "a model that was trained on a shorter context caps it: the server or its log tells", bounds=(None, slot))
    if slot * parts == total.value:
        return Known(total.value, total.origin), most
    return Unknown(Reason.AMBIGUOUS, "the build rounds the context up", bounds=(total.value, slot * parts)), most
