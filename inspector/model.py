"""The one model that every engine is put into: snapshots of targets, pools, slots and memory. Frozen; every measured field is a Reading.

The tables `POOL_FIELDS`, `SLOT_FIELDS` and `MEMORY_FIELDS` say of each field whether it is live (it ages out) or static (it holds for one generation of the
server process), and what it means; metrics, JSON, screens and documentation are made from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from inspector.layout import Layout
from inspector.reading import NOT_OFFERED, Reading, Unknown


class State(StrEnum):
    READY = "ready"
    LOADING = "loading"
    SLEEPING = "sleeping"
    STALLED = "stalled"
    UNAUTHORIZED = "unauthorized"
    NOT_RECOGNIZED = "not_recognized"
    UNREACHABLE = "unreachable"

    @property
    def is_up(self) -> bool:
        """The engine was recognized and it answered."""
        return self in (State.READY, State.LOADING, State.SLEEPING, State.STALLED)


@dataclass(frozen=True, slots=True)
class FieldInfo:
    """What a field is: `live` facts age out, static ones belong to a generation. `help` names unit and meaning."""

    live: bool
    help: str
    counter: bool = False


POOL_FIELDS: Mapping[str, FieldInfo] = {
    "model": FieldInfo(False, "Base name of the model, never a path"),
    "slots": FieldInfo(False, "Requests that can run at once (llama.cpp: slots; vLLM: max_num_seqs)"),
    "slots_busy": FieldInfo(True, "Slots that work on a request"),
    "requests_running": FieldInfo(True, "Requests being processed"),
    "requests_waiting": FieldInfo(True, "Requests waiting for a slot or for KV cache"),
    "requests_in_flight": FieldInfo(True, "Requests running or waiting, where the engine does not part them"),
    "context_limit_tokens": FieldInfo(False, "Most tokens that one request may use, prompt and output together"),
    "context_guaranteed_tokens": FieldInfo(False, "Tokens that each request surely has when all slots are busy"),
    "model_context_tokens": FieldInfo(False, "Context length that the model was made for, where the engine enforces no limit"),
    "kv_capacity_tokens": FieldInfo(False, "Usable KV cache tokens (vLLM: without its null block)"),
    "kv_used_tokens": FieldInfo(True, "KV cache tokens held by running requests"),
    "kv_reclaimable_tokens": FieldInfo(True, "KV cache tokens kept for reuse, given up on demand"),
    "kv_reclaimable_bytes": FieldInfo(True, "KV cache bytes kept for reuse, where the engine tells bytes and no tokens"),
    "kv_usage_ratio": FieldInfo(True, "Share of the KV cache held by running requests, 0 to 1"),
    "kv_bytes_per_token": FieldInfo(False, "KV cache bytes for each token, where it is one number"),
    "kv_capacity_bytes": FieldInfo(False, "Bytes of the KV cache"),
    "kv_unified": FieldInfo(False, "Whether all slots share one KV pool"),
    "preemptions_total": FieldInfo(True, "Requests preempted for want of KV cache since the server started", counter=True),
    "kv_exhaustions_total": FieldInfo(True, "Requests killed for want of KV cache, counted in the log of this server process", counter=True),
    "prefix_cache_hits_total": FieldInfo(True, "Prompt tokens found in the prefix cache since the server started", counter=True),
    "prefix_cache_queries_total": FieldInfo(True, "Prompt tokens looked up in the prefix cache since the server started", counter=True),
    "prompt_tokens_total": FieldInfo(True, "Prompt tokens processed since the server started", counter=True),
    "generation_tokens_total": FieldInfo(True, "Tokens generated since the server started", counter=True),
}

SLOT_FIELDS: Mapping[str, FieldInfo] = {
    "busy": FieldInfo(True, "Whether the slot works on a request"),
    "context_tokens": FieldInfo(False, "Most tokens that a request in this slot may use"),
    "used_tokens": FieldInfo(True, "KV cache tokens held by the request in this slot"),
    "reclaimable_tokens": FieldInfo(True, "KV cache tokens that this idle slot keeps for reuse"),
    "growth_tokens": FieldInfo(True, "KV cache tokens that the request in this slot may still add"),
}

MEMORY_FIELDS: Mapping[str, FieldInfo] = {
    "total_bytes": FieldInfo(False, "Memory of the machine"),
    "ceiling_bytes": FieldInfo(False, "Most memory that the server may use"),
    "used_bytes": FieldInfo(True, "Memory that the server process holds"),
    "weights_bytes": FieldInfo(False, "Bytes of the model's weights"),
}


@dataclass(frozen=True, slots=True)
class Slot:
    """One slot of a llama.cpp server."""

    id: int
    busy: Reading[bool] = NOT_OFFERED
    context_tokens: Reading[int] = NOT_OFFERED
    used_tokens: Reading[int] = NOT_OFFERED
    reclaimable_tokens: Reading[int] = NOT_OFFERED
    growth_tokens: Reading[int] = NOT_OFFERED


@dataclass(frozen=True, slots=True)
class Pool:
    """One KV pool: a vLLM engine core, one llama.cpp model, one MLX process. `id` is "0" unless the engine has several."""

    id: str = "0"
    model: Reading[str] = NOT_OFFERED
    slots: Reading[int] = NOT_OFFERED
    slots_busy: Reading[int] = NOT_OFFERED
    requests_running: Reading[int] = NOT_OFFERED
    requests_waiting: Reading[int] = NOT_OFFERED
    requests_in_flight: Reading[int] = NOT_OFFERED
    context_limit_tokens: Reading[int] = NOT_OFFERED
    context_guaranteed_tokens: Reading[int] = NOT_OFFERED
    model_context_tokens: Reading[int] = NOT_OFFERED
    kv_capacity_tokens: Reading[int] = NOT_OFFERED
    kv_used_tokens: Reading[int] = NOT_OFFERED
    kv_reclaimable_tokens: Reading[int] = NOT_OFFERED
    kv_reclaimable_bytes: Reading[int] = NOT_OFFERED
    kv_usage_ratio: Reading[float] = NOT_OFFERED
    kv_bytes_per_token: Reading[float] = NOT_OFFERED
    kv_capacity_bytes: Reading[int] = NOT_OFFERED
    kv_unified: Reading[bool] = NOT_OFFERED
    preemptions_total: Reading[int] = NOT_OFFERED
    kv_exhaustions_total: Reading[int] = NOT_OFFERED
    prefix_cache_hits_total: Reading[int] = NOT_OFFERED
    prefix_cache_queries_total: Reading[int] = NOT_OFFERED
    prompt_tokens_total: Reading[int] = NOT_OFFERED
    generation_tokens_total: Reading[int] = NOT_OFFERED
    slots_detail: tuple[Slot, ...] = ()
    layouts: tuple[Layout, ...] = ()

    def reading(self, field: str) -> Reading[Any]:
        """The reading of a field of `POOL_FIELDS`."""
        reading: Reading[Any] = getattr(self, field)
        return reading


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory of the machine and of the server process, where the server is on this machine."""

    total_bytes: Reading[int] = NOT_OFFERED
    ceiling_bytes: Reading[int] = NOT_OFFERED
    used_bytes: Reading[int] = NOT_OFFERED
    weights_bytes: Reading[int] = NOT_OFFERED

    def reading(self, field: str) -> Reading[int]:
        """The reading of a field of `MEMORY_FIELDS`."""
        reading: Reading[int] = getattr(self, field)
        return reading


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that went wrong while a target was read: which route or source, why, and what to do."""

    source: str
    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class Drift:
    """Two sources disagree about one field; `used` is the source that was believed."""

    pool: str
    field: str
    used: str
    other: str
    detail: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that one poll of a target told; replaced whole by the next.

    `observed_at` is Unix seconds, `duration` seconds. `offered` names the fields that the engine can offer."""

    target: str
    engine: str
    state: State
    state_detail: str
    version: Reading[str]
    pools: tuple[Pool, ...]
    memory: Memory
    observed_at: float
    duration: float
    offered: frozenset[str] = frozenset()
    drift: tuple[Drift, ...] = ()
    faults: tuple[Fault, ...] = ()
    generation: int = 0


def without_live(pools: tuple[Pool, ...], why: Unknown) -> tuple[Pool, ...]:
    """The pools with every live fact replaced by `why`; what the engine does not offer stays so."""
    return tuple(_pool_without_live(pool, why) for pool in pools)


def _pool_without_live(pool: Pool, why: Unknown) -> Pool:
    changes: dict[str, Any] = {name: why for name, info in POOL_FIELDS.items() if info.live and pool.reading(name) != NOT_OFFERED}
    slots = tuple(_slot_without_live(slot, why) for slot in pool.slots_detail)
    return replace(pool, slots_detail=slots, **changes)


def _slot_without_live(slot: Slot, why: Unknown) -> Slot:
    changes: dict[str, Any] = {name: why for name, info in SLOT_FIELDS.items() if info.live and getattr(slot, name) != NOT_OFFERED}
    return replace(slot, **changes)


def memory_without_live(memory: Memory, why: Unknown) -> Memory:
    """The memory readings with every live one replaced by `why`."""
    changes: dict[str, Any] = {name: why for name, info in MEMORY_FIELDS.items() if info.live and memory.reading(name) != NOT_OFFERED}
    return replace(memory, **changes)
