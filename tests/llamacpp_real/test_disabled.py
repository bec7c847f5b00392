"""Real servers that tell little or nothing: what is unknown says what to do about it, has no sample, and decides the exit code of `inspector check`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from engines import log
from engines.builds import Build, CurrentBuild
from engines.inspecting import Inspection, inspecting
from engines.server import Server
from inspector.model import POOL_FIELDS, State
from inspector.reading import NOT_OFFERED, Reason, Unknown

pytestmark = [pytest.mark.anyio, pytest.mark.engine]
pytest_plugins = ["engines.fixtures"]

FLAGS = {"b10434": ("-np", "4", "-c", "4096", "--no-slots"), "current": ("--slots", "4", "--context", "4096", "--no-slots")}
RIGHT, WRONG = "sk-right-key", "sk-wrong-key"

FROM_METRICS = {"requests_waiting", "prompt_tokens_total", "generation_tokens_total", "prefix_cache_hits_total", "prefix_cache_queries_total"}
FROM_EITHER = {"slots_busy", "requests_running", "kv_used_tokens", "kv_reclaimable_tokens", "kv_usage_ratio"}
FROM_LOG = {"kv_exhaustions_total", "kv_bytes_per_token", "kv_capacity_bytes"}


@pytest.fixture(params=FLAGS)
def server(request: pytest.FixtureRequest, tiny_model: Path, tmp_path: Path) -> Iterator[Server]:
    engine: Build | CurrentBuild = request.getfixturevalue(request.param)
    with engine.serve(tiny_model, tmp_path / "server.log", *FLAGS[request.param]) as running:
        yield running


def check(config: Path) -> subprocess.CompletedProcess[str]:
    """`inspector check --json` as a monitoring system runs it."""
    argv = [sys.executable, "-m", "inspector", "check", "--config", str(config), "--json"]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)


def written(folder: Path, url: str, **fields: object) -> Path:
    """A configuration of one target. Its engine is named, as for a server that is down when the inspector starts."""
    path = folder / "inspector.yaml"
    path.write_text("targets:\n  - " + json.dumps({"name": "real", "engine": "llamacpp", "url": url, **fields}) + "\n")
    return path


def pool_samples(inspection: Inspection) -> set[str]:
    """Families of /metrics that have a sample for a pool."""
    return {name for name, rows in inspection.samples().items() if any("pool" in labels for labels, _ in rows)}


async def test_without_slots_and_metrics_each_unknown_names_its_remedy(server: Server):
    """The log is followed, so that nothing is unknown for want of it."""
    async with inspecting(server.url, logs=str(server.log_path)) as inspection:
        snapshot = await inspection.poll()
        (pool,) = snapshot.pools
        unknown = {name: r for name in POOL_FIELDS if isinstance(r := pool.reading(name), Unknown) and r != NOT_OFFERED}
        assert snapshot.state is State.READY
        assert unknown.keys() == FROM_METRICS | FROM_EITHER | {"kv_bytes_per_token", "kv_capacity_bytes"}
        for name in FROM_METRICS:
            assert unknown[name].reason in (Reason.ENDPOINT_DISABLED, Reason.DERIVED_FROM_UNKNOWN)
            assert unknown[name].detail.startswith("start llama-server with --metrics"), name
        for name in FROM_EITHER:
            assert "--no-slots" in unknown[name].detail or "--metrics" in unknown[name].detail, name
        assert "--no-slots" in unknown["kv_used_tokens"].detail
        assert "-lv 4" in unknown["kv_bytes_per_token"].detail
        assert {f"inspector_{name}" for name in unknown} & inspection.samples().keys() == set()
        known = {labels["field"]: value for labels, value in inspection.samples()["inspector_field_known"]}
        assert {name for name, value in known.items() if value == 0} == unknown.keys()


async def test_without_a_log_what_only_it_tells_is_without_a_source(server: Server):
    async with inspecting(server.url) as inspection:
        pool = await inspection.pool()
        for name in FROM_LOG:
            assert pool.reading(name).reason is Reason.NO_SOURCE
            assert "`logs`" in pool.reading(name).detail


def test_a_check_that_cannot_decide_the_threshold_says_so(server: Server, tmp_path: Path):
    done = check(written(tmp_path, server.url, logs="server.log"))
    (target,) = json.loads(done.stdout)["targets"]
    assert (done.returncode, target["state"], target["verdict"]) == (3, "ready", "unknown")
    fields = target["pools"][0]["fields"]
    assert fields["kv_used_tokens"]["value"] is None
    assert fields["kv_used_tokens"]["reason"] == "endpoint_disabled"
    assert fields["kv_capacity_tokens"]["value"] == 4096


async def test_a_server_that_went_down_shows_nothing_of_what_it_was(b10434: Build, tiny_model: Path, tmp_path: Path):
    with b10434.serve(tiny_model, tmp_path / "server.log", "-np", "4", "-c", "4096", "--metrics") as server:
        async with inspecting(server.url, launch="auto", logs=str(server.log_path)) as inspection:
            assert (await inspection.poll()).state is State.READY
            assert "inspector_kv_capacity_tokens" in pool_samples(inspection)
            server.stop()
            snapshot = await inspection.poll()
            assert (snapshot.state, snapshot.pools) == (State.UNREACHABLE, ())
            assert inspection.samples()["inspector_target_up"][0][1] == 0
            assert pool_samples(inspection) == set()
    done = check(written(tmp_path, server.url, logs="server.log"))
    (target,) = json.loads(done.stdout)["targets"]
    assert (done.returncode, target["state"], target["verdict"], target["pools"]) == (2, "unreachable", "critical", [])


def test_a_wrong_key_is_an_unknown_and_stands_nowhere(b10434: Build, tiny_model: Path, tmp_path: Path):
    (tmp_path / "key").write_text(WRONG)
    (tmp_path / "right").write_text(RIGHT)
    with b10434.serve(tiny_model, tmp_path / "server.log", env={"LLAMA_API_KEY": RIGHT}) as server:
        config = written(tmp_path, server.url, api_key_file="key", logs="server.log")
        done = check(config)
        explained = subprocess.run(
            [sys.executable, "-m", "inspector", "explain", "--config", str(config), "real", "--save", str(tmp_path / "bundle.json")],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        right = check(written(tmp_path, server.url, api_key_file="right", logs="server.log"))
    (target,) = json.loads(done.stdout)["targets"]
    assert (done.returncode, target["state"], target["pools"]) == (3, "unauthorized", [])
    assert json.loads(right.stdout)["targets"][0]["state"] == "ready", "the key is sent where it is right"
    for said in (done.stdout, done.stderr, explained.stdout, explained.stderr, (tmp_path / "bundle.json").read_text(), right.stdout, right.stderr):
        assert WRONG not in said
        assert RIGHT not in said
    assert log.layout((tmp_path / "server.log").read_text()) is not None, "the server did run"
