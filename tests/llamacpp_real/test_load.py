"""Four long generations on a real server: KV use is the truth of that moment, and what is left afterwards is what the log says."""

from __future__ import annotations

from pathlib import Path

import pytest

from engines import client, log
from engines.builds import Build, CurrentBuild
from engines.inspecting import inspecting
from engines.server import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.engine]
pytest_plugins = ["engines.fixtures"]

SPLIT = {"b10434": ("-np", "4", "-c", "8192", "--metrics"), "current": ("--slots", "4", "--context", "8192", "--metrics")}
# The command line proves that b10434 never sleeps. The current build runs in a Python process, where only the operator can say so.
MAY_BE_READ = {"b10434": {"launch": "auto"}, "current": {"may_wake": True}}


@pytest.mark.parametrize("build", SPLIT)
async def test_use_under_load_and_rest_afterwards_are_the_servers_own(build: str, request: pytest.FixtureRequest, tiny_model: Path, tmp_path: Path):
    engine: Build | CurrentBuild = request.getfixturevalue(build)
    with engine.serve(tiny_model, tmp_path / "server.log", *SPLIT[build]) as server:
        async with inspecting(server.url, **MAY_BE_READ[build]) as inspection:
            await inspection.poll()  # the first one also looks for the server's process
            seen: list[int] = []
            with client.sessions(server.url, [(60, 900)] * 4):
                wait_until(lambda: client.busy(server.url) == 4, "four slots are busy")
                while True:
                    before, pool, after = client.raw_slots(server.url), await inspection.pool(), client.raw_slots(server.url)
                    if not all(slot["is_processing"] for slot in (*before, *after)):
                        break
                    assert client.held(before, busy=True) <= pool.kv_used_tokens.value <= client.held(after, busy=True)
                    assert (pool.slots_busy.value, pool.kv_reclaimable_tokens.value) == (4, 0)
                    seen.append(pool.kv_used_tokens.value)
            assert len(set(seen)) >= 5
            releases = log.wait_for_releases(server, 4)
            pool = await inspection.pool()
            assert len(releases) == 4
            assert pool.kv_reclaimable_tokens.value == sum(release.tokens for release in releases)
            assert (pool.kv_used_tokens.value, pool.slots_busy.value) == (0, 0)


async def test_where_only_http_is_known_a_server_at_work_is_still_read(current: CurrentBuild, tiny_model: Path, tmp_path: Path):
    """A server that works is awake and stays so: then /slots may be read, whether it has a sleep timer or not."""
    with current.serve(tiny_model, tmp_path / "server.log", *SPLIT["current"], "--sleep", "600") as server:
        async with inspecting(server.url) as inspection:
            await inspection.poll()
            with client.sessions(server.url, [(60, 1900)]):
                wait_until(lambda: client.busy(server.url) == 1, "a slot is busy")
                before, pool, after = client.raw_slots(server.url), await inspection.pool(), client.raw_slots(server.url)
            assert client.held(before, busy=True) <= pool.kv_used_tokens.value <= client.held(after, busy=True)
