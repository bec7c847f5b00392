"""Real servers with a sleep timer, polled every second: they fall asleep and stay so, and nothing is made up about them meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest

from engines import client, log
from engines.builds import Build, CurrentBuild
from engines.inspecting import inspecting
from engines.server import Server
from inspector.model import POOL_FIELDS, SLOT_FIELDS, Snapshot, State
from inspector.reading import NOT_OFFERED, Known, Reason

pytestmark = [pytest.mark.anyio, pytest.mark.engine]
pytest_plugins = ["engines.fixtures"]

TIMER = 3
FLAGS = {
    "b10434": ("-np", "4", "-c", "4096", "--metrics", "--sleep-idle-seconds", str(TIMER)),
    "current": ("--slots", "4", "--context", "4096", "--metrics", "--sleep", str(TIMER)),
}
LIVE_SAMPLES = {f"inspector_{name}" for name, info in POOL_FIELDS.items() if info.live}
POLLS_ASLEEP = 5


@dataclass
class Night:
    """Polls a second apart, the exposition after each, and the server's log at the end."""

    polls: list[tuple[Snapshot, Mapping[str, Any]]]
    log: str = ""
    sleeping: bool = False

    def of(self, state: State) -> list[tuple[Snapshot, Mapping[str, Any]]]:
        return [poll for poll in self.polls if poll[0].state is state]


async def watch(server: Server, night: Night) -> None:
    """Poll every second until the server has slept for some polls. The process is not looked at: nothing but HTTP is known."""
    async with inspecting(server.url) as inspection:
        while len(night.of(State.SLEEPING)) < POLLS_ASLEEP and len(night.polls) < 5 * TIMER:
            night.polls.append((await inspection.poll(), inspection.samples()))
            await anyio.sleep(1)


@pytest.fixture(scope="module")
def nights(tiny_model: Path, b10434: Build, current: CurrentBuild, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Night]:
    """Both builds at the same time."""
    folder = tmp_path_factory.mktemp("nights")
    seen = {build: Night([]) for build in FLAGS}

    async def watch_all(servers: Mapping[str, Server]) -> None:
        async with anyio.create_task_group() as tasks:
            for build, server in servers.items():
                tasks.start_soon(watch, server, seen[build])

    with (
        b10434.serve(tiny_model, folder / "b10434.log", *FLAGS["b10434"]) as old,
        current.serve(tiny_model, folder / "current.log", *FLAGS["current"]) as new,
    ):
        servers = {"b10434": old, "current": new}
        for server in servers.values():
            client.complete(server.url, 100, 50)
        anyio.run(watch_all, servers)
        for build, server in servers.items():
            seen[build].log, seen[build].sleeping = server.log_text(), client.sleeping(server.url)
    return seen


@pytest.fixture(params=FLAGS)
def night(request: pytest.FixtureRequest, nights: Mapping[str, Night]) -> Night:
    return nights[request.param]


def test_it_falls_asleep_and_stays_asleep(night: Night):
    assert len(night.of(State.SLEEPING)) == POLLS_ASLEEP
    assert (log.sleeps(night.log), log.wakes(night.log), log.loads(night.log)) == (1, 0, 1)
    assert night.sleeping


def test_asleep_its_live_facts_are_unknown_and_its_static_ones_hold(night: Night):
    for snapshot, _ in night.of(State.SLEEPING):
        (pool,) = snapshot.pools
        offered = {name: pool.reading(name) for name in POOL_FIELDS if pool.reading(name) != NOT_OFFERED}
        assert {name for name, reading in offered.items() if POOL_FIELDS[name].live and reading.reason is not Reason.SLEEPING} == set()
        assert (pool.slots.value, pool.context_limit_tokens.value) == (4, 1024)
        assert not any(isinstance(getattr(slot, name), Known) for slot in pool.slots_detail for name, info in SLOT_FIELDS.items() if info.live)


def test_asleep_it_has_no_live_sample(night: Night):
    for _, samples in night.of(State.SLEEPING):
        assert LIVE_SAMPLES & samples.keys() == set()
        assert samples["inspector_target_up"][0][1] == 1
        assert {labels["state"]: value for labels, value in samples["inspector_target_state"]}["sleeping"] == 1
        assert "inspector_field_known" not in samples
        assert samples["inspector_slots"][0][1] == 4
        assert "inspector_headroom_ratio" not in samples


def test_awake_and_idle_the_current_build_shows_a_measured_zero(nights: Mapping[str, Night]):
    awake = nights["current"].of(State.READY)
    assert awake
    for snapshot, samples in awake:
        (pool,) = snapshot.pools
        assert (pool.slots_busy.value, str(pool.slots_busy.origin)) == (0, "http:/metrics")
        assert pool.kv_used_tokens.value == 0
        assert pool.kv_reclaimable_tokens.reason is Reason.WOULD_WAKE
        assert samples["inspector_slots_busy"][0][1] == 0


def test_awake_and_idle_the_older_build_is_not_asked_and_says_what_to_do(nights: Mapping[str, Night]):
    awake = nights["b10434"].of(State.READY)
    assert awake
    for snapshot, samples in awake:
        (pool,) = snapshot.pools
        for name in ("slots_busy", "requests_running", "kv_used_tokens", "kv_reclaimable_tokens", "prompt_tokens_total"):
            assert pool.reading(name).reason is Reason.WOULD_WAKE
            assert "may_wake: true" in pool.reading(name).detail
        assert "b10566" in pool.requests_waiting.detail
        assert LIVE_SAMPLES & samples.keys() == {"inspector_kv_exhaustions_total"} & samples.keys()


async def test_a_command_line_without_a_timer_lets_an_idle_server_be_read(tiny_model: Path, b10434: Build, tmp_path: Path):
    with b10434.serve(tiny_model, tmp_path / "server.log", "-np", "4", "-c", "4096", "--metrics") as server:
        done = client.complete(server.url, 100, 50)
        async with inspecting(server.url, launch="auto") as inspection:
            pool = await inspection.pool()
        unknown = {name for name in POOL_FIELDS if not isinstance(pool.reading(name), Known) and pool.reading(name) != NOT_OFFERED}
        assert unknown == {"kv_exhaustions_total", "kv_bytes_per_token", "kv_capacity_bytes"}, "those are for the log to tell"
        assert (pool.slots_busy.value, pool.kv_used_tokens.value, pool.kv_reclaimable_tokens.value) == (0, 0, done.held_tokens)
