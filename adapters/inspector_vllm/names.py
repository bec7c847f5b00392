"""The names of vLLM's metrics over all versions, V0 (until 0.10.2) and V1 (since 0.7).

A question may have several names, the newest first: they are spellings of one thing. The first that a page has is read, and no two are ever added up. All
`*_perc` are shares from 0 to 1 in spite of their names.
"""

from __future__ import annotations

from collections.abc import Mapping

NAMES: Mapping[str, tuple[str, ...]] = {
    "running": ("vllm:num_requests_running",),  # all versions
    "waiting": ("vllm:num_requests_waiting",),  # all versions; V1: preempted requests included, since 0.20 deferred ones too
    "usage": (
        "vllm:kv_cache_usage_perc",  # V1 since 0.9.2
        "vllm:gpu_cache_usage_perc",  # V0; V1 0.7.3 to 0.10.2
    ),
    "preemptions": ("vllm:num_preemptions_total",),  # V0 since 0.4.3, V1 since 0.8.0
    "hits": (
        "vllm:prefix_cache_hits_total",  # V1 since 0.9.2, in tokens
        "vllm:gpu_prefix_cache_hits_total",  # V1 0.7.3 to 0.10.2, in blocks before 0.9.2
    ),
    "queries": (
        "vllm:prefix_cache_queries_total",
        "vllm:gpu_prefix_cache_queries_total",
    ),
    "prompt": ("vllm:prompt_tokens_total",),  # all versions
    "generated": ("vllm:generation_tokens_total",),  # all versions
}

UNIT_UNSURE = frozenset({"vllm:gpu_prefix_cache_hits_total", "vllm:gpu_prefix_cache_queries_total"})
"""Where a page has no newer name beside these, they may count blocks."""

CACHE = "vllm:cache_config_info"  # V0 since 0.4.1, V1 since 0.8.0; `engine` label since 0.9.0
SLEEP = "vllm:engine_sleep_state"  # V1 since 0.12.0
BORN = "process_start_time_seconds"  # not with several API server processes

V0_ONLY = ("vllm:num_requests_swapped", "vllm:cpu_cache_usage_perc")
"""V0 shows these until 0.8.5, V1 never."""

WANTED: tuple[str, ...] = (*(name for names in NAMES.values() for name in names), CACHE, SLEEP, BORN, *V0_ONLY)
