"""A real mlx_lm.server at work: what the process, its log and the operating system tell is right."""

from __future__ import annotations

import json
import re
from pathlib import Path

import psutil
import pytest

from engines.inspecting import Inspection
from engines.mlx import BYTES_PER_TOKEN, LONGEST, complete, established, said_by_python, sessions
from engines.server import Server, wait_until
from inspector.contract import LaunchView
from inspector.inspection import launch_of
from inspector.local.process import Process
from inspector.model import POOL_FIELDS, State
from inspector.reading import NOT_OFFERED, Kind, Known, Unknown
from inspector_mlx import ADAPTER
from mlx_real.conftest import Watch

pytestmark = [pytest.mark.anyio, pytest.mark.engine]

FLAGS = ("--prompt-cache-size", "4", "--decode-concurrency", "2", "--prompt-concurrency", "1", "--prefill-step-size", "64")
CLIENTS = 3


def launch(inspection: Inspection) -> LaunchView:
    process = inspection.watcher.sources.process
    assert isinstance(process, Process)
    view = launch_of(process, ADAPTER.flags, 1.0)
    assert isinstance(view, LaunchView)
    return view


async def test_each_flag_has_its_value_and_its_source(server: Server, watch: Watch) -> None:
    async with watch(server) as inspection:
        pool = await inspection.pool()
        view = launch(inspection)
    stated = {name: reading.value for name, reading in view.settings.items() if isinstance(reading, Known)}
    assert stated == {
        "model": "tiny-mlx",
        "port": server.port,
        "prompt_cache_size": 4,
        "decode_concurrency": 2,
        "prompt_concurrency": 1,
        "prefill_step_size": 64,
    }
    assert {str(reading.origin) for reading in view.settings.values() if isinstance(reading, Known)} == {f"launch:pid {server.pid}"}
    assert isinstance(pool.slots, Known)
    assert (pool.slots.value, str(pool.slots.origin)) == (2, f"launch:pid {server.pid}")
    assert pool.model_context_tokens.value == LONGEST  # type: ignore[union-attr]
    assert isinstance(pool.model, Known)
    assert (pool.model.value, pool.model.origin.kind) == ("tiny-mlx", Kind.LAUNCH)


async def test_the_version_is_the_installed_packages(server: Server, watch: Watch) -> None:
    async with watch(server) as inspection:
        snapshot = await inspection.poll()
    assert isinstance(snapshot.version, Known)
    assert snapshot.version.value == said_by_python("import importlib.metadata as m; print(m.version('mlx-lm'))")
    assert snapshot.state_detail == ""


async def test_requests_in_flight_while_clients_generate(server: Server, watch: Watch) -> None:
    async with watch(server) as inspection:
        assert (await inspection.pool()).requests_in_flight.value == 0  # type: ignore[union-attr]
        with sessions(server.url, CLIENTS, 300, 40):
            wait_until(lambda: established(server.pid, server.port) == CLIENTS, "all clients are connected")
            assert (await inspection.pool()).requests_in_flight.value == CLIENTS  # type: ignore[union-attr]
            assert established(server.pid, server.port) == CLIENTS
        wait_until(lambda: established(server.pid, server.port) == 0, "all clients are gone")
        assert (await inspection.pool()).requests_in_flight.value == 0  # type: ignore[union-attr]
        assert inspection.samples()["inspector_requests_in_flight"][0][1] == 0


async def test_retained_kv_is_what_the_log_says(server: Server, watch: Watch) -> None:
    complete(server.url, "k" * 400, 2)
    before = server.log_text().count("Prompt Cache: ")
    complete(server.url, "l" * 8, 2)
    wait_until(lambda: server.log_text().count("Prompt Cache: ") > before, "the log tells the retained cache")
    sequences, figure = re.findall(r"Prompt Cache: (\d+) sequences, ([\d.]+) GB", server.log_text())[-1]
    assert int(sequences) >= 1
    assert float(figure) * 1e9 >= 400 * BYTES_PER_TOKEN - 5e6
    async with watch(server) as inspection:
        reading = (await inspection.pool()).kv_reclaimable_bytes
    assert isinstance(reading, Known)
    assert reading.value == round(float(figure) * 1e9)
    assert reading.origin.kind is Kind.LOG


async def test_memory_is_the_processs_and_weights_are_the_files(server: Server, watch: Watch, tiny_mlx_model: Path) -> None:
    async with watch(server) as inspection:
        memory = (await inspection.poll()).memory
        headroom = inspection.samples()["inspector_headroom_ratio"]
        fields = {labels["field"] for labels, _ in inspection.samples()["inspector_field_known"]}
    content = (tiny_mlx_model / "model.safetensors").read_bytes()
    head = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    assert memory.weights_bytes.value == sum(end - begin for begin, end in (tensor["data_offsets"] for tensor in head.values()))  # type: ignore[union-attr]
    assert memory.total_bytes.value == psutil.virtual_memory().total  # type: ignore[union-attr]
    assert isinstance(memory.used_bytes, Known)
    assert memory.used_bytes.origin.path in (f"PSS of pid {server.pid}", f"RSS of pid {server.pid}")
    assert 0 < memory.used_bytes.value <= 1.2 * psutil.Process(server.pid).memory_info().rss
    assert {labels["resource"] for labels, _ in headroom} == {"memory"}
    assert {"memory_used_bytes", "memory_ceiling_bytes", "memory_total_bytes", "memory_weights_bytes"} <= fields


async def test_what_the_engine_cannot_tell_has_no_series(server: Server, watch: Watch) -> None:
    async with watch(server) as inspection:
        pool = await inspection.pool()
        samples = inspection.samples()
    for field in POOL_FIELDS.keys() - ADAPTER.offers(None):
        assert pool.reading(field) == NOT_OFFERED
        assert f"inspector_{field}" not in samples
    known = {labels["field"] for labels, _ in samples["inspector_field_known"] if labels["pool"] == "0"}
    assert known == ADAPTER.offers(None)


async def test_from_afar_only_what_http_tells_is_known(server: Server, watch: Watch) -> None:
    async with watch(server, launch="none", logs=None) as inspection:
        snapshot = await inspection.poll()
    (pool,) = snapshot.pools
    assert snapshot.state is State.READY
    assert pool.model.value == "tiny-mlx"  # type: ignore[union-attr]
    assert pool.model.origin.kind is Kind.HTTP  # type: ignore[union-attr]
    for field in ("slots", "requests_in_flight", "kv_reclaimable_bytes"):
        assert isinstance(pool.reading(field), Unknown), field
    assert {snapshot.memory.reading(name) for name in ("total_bytes", "used_bytes")} == {NOT_OFFERED}


async def test_the_access_log_shows_only_gets_of_ours(server: Server, watch: Watch) -> None:
    """The last of this file: every request that the server logged is a POST of a test's client, or one of the two routes."""
    polls = 3
    before = re.findall(r'"(GET|POST|HEAD|OPTIONS) (\S+) HTTP', server.log_text())
    async with watch(server) as inspection:
        for _ in range(polls):
            await inspection.poll()
    after = re.findall(r'"(GET|POST|HEAD|OPTIONS) (\S+) HTTP', server.log_text())
    assert after[len(before) :] == [("GET", "/health")] * polls
    assert set(after) <= {("GET", "/health"), ("GET", "/v1/models"), ("POST", "/v1/completions")}


def test_every_flag_of_the_server_is_in_the_table(server: Server) -> None:
    """By its own help; what is not in the table would make a shortened flag of another one look unique."""
    code = "import sys; sys.argv = ['mlx_lm.server', '--help']; from mlx_lm.server import main; main()"
    told = set(re.findall(r"^  (?:-h, )?(--[\w-]+)", said_by_python(code), re.MULTILINE)) - {"--help"}
    assert told == {spelling for flag in ADAPTER.flags.flags for spelling in flag.spellings} - {"--cache-limit-gb"}
