"""A real vLLM with two API server processes, whose metrics are merged: the traffic's gauges appear with the first requests, and the filter yields nothing."""

from __future__ import annotations

from collections.abc import Callable

import anyio
import pytest

from engines.server import Server
from engines.vllm import BLOCK_TOKENS, BLOCKS, LENGTH, SEQUENCES, SERVE, complete, parsed, read_page, sessions
from engines.vllm_fixtures import Polled, Watch, Watcher
from inspector.contract import Reply
from inspector.model import Snapshot, State
from inspector.reading import Known, Reason, Unknown

pytestmark = [pytest.mark.anyio, pytest.mark.engine]

COMMAND = SERVE
FLAGS = ("--api-server-count=2",)

GAUGES = {
    "requests_running": "vllm:num_requests_running",
    "requests_waiting": "vllm:num_requests_waiting",
    "kv_usage_ratio": "vllm:kv_cache_usage_perc",
}
COUNTERS = {
    "preemptions_total": "vllm:num_preemptions_total",
    "prompt_tokens_total": "vllm:prompt_tokens_total",
    "generation_tokens_total": "vllm:generation_tokens_total",
}


def assert_static_facts(snapshot: Snapshot) -> None:
    (pool,) = snapshot.pools
    assert pool.kv_capacity_tokens.value == (BLOCKS - 1) * BLOCK_TOKENS  # type: ignore[union-attr]
    assert pool.context_limit_tokens.value == LENGTH  # type: ignore[union-attr]
    assert pool.slots.value == SEQUENCES  # type: ignore[union-attr]
    assert snapshot.drift == ()


def is_idle(polled: Polled) -> bool:
    running = polled.snapshot.pools[0].requests_running
    return isinstance(running, Known) and running.value == 0


def tells(snapshot: Snapshot, field: str) -> bool:
    return isinstance(snapshot.pools[0].reading(field), Known)


async def until(watcher: Watcher, holds: Callable[[Polled], bool]) -> list[Polled]:
    """All polls up to the first for which it holds."""
    seen: list[Polled] = []
    with anyio.fail_after(60):
        while not seen or not holds(seen[-1]):
            seen.append(await watcher.poll())
            await anyio.sleep(0.1)
    return seen


async def test_gauges_are_unknown_before_the_first_traffic_and_known_after(server: Server, watch: Watch) -> None:
    """The first test of this file. Zero would be a guess: nothing is there."""
    assert not any(name in parsed(read_page(server.url)) for name in GAUGES.values())
    async with watch() as watcher:
        before = (await watcher.poll()).snapshot
        assert before.state is State.READY
        for field in GAUGES:
            reading = before.pools[0].reading(field)
            assert isinstance(reading, Unknown)
            assert reading.reason is Reason.NOT_REPORTED
            assert "after the first request" in reading.detail
        for field in COUNTERS:
            assert before.pools[0].reading(field).value == 0  # type: ignore[union-attr]
        assert_static_facts(before)

        with sessions(server.url, [(40, 200)] * 8) as requests:
            during = await until(watcher, lambda _: all(request.done() for request in requests))
        assert [request.result() for request in requests] == [200] * 8
        after = (await until(watcher, is_idle))[-1]
    for field in GAUGES | COUNTERS:
        assert tells(after.snapshot, field)
    assert any(tells(polled.snapshot, "requests_running") for polled in during)
    assert {polled.snapshot.state for polled in (*during, after)} == {State.READY}
    page = parsed(after.page)
    for field, series in (GAUGES | COUNTERS).items():
        assert [value for _, value in page[series]] == [after.snapshot.pools[0].reading(field).value], field  # type: ignore[union-attr]
    assert after.snapshot.pools[0].generation_tokens_total.value == 8 * 200  # type: ignore[union-attr]
    assert_static_facts(after.snapshot)


async def test_the_filtered_page_is_empty_and_the_whole_one_is_read(server: Server, watch: Watch) -> None:
    assert complete(server.url, 20, 20) == 200
    async with watch() as watcher:
        first, second, *others = [await watcher.poll() for _ in range(5)]
    assert list(first.replies) == ["/health", "/metrics", "/version", "/v1/models"]
    assert list(second.replies) == ["/health", "/metrics/", "/metrics"]
    filtered = second.replies["/metrics/"]
    assert isinstance(filtered, Reply)
    assert (filtered.status, filtered.body) == (200, b"")
    assert all(list(polled.replies) == ["/health", "/metrics"] for polled in others), "it is not tried at every poll"
    for polled in (first, second, *others):
        assert tells(polled.snapshot, "requests_running")
        assert_static_facts(polled.snapshot)
