"""A real vLLM with two data-parallel engines: two pools, each with a KV cache of its own, behind one API server."""

from __future__ import annotations

import anyio
import pytest

from engines.server import Server
from engines.vllm import BLOCK_TOKENS, BLOCKS, LENGTH, SEQUENCES, parsed, sessions
from engines.vllm_fixtures import Polled, Watch
from inspector.model import Pool, State
from inspector.reading import Known

pytestmark = [pytest.mark.anyio, pytest.mark.engine]

ENGINES = ("0", "1")
FLAGS = ("--data-parallel-size=2",)

USABLE = BLOCKS - 1

LIVE = {
    "requests_running": "vllm:num_requests_running",
    "requests_waiting": "vllm:num_requests_waiting",
    "kv_usage_ratio": "vllm:kv_cache_usage_perc",
    "preemptions_total": "vllm:num_preemptions_total",
    "prompt_tokens_total": "vllm:prompt_tokens_total",
    "generation_tokens_total": "vllm:generation_tokens_total",
}


def value(pool: Pool, field: str) -> float:
    reading = pool.reading(field)
    assert isinstance(reading, Known), (field, reading)
    return float(reading.value)


def assert_each_pool_is_one_engine(polled: Polled) -> None:
    page = parsed(polled.page)
    assert tuple(pool.id for pool in polled.snapshot.pools) == ENGINES
    for pool in polled.snapshot.pools:
        assert value(pool, "kv_capacity_tokens") == USABLE * BLOCK_TOKENS
        assert value(pool, "slots") == SEQUENCES
        assert value(pool, "context_limit_tokens") == LENGTH
        for field, series in LIVE.items():
            assert [number for labels, number in page[series] if labels["engine"] == pool.id] == [value(pool, field)], (field, pool.id)
        assert value(pool, "kv_used_tokens") == round(value(pool, "kv_usage_ratio") * USABLE) * BLOCK_TOKENS
    assert polled.snapshot.state is State.READY
    assert polled.snapshot.drift == ()
    assert polled.snapshot.faults == ()


async def test_each_engine_is_a_pool_with_its_own_capacity_and_load(server: Server, watch: Watch) -> None:
    async with watch() as watcher:
        polls = [await watcher.poll()]
        with sessions(server.url, [(40, 1000)] * 8) as requests:
            while not all(request.done() for request in requests):
                polls.append(await watcher.poll())
                await anyio.sleep(0.2)
        assert [request.result() for request in requests] == [200] * 8
        await anyio.sleep(0.5)
        polls.append(await watcher.poll())
    for polled in polls:
        assert_each_pool_is_one_engine(polled)
    generated = [value(pool, "generation_tokens_total") for pool in polls[-1].snapshot.pools]
    assert sum(generated) == 8 * 1000
    assert min(generated) > 0, "both engines worked"


async def test_the_server_shows_the_sum_of_all_blocks_on_each_engine_s_row(watch: Watch) -> None:
    """Otherwise the capacity in the test above proves nothing."""
    async with watch() as watcher:
        rows = parsed((await watcher.poll()).page)["vllm:cache_config_info"]
    assert [(labels["engine"], int(labels["num_gpu_blocks"])) for labels, _ in rows] == [(engine, len(ENGINES) * BLOCKS) for engine in ENGINES]
