"""What an observation says, as a flat table, and what is wrong with it in itself."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from typing import Any, TypeAlias

from inspector.contract import Adapter, Observation
from inspector.layout import Layout, MemoryBound
from inspector.model import MEMORY_FIELDS, POOL_FIELDS, SLOT_FIELDS, Pool, State
from inspector.reading import NOT_OFFERED, Kind, Known, Reading, Unknown

Facts: TypeAlias = Mapping[tuple[str, ...], Reading[Any]]
"""Readings by ("pool", id, field), ("slot", pool's id, slot's id, field), ("memory", field) or ("version",)."""

TEXTS = frozenset({"model"})
FLAGS = frozenset({"kv_unified", "busy"})
SHARES = frozenset({"kv_usage_ratio"})
NUMBERS = frozenset({"kv_bytes_per_token"})
NEVER_ZERO = frozenset(
    {"slots", "context_limit_tokens", "context_tokens", "context_guaranteed_tokens", "kv_capacity_tokens", "kv_capacity_bytes", "total_bytes", "ceiling_bytes"}
)
"""Sizes: a zero among them is a payload that did not say, and would be divided by."""


def facts_of(observation: Observation) -> Facts:
    """All readings of an observation."""
    found: dict[tuple[str, ...], Reading[Any]] = {("version",): observation.version}
    for pool in observation.pools:
        found |= {("pool", pool.id, name): pool.reading(name) for name in POOL_FIELDS}
        found |= {("slot", pool.id, str(slot.id), name): getattr(slot, name) for slot in pool.slots_detail for name in SLOT_FIELDS}
    return found | {("memory", name): observation.memory.reading(name) for name in MEMORY_FIELDS}


def owed_to(reading: Known[Any], path: str) -> bool:
    """Whether a reading rests on the reply of a path."""
    return path in reading.origin.path and reading.origin.kind in (Kind.HTTP, Kind.DERIVED)


def normal(observation: Observation) -> Observation:
    """The observation with functions replaced by their values, so that it compares."""
    return replace(observation, pools=tuple(replace(pool, layouts=tuple(map(_comparable, pool.layouts))) for pool in observation.pools))


def _comparable(layout: Layout) -> Any:
    if isinstance(layout, MemoryBound):
        return layout.slots, layout.budget_bytes, tuple(layout.bytes_of(tokens) for tokens in (1, 1000, 100_000))
    return layout


def problems_of(observation: Observation, adapter: Adapter[Any], now: float) -> Iterator[str]:
    """What no observation may hold, whatever the replies."""
    facts = facts_of(observation)
    offered = adapter.offers(observation.version.value if isinstance(observation.version, Known) else None)
    for key, reading in facts.items():
        name = " ".join(key)
        yield from (f"{name}: {problem}" for problem in _reading_problems(key[-1], reading, now))
        if key[0] in ("pool", "memory") and reading != NOT_OFFERED and key[-1] not in offered:
            yield f"{name} has a reading, but `offers` does not name it"
        if key[0] == "pool" and reading == NOT_OFFERED and key[-1] in offered and observation.state is State.READY:
            yield f"{name} is `not_offered`, but `offers` names it"
    for number in (*observation.counters.values(), *(value for values in observation.progress.values() for value in values)):
        if not math.isfinite(number):
            yield "a counter or a progress figure is not finite"
    ids = [pool.id for pool in observation.pools]
    if len(ids) != len(set(ids)):
        yield f"two pools have one id: {ids}"
    if not observation.progress.keys() <= set(ids):
        yield "there is progress of a pool that is not there"
    for pool in observation.pools:
        yield from _pool_problems(pool)


def _reading_problems(name: str, reading: Reading[Any], now: float) -> Iterator[str]:
    if isinstance(reading, Unknown):
        if not reading.detail.strip() or not reading.detail.isprintable():
            yield "an unknown without one printable sentence"
        return
    value = reading.value
    if name == "version" or name in TEXTS:
        fits = isinstance(value, str) and value.isprintable() and 0 < len(value) <= 200 and (name == "version" or "/" not in value)
    elif name in FLAGS:
        fits = isinstance(value, bool)
    else:
        kinds = (int, float) if name in SHARES | NUMBERS else (int,)
        fits = isinstance(value, kinds) and not isinstance(value, bool) and math.isfinite(value) and value >= 0
        fits = fits and not (name in SHARES and value > 1) and not (name in NEVER_ZERO and value == 0)
    if not fits:
        yield f"a value of the wrong kind or range: {value!r}"
    if not 0 < reading.origin.at <= now:
        yield f"an observation of another time: {reading.origin.at}"


def _pool_problems(pool: Pool) -> Iterator[str]:
    numbers = [slot.id for slot in pool.slots_detail]
    if len(numbers) != len(set(numbers)):
        yield f"pool {pool.id}: two slots have one id"
    for layout in pool.layouts:
        for field in fields(layout):
            value = getattr(layout, field.name)
            if isinstance(value, int) and (isinstance(value, bool) or value < (0 if field.name == "reserved_blocks" else 1)):
                yield f"pool {pool.id}: a layout with {field.name} {value!r}"
    if len(set(map(_comparable, pool.layouts))) != len(pool.layouts):
        yield f"pool {pool.id}: one layout twice"
