"""Real servers that are started as a script, a unit or a Compose file says: their layout and cache types are known from that file alone, and from the running
process's command line alone; where there are both and they differ, the process is believed and the drift shown. The truth is what the server logs of its
cells, which the inspector is not given unless a test says so."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from engines import log
from engines.builds import Build
from engines.gguf_models import attention
from engines.gguf_models import write as write_model
from engines.inspecting import Inspection, inspecting
from engines.proxy import RecordingProxy
from engines.server import Server
from inspector.contract import LaunchView
from inspector.inspection import launch_of
from inspector.layout import Layout, Shared, Split
from inspector.local.process import Process
from inspector.model import Memory, Snapshot, State
from inspector.reading import Kind, Known, Origin, Unknown
from inspector.report import target_report
from inspector_llamacpp import ADAPTER

pytestmark = [pytest.mark.anyio, pytest.mark.engine]
pytest_plugins = ["engines.fixtures"]

SHARED = ("-c", "2048", "-np", "4", "--kv-unified", "-ctk", "q8_0", "--metrics")
SPLIT = ("-c", "1024", "-np", "2", "--no-kv-unified", "-ctk", "q4_0", "--metrics")

CELLS = re.compile(r"llama_kv_cache: size = .*\(\s*(\d+) cells,\s+\d+ layers,\s+\d+/(\d+) seqs\), K \((\w+)\)")
"""Cells of one stream, streams, the type of the keys; told at the log's level 4."""


@pytest.fixture(scope="module")
def wide_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Heads of 32 values: a quantized cache takes no smaller ones. It cannot generate."""
    pytest.importorskip("gguf")
    return write_model(attention("llama", layers=1, heads=2, kv_heads=2, head=32), tmp_path_factory.mktemp("model") / "wide.gguf")


def script(command: Sequence[str]) -> str:
    first, *others = map(shlex.quote, command)
    return "#!/bin/sh\nset -eu\nexec " + " \\\n  ".join([first, " ".join(others)]) + "\n"


def unit(command: Sequence[str]) -> str:
    return f"[Unit]\nDescription=Chat\n\n[Service]\nRestart=on-failure\nExecStart={' '.join(command)}\n"


def compose(command: Sequence[str]) -> str:
    service = {"image": "ghcr.io/ggml-org/llama.cpp:server", "command": list(command[1:])}
    return yaml.safe_dump({"services": {"chat": service}})


def arguments_of_script(text: str) -> list[str]:
    return shlex.split(text.partition("exec ")[2].replace("\\\n", ""))[1:]


def arguments_of_unit(text: str) -> list[str]:
    (line,) = (line for line in text.splitlines() if line.startswith("ExecStart="))
    return line.partition("=")[2].split()[1:]


def arguments_of_compose(text: str) -> list[str]:
    return [str(word) for word in yaml.safe_load(text)["services"]["chat"]["command"]]


KINDS: Mapping[str, tuple[Callable[[Sequence[str]], str], Callable[[str], list[str]]]] = {
    "start.sh": (script, arguments_of_script),
    "chat.service": (unit, arguments_of_unit),
    "compose.yaml": (compose, arguments_of_compose),
}
"""By file name: how a command is written into it, and how the test takes the arguments out again to start the real server."""


def write(path: Path, model: Path, flags: Sequence[str]) -> None:
    path.write_text(KINDS[path.name][0](["/usr/bin/llama-server", "-m", str(model), *flags]))


def start(build: Build, path: Path, folder: Path, port: int = 0) -> Server:
    """The real server, with the arguments that the file states."""
    arguments = KINDS[path.name][1](path.read_text())
    return build.run(*arguments, "-lv", "4", log=folder / "server.log", port=port)


def truth(server: Server) -> tuple[Layout, str]:
    """The layout and the type of the cached keys, in the server's own words."""
    text = server.log_text()
    told = log.layout(text)
    assert told is not None
    cells, streams, keys = CELLS.findall(text)[-1]
    if not told.unified:
        assert int(streams) == told.slots
        return Split(told.slots, told.slot_tokens), keys
    assert int(streams) == 1
    return Shared(told.slots, int(cells), told.slot_tokens), keys


def tokens(layout: Layout) -> int:
    return layout.pool_tokens if isinstance(layout, Shared) else layout.slots * layout.slot_tokens


def is_exact(snapshot: Snapshot, layout: Layout, path: str | None = None) -> None:
    """The one true layout, and a launch setting that told it; with `path`, that of this file."""
    assert snapshot.state is State.READY
    assert snapshot.drift == ()
    (pool,) = snapshot.pools
    assert pool.layouts == (layout,)
    assert isinstance(pool.kv_unified, Known)
    assert pool.kv_unified.value is isinstance(layout, Shared)
    assert pool.kv_unified.origin.kind is Kind.LAUNCH
    assert path is None or pool.kv_unified.origin.path == path
    assert isinstance(pool.kv_capacity_tokens, Known)
    assert pool.kv_capacity_tokens.value == tokens(layout)


def settings_of(inspection: Inspection, snapshot: Snapshot) -> dict[str, object]:
    """The launch settings that the inspector read: of the process where one was looked at, otherwise of the file."""
    sources = inspection.watcher.sources
    process = sources.process
    view = launch_of(process, ADAPTER.flags, snapshot.observed_at) if isinstance(process, Process) else sources.launch_file(ADAPTER.flags)
    assert isinstance(view, LaunchView), view
    assert view.live is isinstance(process, Process)
    return {name: reading.value for name, reading in view.settings.items() if isinstance(reading, Known)}


def differing(snapshot: Snapshot) -> set[tuple[str, str, str]]:
    """Field or setting, who is believed, who is not."""
    return {(drift.field, drift.used, drift.other) for drift in snapshot.drift}


async def reported_drift(inspection: Inspection) -> list[dict[str, str]]:
    """What JSON says after a poll."""
    await inspection.poll()
    (entry,) = inspection.board.entries()
    drift: list[dict[str, str]] = target_report(entry)["drift"]
    return drift


def measured(snapshot: Snapshot) -> Origin:
    """Where the memory in use comes from."""
    assert isinstance(snapshot.memory.used_bytes, Known)
    return snapshot.memory.used_bytes.origin


@pytest.mark.parametrize("name", KINDS)
async def test_the_file_alone_and_the_command_line_alone_and_both_tell_layout_and_cache_types_also_after_a_restart(
    name: str, b10434: Build, wide_model: Path, tmp_path: Path
) -> None:
    """The file is alone where something else listens on the target's port and passes on what is sent there."""
    path, port, seen = tmp_path / name, 0, []
    async with AsyncExitStack() as stack:
        watching: dict[str, Inspection] = {}
        for generation, flags in enumerate((SHARED, SPLIT), start=1):
            write(path, wide_model, flags)
            with start(b10434, path, tmp_path, port) as server:
                port = server.port
                layout, keys = truth(server)
                if not watching:
                    forwarding = await stack.enter_async_context(RecordingProxy.beside(server.url))
                    watching = {
                        "file": await stack.enter_async_context(inspecting(forwarding.url, launch={"file": str(path)})),
                        "process": await stack.enter_async_context(inspecting(server.url, launch="auto")),
                        "both": await stack.enter_async_context(inspecting(server.url, launch={"file": str(path)})),
                    }
                for source, inspection in watching.items():
                    snapshot = await inspection.poll()
                    is_exact(snapshot, layout, name if source == "file" else f"pid {server.pid}")
                    told = settings_of(inspection, snapshot)
                    assert (told["cache_type_k"], told["parallel"], told["ctx_size"]) == (keys, layout.slots, tokens(layout))
                    assert snapshot.generation == generation, source
                    assert "inspector_drift" not in inspection.samples()
                    if source == "file":
                        assert snapshot.memory == Memory(), "what forwards the port has other memory"
                    else:
                        assert str(server.pid) in measured(snapshot).path
                assert isinstance(watching["file"].watcher.sources.process, Unknown), "the file is all there is"
                assert isinstance(watching["process"].watcher.sources.launch_file(ADAPTER.flags), Unknown), "the command line is all there is"
                seen.append((layout, keys))
        for inspection in watching.values():
            gone = await inspection.poll()
            assert (gone.state, gone.pools) == (State.UNREACHABLE, ())
            assert "inspector_kv_capacity_tokens" not in inspection.samples()
    assert seen == [(Shared(4, 2048, 2048), "q8_0"), (Split(2, 512), "q4_0")]


DRIFTS: Mapping[str, tuple[Sequence[str], set[tuple[str, str]]]] = {
    "a split cache of another size": (
        SPLIT,
        {
            ("slots", "http"),
            ("context_limit_tokens", "http"),
            ("parallel", "launch"),
            ("ctx_size", "launch"),
            ("kv_unified", "launch"),
            ("cache_type_k", "launch"),
        },
    ),
    "four slots of a quarter each": (("-c", "2048", "-np", "4", "-ctk", "q8_0"), {("context_limit_tokens", "http")}),
    "four slots of the same context each": (("-c", "8192", "-np", "4", "-ctk", "q8_0"), {("kv_unified", "launch"), ("ctx_size", "launch")}),
    "a larger pool": (("-c", "4096", *SHARED[2:]), {("context_limit_tokens", "http"), ("ctx_size", "launch")}),
    "a smaller pool": (("-c", "1024", *SHARED[2:]), {("context_limit_tokens", "http"), ("ctx_size", "launch")}),
    "other slots": (("-c", "2048", "-np", "3", *SHARED[4:]), {("slots", "http"), ("parallel", "launch")}),
    "keys of another type": ((*SHARED, "-ctk", "q4_0"), {("cache_type_k", "launch")}),
    "values of a type that was not there": ((*SHARED, "-ctv", "q8_0"), {("cache_type_v", "launch")}),
    "keys without a type": (("-c", "2048", "-np", "4", "--kv-unified"), {("cache_type_k", "launch")}),
}
"""What a file states while the server runs with SHARED: the fields and settings that differ, and who is believed. A larger one may not be capped: the model
was trained on more."""

SAME: Mapping[str, Sequence[str]] = {
    "the same": SHARED,
    "in other words": ("--ctx-size=2048", "--parallel", "4", "-kvu", "--cache-type-k", "q8_0"),
    "with the default written out": (*SHARED, "-ctv", "f16"),
}


@pytest.mark.parametrize("name", KINDS)
async def test_a_file_that_states_other_flags_than_the_process_runs_with_is_drift_and_the_process_is_believed(
    name: str, b10434: Build, wide_model: Path, tmp_path: Path
) -> None:
    path = tmp_path / name
    write(path, wide_model, SHARED)
    with start(b10434, path, tmp_path) as server:
        layout, _ = truth(server)
        async with inspecting(server.url, launch={"file": str(path)}) as inspection:
            for what, (stated, expected) in DRIFTS.items():
                write(path, wide_model, stated)
                snapshot = await inspection.poll()
                assert differing(snapshot) == {(field, used, "launch file") for field, used in expected}, what
                for drift in snapshot.drift:
                    assert path.name in drift.detail
                    assert str(tmp_path) not in drift.detail
                    assert drift.used == "http" or f"pid {server.pid}" in drift.detail
                assert {labels["field"] for labels, _ in inspection.samples()["inspector_drift"]} == {field for field, _ in expected}
                is_exact(replace(snapshot, drift=()), layout, f"pid {server.pid}")
            for what, stated in SAME.items():
                write(path, wide_model, stated)
                assert (await inspection.poll()).drift == (), what
                assert "inspector_drift" not in inspection.samples(), what


async def test_drift_is_gone_after_a_restart_with_the_flags_of_the_file(b10434: Build, wide_model: Path, tmp_path: Path) -> None:
    path = tmp_path / "chat.service"
    write(path, wide_model, SHARED)
    with start(b10434, path, tmp_path) as server:
        async with inspecting(server.url, launch={"file": str(path)}) as inspection:
            assert (await inspection.poll()).drift == ()
            write(path, wide_model, SPLIT)
            assert {row["field"] for row in await reported_drift(inspection)} == {field for field, _ in DRIFTS["a split cache of another size"][1]}
            server.stop()
            with start(b10434, path, tmp_path, server.port) as restarted:
                is_exact(await inspection.poll(), Split(2, 512), f"pid {restarted.pid}")
                assert await reported_drift(inspection) == []


async def test_without_log_and_process_a_file_of_other_flags_is_contradicted_by_http_and_leaves_no_layout_sure(
    b10434: Build, wide_model: Path, tmp_path: Path
) -> None:
    path = tmp_path / "start.sh"
    write(path, wide_model, SHARED)
    with start(b10434, path, tmp_path) as server:
        layout, _ = truth(server)
        async with RecordingProxy.beside(server.url) as forwarding, inspecting(forwarding.url, launch={"file": str(path)}) as inspection:
            for what in ("a split cache of another size", "a larger pool", "a smaller pool"):
                stated, expected = DRIFTS[what]
                write(path, wide_model, stated)
                snapshot = await inspection.poll()
                (pool,) = snapshot.pools
                assert differing(snapshot) == {(field, used, "launch file") for field, used in expected if used == "http"}, what
                assert isinstance(pool.kv_unified, Unknown)
                assert isinstance(pool.kv_capacity_tokens, Unknown)
                assert layout in pool.layouts
                assert len(pool.layouts) > 1


async def test_the_log_comes_before_the_command_line_and_that_before_the_file(b10434: Build, wide_model: Path, tmp_path: Path) -> None:
    path = tmp_path / "compose.yaml"
    write(path, wide_model, SHARED)
    with start(b10434, path, tmp_path) as server:
        write(path, wide_model, ("-c", "8192", "-np", "4"))
        for sources, by in (({"logs": str(server.log_path)}, "log"), ({}, "launch")):
            async with inspecting(server.url, launch={"file": str(path)}, **sources) as inspection:
                snapshot = await inspection.poll()
                assert ("kv_unified", by, "launch file") in differing(snapshot)
                assert snapshot.pools[0].layouts == (Shared(4, 2048, 2048),)


async def test_a_named_command_line_differs_from_the_one_that_runs(b10434: Build, wide_model: Path, tmp_path: Path) -> None:
    path = tmp_path / "start.sh"
    write(path, wide_model, SHARED)
    with start(b10434, path, tmp_path) as server:
        for stated, expected in ((SHARED, set()), (DRIFTS["other slots"][0], DRIFTS["other slots"][1])):
            async with inspecting(server.url, launch={"argv": ["llama-server", *stated]}) as inspection:
                snapshot = await inspection.poll()
                assert {(field, used) for field, used, _ in differing(snapshot)} == expected
                assert snapshot.pools[0].layouts == (Shared(4, 2048, 2048),)
                assert str(server.pid) in measured(snapshot).path


async def test_launch_none_looks_at_nothing(b10434: Build, wide_model: Path, tmp_path: Path) -> None:
    path = tmp_path / "start.sh"
    write(path, wide_model, SHARED)
    with start(b10434, path, tmp_path) as server:
        async with inspecting(server.url, launch="none") as inspection:
            snapshot = await inspection.poll()
            assert isinstance(snapshot.pools[0].kv_unified, Unknown)
            assert snapshot.memory == Memory()
