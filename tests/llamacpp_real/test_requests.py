"""An hour of polls in every state of real servers, each request written down: method, path and query are those of the routes, in the order that is safe."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from engines import client, log
from engines.builds import Build, CurrentBuild
from engines.inspecting import target
from engines.proxy import Recorded, RecordingProxy
from engines.server import Server, wait_until
from inspector.collector import TargetCollector
from inspector.config import Poll
from inspector.contract import Route
from inspector.fetch import Client
from inspector.model import State
from inspector.registry import load_adapters
from inspector.wiring import Job, TargetSources, watched

pytestmark = [pytest.mark.anyio, pytest.mark.engine]
pytest_plugins = ["engines.fixtures"]

POLLS = 720
HALF = POLLS // 2
"""Where two builds share a state's hour."""

SOME = 60
INTERVAL = 5.0
"""Seconds by the clock of the test, which is put forward: 720 polls are an hour of the real beat, and slower routes are due as often as then."""

MODELS_EVERY = 60.0
FLAGS = {"b10434": ("-np", "2", "-c", "2048", "--metrics"), "current": ("--slots", "2", "--context", "2048", "--metrics")}
SLEEP = {"b10434": ("--sleep-idle-seconds", "1"), "current": ("--sleep", "1")}
NEITHER = {"b10434": ("-np", "2", "-c", "2048", "--no-slots"), "current": ("--slots", "2", "--context", "2048", "--no-slots")}

HEALTH, PROPS, V1_MODELS, METRICS, SLOTS, MODELS = "/health", "/props", "/v1/models", "/metrics", "/slots", "/models"


class Hour:
    """720 polls of a target through a recording proxy. `polls` has the requests of each poll in their order, `states` what each found."""

    def __init__(self, proxy: RecordingProxy, **fields: Any) -> None:
        self.now = 1_800_000_000.0
        self.proxy = proxy
        self.polls: list[list[Recorded]] = []
        self.states: Counter[State] = Counter()
        adapters = load_adapters().adapters
        watched_target = target(proxy.url, **fields)
        self._client = Client(watched_target.endpoint, clock=self.clock)
        sources = TargetSources(watched_target, self._client.get, self.clock)
        # The server is in another thread, and this machine may be busy: its silence is not what is tested here.
        job = Job(watched_target, Poll(interval=INTERVAL, timeout=60.0))
        self._collector = TargetCollector(watched(job, adapters), sources, adapters, clock=self.clock)

    def clock(self) -> float:
        return self.now

    async def poll(self, times: int) -> None:
        for _ in range(times):
            already = len(self.proxy.requests)
            self.states[(await self._collector.poll()).state] += 1
            self.polls.append(self.proxy.requests[already:])
            self.now += INTERVAL

    async def aclose(self) -> None:
        await self._collector.aclose()
        await self._client.aclose()

    def paths(self, *, without: Sequence[str] = (V1_MODELS,)) -> set[tuple[str, ...]]:
        """The different orders in which a poll asked; the one slow route apart, which is not due in each."""
        return {tuple(request.path for request in poll if request.path not in without) for poll in self.polls}


@asynccontextmanager
async def hour(server: Server, **fields: Any) -> AsyncIterator[Hour]:
    async with RecordingProxy.beside(server.url) as proxy:
        made = Hour(proxy, **fields)
        try:
            yield made
        finally:
            await made.aclose()
        assert_all_are_routes(proxy.requests)


def assert_all_are_routes(requests: Iterable[Recorded]) -> None:
    """GET only; a path of the adapter, with every parameter that its route requires and none that it does not allow."""
    routes = load_adapters().adapters["llamacpp"].routes
    for request in requests:
        assert request.method == "GET"
        assert request.body == b""
        assert any(is_of(route, request) for route in routes), (request.path, request.query)


def is_of(route: Route, request: Recorded) -> bool:
    query = dict(request.query)
    required = dict(route.required)
    sent_once = len(query) == len(request.query)
    return sent_once and request.path == route.path and required.items() <= query.items() and query.keys() <= required.keys() | route.allowed


def assert_no_query(requests: Iterable[Recorded]) -> None:
    assert {request.query for request in requests} == {()}


def slow_route_asked(hour: Hour) -> int:
    return sum(request.path == V1_MODELS for poll in hour.polls for request in poll)


def engine(request: pytest.FixtureRequest, build: str) -> Build | CurrentBuild:
    return request.getfixturevalue(build)


async def test_ready_without_a_timer_both_pages_are_read_once_a_poll(b10434: Build, tiny_model: Path, tmp_path: Path):
    with b10434.serve(tiny_model, tmp_path / "server.log", *FLAGS["b10434"]) as server:
        async with hour(server, launch={"pid": server.pid}) as seen:
            await seen.poll(HALF)
    assert seen.states == {State.READY: HALF}
    assert seen.paths() == {(HEALTH, PROPS, METRICS, SLOTS)}
    assert slow_route_asked(seen) == HALF * INTERVAL / MODELS_EVERY
    assert_no_query(seen.proxy.requests)


async def test_ready_where_nothing_is_known_of_a_timer_the_older_build_is_left_alone(b10434: Build, tiny_model: Path, tmp_path: Path):
    with b10434.serve(tiny_model, tmp_path / "server.log", *FLAGS["b10434"]) as server:
        async with hour(server) as seen:
            await seen.poll(SOME)
    assert seen.states == {State.READY: SOME}
    assert seen.paths() == {(HEALTH, PROPS)}, "/metrics and /slots would keep a sleeper awake"
    assert slow_route_asked(seen) == SOME * INTERVAL / MODELS_EVERY
    assert_no_query(seen.proxy.requests)


async def test_ready_the_current_build_is_asked_for_slots_only_while_it_works(current: CurrentBuild, tiny_model: Path, tmp_path: Path):
    with current.serve(tiny_model, tmp_path / "server.log", *FLAGS["current"]) as server:
        async with hour(server) as seen:
            await seen.poll(HALF // 2)
            idle = seen.paths()
            with client.sessions(server.url, [(10, 900)]):
                wait_until(lambda: client.busy(server.url) == 1, "a slot is busy")
                await seen.poll(5)
            at_work = {tuple(r.path for r in poll if r.path != V1_MODELS) for poll in seen.polls[HALF // 2 :]}
            log.wait_for_releases(server, 1)
            wait_until(lambda: client.busy(server.url) == 0, "the slot is idle")
            await seen.poll(HALF // 2)
            idle |= {tuple(r.path for r in poll if r.path != V1_MODELS) for poll in seen.polls[-HALF // 2 :]}
    assert idle == {(HEALTH, PROPS, METRICS)}
    assert (HEALTH, PROPS, METRICS, SLOTS) in at_work
    assert_no_query(seen.proxy.requests)


@pytest.mark.parametrize("build", FLAGS)
async def test_asleep_only_the_two_routes_that_never_wake_are_asked(build: str, request: pytest.FixtureRequest, tiny_model: Path, tmp_path: Path):
    with engine(request, build).serve(tiny_model, tmp_path / "server.log", *FLAGS[build], *SLEEP[build]) as server:
        wait_until(lambda: client.sleeping(server.url), "the server sleeps")
        async with hour(server) as seen:
            await seen.poll(HALF)
        text = server.log_text()
    assert seen.states == {State.SLEEPING: HALF}
    assert seen.paths(without=()) == {(HEALTH, PROPS)}
    assert_no_query(seen.proxy.requests)
    assert (log.sleeps(text), log.wakes(text)) == (1, 0)


async def test_unauthorized_nothing_is_asked_after_the_refusal(b10434: Build, tiny_model: Path, tmp_path: Path):
    with b10434.serve(tiny_model, tmp_path / "server.log", *FLAGS["b10434"], env={"LLAMA_API_KEY": "right"}) as server:
        async with hour(server, headers={"X-Api-Key": "wrong"}) as seen:
            await seen.poll(POLLS)
    assert seen.states == {State.UNAUTHORIZED: POLLS}
    assert seen.paths(without=()) == {(HEALTH, PROPS)}
    assert_no_query(seen.proxy.requests)


@pytest.mark.parametrize("build", NEITHER)
async def test_disabled_endpoints_are_not_even_tried(build: str, request: pytest.FixtureRequest, tiny_model: Path, tmp_path: Path):
    """The server says in /props that they are off; a question for /slots would wake a sleeper before the 501 comes."""
    with engine(request, build).serve(tiny_model, tmp_path / "server.log", *NEITHER[build]) as server:
        assert (client.get(server.url, SLOTS).status_code, client.get(server.url, METRICS).status_code) == (501, 501)
        async with hour(server, may_wake=True) as seen:
            await seen.poll(HALF)
    assert seen.states == {State.READY: HALF}
    assert seen.paths() == {(HEALTH, PROPS)}
    assert_no_query(seen.proxy.requests)


async def test_a_router_is_asked_for_its_loaded_model_only_and_never_to_load(b10434: Build, two_models: Path, tmp_path: Path):
    with b10434.route(two_models, tmp_path / "router.log", "--models-max", "1", "-np", "2", "-c", "1024", "--metrics") as server:
        async with hour(server) as seen:
            await seen.poll(HALF)
            assert seen.paths(without=()) == {(HEALTH, PROPS, MODELS)}, "nothing is loaded, so nothing more is asked"
            client.complete(server.url, 20, 20, model="ant")
            await seen.poll(HALF)
        text = server.log_text()
    assert seen.states == {State.READY: POLLS}
    assert {tuple(r.path for r in poll) for poll in seen.polls[HALF:]} == {(HEALTH, PROPS, MODELS, PROPS, METRICS, SLOTS)}
    asked = {(path, frozenset(query)) for _, path, query in seen.proxy.asked()}
    of_the_model = frozenset({("model", "ant"), ("autoload", "false")})
    plain = {(path, frozenset[tuple[str, str]]()) for path in (HEALTH, PROPS, MODELS)}
    assert asked == plain | {(path, of_the_model) for path in (PROPS, METRICS, SLOTS)}
    assert (log.router_loads(text), log.router_stops(text)) == (["ant"], [])
