"""One fact from several sources: the first that knows it is believed, the others must agree. Trust, in this order: HTTP, the log of this process, its live
command line, the operator, a launch file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from inspector.contract import Ask, Flag
from inspector.model import Drift
from inspector.reading import Known, Reading, Unknown, first_known, positive
from inspector_vllm import causes, log
from inspector_vllm.cache_info import CacheInfo
from inspector_vllm.capacity import Cache
from inspector_vllm.flags import BLOCK, LENGTH, SEQUENCES, setting
from inspector_vllm.log import KvLog
from inspector_vllm.payloads import Listed

Answer = tuple[str, Reading[int]]
"""A source's name, and what it says."""


@dataclass(frozen=True, slots=True)
class Static:
    """What belongs to all engines of a server: they are started with the same settings."""

    slots: Reading[int]
    context: Reading[int]
    block: Reading[int]
    capacity: Reading[int]
    drift: tuple[Drift, ...]


def static(ask: Ask, listed: Listed, pool_id: str) -> Static:
    slots, slots_drift = agreed("slots", [("log", log.argument(ask.log, "max_num_seqs")), *_settings(ask, SEQUENCES, "slots")], pool_id)
    lengths = [("http", listed.context), ("log", log.context(ask.log)), *_settings(ask, LENGTH, "context_limit_tokens")]
    context, context_drift = agreed("context_limit_tokens", lengths, pool_id)
    return Static(
        slots=slots if isinstance(slots, Known) else causes.NO_SLOTS,
        context=context,
        block=first_known(log.argument(ask.log, "block_size"), setting(ask.launch, BLOCK)),
        capacity=_stated(ask.stated, "kv_capacity_tokens"),
        drift=(*slots_drift, *context_drift),
    )


def agreed(name: str, answers: Sequence[Answer], pool_id: str) -> tuple[Reading[int], tuple[Drift, ...]]:
    """The first known answer, and every other that differs from it."""
    used = first_known(*(reading for _, reading in answers))
    if isinstance(used, Unknown):
        return used, ()
    by = next(source for source, reading in answers if reading is used)
    differing = [(source, r) for source, r in answers if isinstance(r, Known) and r.value != used.value]
    return used, tuple(Drift(pool_id, name, by, source, f"{used.origin} says {used.value}, {r.origin} says {r.value}") for source, r in differing)


def cache_drift(info: CacheInfo, told: KvLog, known: Cache, stated: Reading[int], pool_id: str) -> tuple[Drift, ...]:
    """Where log and /metrics speak of the same figure and differ; or where the operator's is another than what the server shows."""
    _, size = agreed("kv_capacity_tokens", [("http", info.size_tokens), ("log", told.size_tokens)], pool_id)
    _, blocks = agreed("kv_capacity_tokens", [("http", info.blocks), ("log", told.blocks)], pool_id)
    _, operator = agreed("kv_capacity_tokens", [("http", known.tokens), ("operator", stated)], pool_id)
    return (*(size or blocks), *operator)


def _settings(ask: Ask, flag: Flag, field: str) -> list[Answer]:
    return [("launch", setting(ask.launch, flag)), ("operator", _stated(ask.stated, field)), ("launch file", setting(ask.launch_file, flag))]


def _stated(stated: Mapping[str, Known[Any]], field: str) -> Reading[int]:
    known = stated.get(field)
    return causes.NOT_STATED if known is None else positive(known.value, known.origin, f"{field} in the configuration")
