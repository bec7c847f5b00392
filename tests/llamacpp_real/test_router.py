"""A real router with two models and room for one: looking at it loads nothing, evicts nothing, wakes nothing and keeps nothing awake."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from engines import client, log
from engines.builds import Build
from engines.inspecting import inspecting
from inspector.layout import Split
from inspector.model import POOL_FIELDS, State
from inspector.reading import NOT_OFFERED, Known, Reason

pytestmark = [pytest.mark.anyio, pytest.mark.engine]
pytest_plugins = ["engines.fixtures"]

FLAGS = ("--models-max", "1", "-np", "2", "-c", "1024", "--metrics")
POLLS = 30
LIVE = [name for name, info in POOL_FIELDS.items() if info.live]


@pytest.fixture(params=["b10068", "b10434"])
def build(request: pytest.FixtureRequest) -> Build:
    return request.getfixturevalue(request.param)


async def test_thirty_polls_load_evict_and_wake_nothing(build: Build, two_models: Path, tmp_path: Path):
    with build.route(two_models, tmp_path / "router.log", *FLAGS, "--sleep-idle-seconds", "2") as server:
        async with inspecting(server.url) as inspection:
            empty = await inspection.poll()
            client.complete(server.url, 50, 60, model="ant")
            seen = []
            for _ in range(POLLS):
                seen.append(await inspection.poll())
                await anyio.sleep(0.15)
            states = client.router_states(server.url)
            text = server.log_text()
    assert (empty.state, empty.pools) == (State.READY, ()), "no model is loaded, so there is no pool"
    assert states == {"ant": "sleeping", "bee": "unloaded"}
    assert (log.router_loads(text), log.router_stops(text)) == (["ant"], [])
    assert (log.sleeps(text), log.wakes(text)) == (1, 0)
    reasons = []
    for snapshot in seen:
        (pool,) = snapshot.pools
        assert (snapshot.state, pool.id, pool.model.value) == (State.READY, "ant", "ant")
        assert (pool.slots.value, pool.kv_unified.value) == (2, False)
        offered = [pool.reading(name) for name in LIVE if pool.reading(name) != NOT_OFFERED]
        assert not any(isinstance(reading, Known) for reading in offered), "the model has a sleep timer, and this build's pages would keep it awake"
        reasons.append(pool.slots_busy.reason)
    assert reasons[0] is Reason.WOULD_WAKE
    assert reasons[-1] is Reason.SLEEPING
    assert reasons == sorted(reasons, key=[Reason.WOULD_WAKE, Reason.SLEEPING].index), "asleep, it stays asleep"
    assert seen[0].pools[0].layouts == (Split(2, 512),)


async def test_a_loaded_model_without_a_timer_is_read_and_the_other_left_alone(build: Build, two_models: Path, tmp_path: Path):
    with build.route(two_models, tmp_path / "router.log", *FLAGS) as server:
        async with inspecting(server.url) as inspection:
            held = client.complete(server.url, 50, 60, model="ant").held_tokens
            for _ in range(POLLS):
                pool = await inspection.pool()
                assert (pool.id, pool.kv_used_tokens.value, pool.kv_reclaimable_tokens.value, pool.kv_capacity_tokens.value) == ("ant", 0, held, 1024)
            client.complete(server.url, 50, 20, model="bee")
            pool = await inspection.pool()
            assert (pool.id, pool.kv_reclaimable_tokens.value) == ("bee", 69), "nothing of the evicted model is left"
            await inspection.poll()
            text = server.log_text()
    assert (log.router_loads(text), log.router_stops(text)) == (["ant", "bee"], ["ant"]), "the evicted model was not loaded again"
