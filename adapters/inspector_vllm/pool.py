"""One pool, an engine core with its KV cache, out of all that was learned about it in one poll."""

from __future__ import annotations

from inspector.model import Drift, Pool
from inspector.reading import Known, Reading
from inspector_vllm import capacity
from inspector_vllm.cache_info import CacheInfo
from inspector_vllm.log import KvLog
from inspector_vllm.numbers import Numbers
from inspector_vllm.sources import Static, cache_drift

OFFERED = frozenset(
    {
        "model",
        "slots",
        "requests_running",
        "requests_waiting",
        "context_limit_tokens",
        "context_guaranteed_tokens",
        "kv_capacity_tokens",
        "kv_used_tokens",
        "kv_usage_ratio",
        "preemptions_total",
        "prefix_cache_hits_total",
        "prefix_cache_queries_total",
        "prompt_tokens_total",
        "generation_tokens_total",
    }
)
"""Not offered: reclaimable tokens (vLLM counts cached blocks as free), bytes (its figure is what the cache might take, not what it takes), exhaustions (it
preempts, and kills nothing), slots at work and requests in flight (it parts running from waiting)."""


def build(engine: str, model: Reading[str], numbers: Numbers, info: CacheInfo, told: KvLog, static: Static) -> tuple[Pool, tuple[Drift, ...]]:
    cache = capacity.cache(info, told, static.block, static.capacity)
    pool = Pool(
        id=engine,
        model=model,
        slots=static.slots,
        requests_running=numbers.running,
        requests_waiting=numbers.waiting,
        context_limit_tokens=static.context,
        context_guaranteed_tokens=capacity.guaranteed(cache, static.slots, static.context),
        kv_capacity_tokens=cache.tokens,
        kv_used_tokens=capacity.used_tokens(cache, numbers.usage, rounded=numbers.rounded_usage),
        kv_usage_ratio=numbers.usage,
        preemptions_total=numbers.preemptions,
        prefix_cache_hits_total=numbers.hits,
        prefix_cache_queries_total=numbers.queries,
        prompt_tokens_total=numbers.prompt,
        generation_tokens_total=numbers.generated,
        layouts=cache.layouts(static.slots, static.context),
    )
    return pool, cache_drift(info, told, cache, static.capacity, engine)


def is_asleep(numbers: Numbers) -> bool:
    return isinstance(numbers.awake, Known) and not numbers.awake.value
