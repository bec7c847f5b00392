"""Servers that misbehave in front of a real one, beside a healthy one in the same daemon: each gets its own state, and the healthy one keeps its beat."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import httpx
import pytest

from engines.builds import Build
from engines.inspecting import inspecting, samples_of, target
from engines.proxy import Answer, Behaviour, Freeze, Pass, Recorded, RecordingProxy
from engines.server import Server
from inspector.config import Config, Poll, Target
from inspector.daemon import Daemon
from inspector.fetch import LARGEST_BODY
from inspector.journal import Secrets
from inspector.model import POOL_FIELDS, State
from inspector.reading import Known, Reason
from inspector.registry import load_adapters
from inspector.server import bind

pytestmark = [pytest.mark.anyio, pytest.mark.engine]
pytest_plugins = ["engines.fixtures"]

HUGE = b"[" + b" " * LARGEST_BODY + b"]"
ROUTES = ("/health", "/props", "/v1/models", "/metrics", "/slots")
DATA_ROUTES = ("/v1/models", "/metrics", "/slots")
TIMEOUT = 1.0


@pytest.fixture(scope="module")
def server(tiny_model: Path, b10434: Build, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with b10434.serve(tiny_model, tmp_path_factory.mktemp("hostile") / "server.log", "-np", "2", "-c", "2048", "--metrics") as running:
        yield running


def only(path: str, behaviour: Behaviour) -> Callable[[Recorded], Behaviour]:
    """Misbehaves for one route, or for all of them."""
    return lambda request: behaviour if path in ("*", request.path) else Pass()


EMPTY, GIBBERISH, TOO_LARGE, SLOW = Answer(200), Answer(200, b"<html>\xff\xfe{"), Answer(200, HUGE), Pass(pause=0.05)
WRONG_TYPES = Answer(200, b'[{"id":[],"n_ctx":{},"is_processing":"no","n_prompt_tokens":NaN}]')


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize("body", [EMPTY, GIBBERISH, TOO_LARGE, WRONG_TYPES], ids=["empty", "gibberish", "huge", "wrong types"])
async def test_a_200_that_says_nothing_is_unknown_and_neither_down_nor_zero(server: Server, path: str, body: Answer):
    async with RecordingProxy.beside(server.url) as proxy, inspecting(proxy.url, may_wake=True) as inspection:
        sound = await inspection.pool()
        proxy.behave = only(path, body)
        snapshot = await inspection.poll()
        assert snapshot.state is State.READY
        (pool,) = snapshot.pools
        for name in POOL_FIELDS:
            before, now = sound.reading(name), pool.reading(name)
            if isinstance(now, Known):
                assert isinstance(before, Known), name
                assert now.value == before.value, name
        if path == "/metrics":
            assert pool.prompt_tokens_total.reason in (Reason.INVALID, Reason.NOT_REPORTED)
        if path == "/slots":
            assert pool.kv_reclaimable_tokens.reason is Reason.INVALID
        proxy.behave = lambda request: Pass()
        again = await inspection.pool()
        assert all(isinstance(again.reading(name), Known) for name in POOL_FIELDS if isinstance(sound.reading(name), Known)), "it goes on as before"


@pytest.mark.parametrize("body", [EMPTY, GIBBERISH, TOO_LARGE], ids=["empty", "gibberish", "huge"])
async def test_a_server_that_says_nothing_at_all_is_not_recognized_rather_than_down(server: Server, body: Answer):
    async with RecordingProxy.beside(server.url) as proxy, inspecting(proxy.url, may_wake=True) as inspection:
        proxy.behave = only("*", body)
        snapshot = await inspection.poll()
        assert (snapshot.state, snapshot.pools) == (State.NOT_RECOGNIZED, ())
        samples = inspection.samples()
        assert {name for name, rows in samples.items() if any("pool" in labels for labels, _ in rows)} == set()


@asynccontextmanager
async def daemon_on(*targets: Target) -> AsyncIterator[Callable[[], Mapping[str, Mapping[str, float]]]]:
    """A daemon over these targets. It gives what /metrics says: values by family and target, of the families without other labels."""
    config = Config().model_copy(update={"targets": targets, "poll": Poll(timeout=TIMEOUT, stale_after=1000)})
    daemon = Daemon(config, load_adapters(), Secrets(), bind("127.0.0.1", 0))
    async with anyio.create_task_group() as tasks:
        address = await tasks.start(daemon.run)
        async with httpx.AsyncClient(base_url=f"http://{address}", trust_env=False, timeout=30.0) as asker:

            async def told() -> Mapping[str, Mapping[str, float]]:
                samples = samples_of((await asker.get("/metrics")).text)
                return {name: {labels["target"]: value for labels, value in rows if "target" in labels} for name, rows in samples.items()}

            yield told
        tasks.cancel_scope.cancel()


async def until(told, holds) -> Mapping[str, Mapping[str, float]]:
    with anyio.fail_after(30):
        while not holds(samples := await told()):
            await anyio.sleep(0.02)
    return samples


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize("behaviour", [Freeze(), SLOW], ids=["frozen", "byte by byte"])
async def test_the_beat_of_a_healthy_target_does_not_know_of_a_hanging_one(server: Server, behaviour: Behaviour, path: str):
    """While one question hangs for its whole deadline, at most that one is under way, and the neighbour is polled again and again."""
    async with RecordingProxy.beside(server.url) as proxy:
        proxy.behave = only(path, behaviour)
        hanging = target(proxy.url, name="hanging", may_wake=True, interval=0.1)
        healthy = target(server.url, name="healthy", may_wake=True, interval=0.1)
        async with daemon_on(hanging, healthy) as told:
            first = await until(told, lambda s: s["inspector_polls_total"]["healthy"] >= 1)
            assert first["inspector_target_up"]["healthy"] == 1
            samples = await until(told, lambda s: s["inspector_polls_total"]["hanging"] >= 1)
    assert samples["inspector_polls_total"]["healthy"] >= 3
    assert samples["inspector_target_up"]["healthy"] == 1
    assert samples["inspector_kv_used_tokens"]["healthy"] == 0
    assert samples["inspector_target_up"]["hanging"] == (0 if path == "/health" else 1)
    assert samples["inspector_task_failures_total"] == {}


async def test_a_target_that_answers_with_rubbish_disturbs_no_other(server: Server):
    async with RecordingProxy.beside(server.url) as proxy:
        rubbish = target(proxy.url, name="rubbish", may_wake=True, interval=0.05)
        healthy = target(server.url, name="healthy", may_wake=True, interval=0.05, facts={"kv_unified": False})
        async with daemon_on(rubbish, healthy) as told:
            for body in (EMPTY, GIBBERISH, TOO_LARGE, WRONG_TYPES):
                proxy.behave = only("*", body)
                before = await told()
                polls = before.get("inspector_polls_total", {}).get("healthy", 0)
                samples = await until(told, lambda s, polls=polls: s["inspector_polls_total"]["healthy"] >= polls + 3)
                assert samples["inspector_target_up"]["healthy"] == 1
                assert samples["inspector_kv_capacity_tokens"] == {"healthy": 2048}
            proxy.behave = lambda request: Pass()
            await until(told, lambda s: s["inspector_target_up"]["rubbish"] == 1)
