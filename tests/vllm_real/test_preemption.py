"""A real vLLM with too few blocks for its requests: preemptions, a hanging engine, and one that dies."""

from __future__ import annotations

import signal

import anyio
import pytest

from engines.server import Server
from engines.vllm import BLOCK_TOKENS, BLOCKS, LENGTH, MODEL, SEQUENCES, engine_core, parsed, read_page, sessions
from engines.vllm_fixtures import Polled, Watch
from inspector.model import Snapshot, State
from inspector.reading import Kind, Known, Reason, Unknown

pytestmark = [pytest.mark.anyio, pytest.mark.engine]

USABLE = BLOCKS - 1

LIVE = {
    "requests_running": "vllm:num_requests_running",
    "requests_waiting": "vllm:num_requests_waiting",
    "kv_usage_ratio": "vllm:kv_cache_usage_perc",
    "preemptions_total": "vllm:num_preemptions_total",
    "prefix_cache_hits_total": "vllm:prefix_cache_hits_total",
    "prefix_cache_queries_total": "vllm:prefix_cache_queries_total",
    "prompt_tokens_total": "vllm:prompt_tokens_total",
    "generation_tokens_total": "vllm:generation_tokens_total",
}


def value(snapshot: Snapshot, field: str) -> float:
    reading = snapshot.pools[0].reading(field)
    assert isinstance(reading, Known), (field, reading)
    return float(reading.value)


def assert_poll_tells_its_page(polled: Polled) -> None:
    """Every reading equals what prometheus_client finds in the very page that the poll rests on."""
    page = parsed(polled.page)
    for field, series in LIVE.items():
        assert [value for _, value in page[series]] == [value(polled.snapshot, field)], field
    labels = page["vllm:cache_config_info"][0][0]
    assert value(polled.snapshot, "kv_capacity_tokens") == int(labels["kv_cache_size_tokens"]) - BLOCK_TOKENS
    assert value(polled.snapshot, "kv_used_tokens") == round(page["vllm:kv_cache_usage_perc"][0][1] * USABLE) * BLOCK_TOKENS
    assert polled.snapshot.state is State.READY
    assert polled.snapshot.drift == ()
    assert polled.snapshot.faults == ()


async def test_preemptions_are_counted_and_every_poll_tells_its_page(server: Server, watch: Watch) -> None:
    async with watch() as watcher:
        polls: list[Polled] = []
        with sessions(server.url, [(40, 1900)] * 8) as requests:
            while not all(request.done() for request in requests):
                polls.append(await watcher.poll())
                await anyio.sleep(0.2)
        assert [request.result() for request in requests] == [200] * 8
        await anyio.sleep(0.5)
        polls.append(await watcher.poll())
    for polled in polls:
        assert_poll_tells_its_page(polled)
    counted = parsed(read_page(server.url))["vllm:num_preemptions_total"][0][1]
    assert value(polls[-1].snapshot, "preemptions_total") == counted > 0
    assert max(value(polled.snapshot, "requests_waiting") for polled in polls) > 0
    assert 1 < max(value(polled.snapshot, "requests_running") for polled in polls) <= SEQUENCES


async def test_what_the_server_is_comes_from_http_and_log_and_they_agree(watch: Watch) -> None:
    async with watch() as watcher:
        snapshot = (await watcher.poll()).snapshot
    pool = snapshot.pools[0]
    assert snapshot.drift == ()
    assert isinstance(snapshot.version, Known)
    assert value(snapshot, "slots") == SEQUENCES
    assert pool.slots.origin.kind is Kind.LOG  # type: ignore[union-attr]
    assert value(snapshot, "context_limit_tokens") == LENGTH
    assert value(snapshot, "context_guaranteed_tokens") == USABLE // SEQUENCES * BLOCK_TOKENS
    assert pool.model.value == MODEL  # type: ignore[union-attr]


async def test_the_filtered_page_has_at_least_eight_times_fewer_bytes(watch: Watch) -> None:
    async with watch() as watcher:
        whole, *filtered = [await watcher.poll() for _ in range(4)]
    assert list(whole.replies) == ["/health", "/metrics", "/version", "/v1/models"]
    for polled in filtered:
        assert list(polled.replies) == ["/health", "/metrics/"]
        assert 8 * len(polled.page) <= len(whole.page)
        assert_poll_tells_its_page(polled)


async def test_an_idle_engine_never_stalls(watch: Watch) -> None:
    async with watch(stalled_after=0.3) as watcher:
        for _ in range(8):
            assert (await watcher.poll()).snapshot.state is State.READY
            await anyio.sleep(0.2)


async def test_a_stopped_engine_is_stalled_and_ready_again_when_it_goes_on(server: Server, watch: Watch) -> None:
    core = engine_core(server)
    async with watch(stalled_after=2.0) as watcher:
        with sessions(server.url, [(40, 1900)] * (2 * SEQUENCES)) as requests:
            with anyio.fail_after(60):
                while value((await watcher.poll()).snapshot, "requests_running") == 0:
                    await anyio.sleep(0.05)
            core.send_signal(signal.SIGSTOP)
            try:
                states = await until(watcher, State.STALLED)
                snapshot = (await watcher.poll()).snapshot
            finally:
                core.send_signal(signal.SIGCONT)
            assert set(states) == {State.READY, State.STALLED}
            assert snapshot.pools[0].requests_running == Unknown(Reason.STALLED, snapshot.state_detail)
            assert value(snapshot, "kv_capacity_tokens") == USABLE * BLOCK_TOKENS
            assert (await until(watcher, State.READY))[-1] is State.READY
        assert [request.result() for request in requests] == [200] * (2 * SEQUENCES)
        assert (await watcher.poll()).snapshot.state is State.READY


async def until(watcher: object, state: State) -> list[State]:
    """The states of polls up to the first of the given one."""
    seen: list[State] = []
    with anyio.fail_after(60):
        while not seen or seen[-1] is not state:
            await anyio.sleep(0.25)
            seen.append((await watcher.poll()).snapshot.state)  # type: ignore[attr-defined]
    return seen


async def test_a_killed_engine_is_unreachable_and_no_value_survives(server: Server, watch: Watch) -> None:
    """The last test of this file: the server ends itself soon after. Until then its metrics repeat the last values."""
    async with watch() as watcher:
        assert value((await watcher.poll()).snapshot, "preemptions_total") > 0
        engine_core(server).kill()
        await until(watcher, State.UNREACHABLE)
        with anyio.fail_after(60):
            while server.alive():
                snapshot = (await watcher.poll()).snapshot
                assert snapshot.state is State.UNREACHABLE
                assert snapshot.pools == ()
                await anyio.sleep(0.2)
        assert (await watcher.poll()).snapshot.state is State.UNREACHABLE
