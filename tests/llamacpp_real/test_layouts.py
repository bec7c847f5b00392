"""How real servers lay out their KV cache: told by HTTP alone it is bounded and the truth is within; with the log or the command line it is exact.

The truth is what a server with the same flags says of its cells at its most talkative; the one that is inspected runs as usual. All servers of a build
run one after the other on one port, so that each of them is also a restart with other flags.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from engines import client, log
from engines.builds import Build, CurrentBuild
from engines.inspecting import Inspection, inspecting
from inspector.layout import Layout, Shared, Split
from inspector.model import Pool, State
from inspector.reading import Known, Reason

pytestmark = [pytest.mark.anyio, pytest.mark.engine]
pytest_plugins = ["engines.fixtures"]

CELLS = re.compile(r"llama_kv_cache: size = .*\(\s*(\d+) cells,\s+\d+ layers,\s+(\d+)/(\d+) seqs\)")
"""Cells of one stream, sequences, streams."""

FLAGS = {
    "split": ("-np", "4", "-c", "2048"),
    "shared": ("-np", "4", "-c", "2048", "--kv-unified"),
    "np left out": ("-c", "2048"),
    "nothing given": (),
    "not divisible": ("-np", "3", "-c", "1000"),
    "split above the trained context": ("-np", "4", "-c", "65536"),
    "shared above the trained context": ("-np", "4", "-c", "16384", "--kv-unified"),
    "one slot above the trained context": ("-np", "1", "-c", "16384"),
    "one slot": ("-np", "1", "-c", "2048"),
}
CURRENT = {
    "split": ("--slots", "4", "--context", "2048"),
    "shared per slot": ("--slots", "4", "--context", "0", "--unified-per-slot", "512"),
    "np left out": ("--slots", "-1", "--context", "2048"),
    "shared, larger than its slots' caps": ("--slots", "4", "--context", "4096", "--unified-per-slot", "512"),
    "shared above the trained context": ("--slots", "4", "--context", "16384", "--unified"),
    "one slot": ("--slots", "1", "--context", "2048"),
}
AS_ARGV = {
    "split": ["-np", "4", "-c", "2048"],
    "shared per slot": ["-np", "4", "-kvu", "--kv-unified-per-slot", "512"],
    "shared, larger than its slots' caps": ["-np", "4", "-c", "4096", "-kvu", "--kv-unified-per-slot", "512"],
    "shared above the trained context": ["-np", "4", "-c", "16384", "-kvu"],
}
"""What an operator would write under `launch: {argv: …}` for these settings."""


@dataclass(frozen=True)
class Truth:
    """By the server's own words: the one layout, and the tokens that requests can hold."""

    layout: Layout
    usable: int
    guaranteed: int


def truth(engine: Build | CurrentBuild, model: Path, folder: Path, *flags: str) -> Truth:
    talkative = ("-lv", "4") if isinstance(engine, Build) else ("--verbosity", "4")
    with engine.serve(model, folder / "talkative.log", *flags, *talkative) as server:
        text = server.log_text()
    told = log.layout(text)
    (cells, sequences, streams) = map(int, CELLS.findall(text)[-1])
    assert told is not None
    assert (told.slots, told.unified) == (sequences, sequences > 1 and streams == 1)
    usable = min(cells, told.slot_tokens * told.slots) if told.unified else told.slot_tokens * told.slots
    if not told.unified:
        return Truth(Split(told.slots, told.slot_tokens), usable, told.slot_tokens)
    return Truth(Shared(told.slots, cells, told.slot_tokens), usable, min(told.slot_tokens, cells // told.slots))


def is_within(pool: Pool, true: Truth) -> None:
    """Bounds that hold the truth, or the truth itself."""
    for name, value in (("kv_capacity_tokens", true.usable), ("context_guaranteed_tokens", true.guaranteed)):
        reading = pool.reading(name)
        if isinstance(reading, Known):
            assert reading.value == value, name
        else:
            assert reading.reason is Reason.AMBIGUOUS
            low, high = reading.bounds
            assert low <= value <= high, name
            assert low < high, name


def is_exact(pool: Pool, true: Truth) -> None:
    assert pool.layouts == (true.layout,)
    assert pool.kv_capacity_tokens.value == true.usable
    assert pool.context_guaranteed_tokens.value == true.guaranteed
    if true.layout.slots > 1:
        assert pool.kv_unified.value is isinstance(true.layout, Shared)


async def follow_through(
    engine: Build | CurrentBuild, layouts: dict[str, tuple[str, ...]], sources: dict[str, dict[str, Any]], model: Path, folder: Path
) -> AsyncIterator[tuple[str, Truth, dict[str, Pool]]]:
    """For each layout its name, the truth, and the pool that each source shows; one server after the other on one port, watched throughout.

    Each poll after a restart must belong to a generation of its own."""
    path, port = folder / "server.log", 0
    generations = dict.fromkeys(sources, 0)
    async with AsyncExitStack() as stack:
        watching: dict[str, Inspection] = {}
        for name, flags in layouts.items():
            true = truth(engine, model, folder, *flags)
            with engine.serve(model, path, *flags, "--metrics", port=port) as server:
                port = server.port
                for source, fields in sources.items():
                    if source not in watching:
                        watching[source] = await stack.enter_async_context(inspecting(server.url, **fields))
                pools = {}
                for source, inspection in watching.items():
                    snapshot = await inspection.poll()
                    assert snapshot.state is State.READY
                    assert snapshot.generation == generations[source] + 1, (name, source)
                    assert snapshot.drift == ()
                    generations[source] = snapshot.generation
                    (pools[source],) = snapshot.pools
                client.complete(server.url, 40, 60)
                for source, inspection in watching.items():
                    assert (await inspection.poll()).generation == generations[source], "work is no restart"
                yield name, true, pools
            # What HTTP alone tells of a restart is that nobody answered meanwhile.
            assert (await watching["http"].poll()).state is State.UNREACHABLE


async def test_each_layout_by_http_by_the_log_and_by_the_command_line(b10434: Build, tiny_model: Path, tmp_path: Path):
    sources = {"http": {}, "log": {"logs": str(tmp_path / "server.log")}, "launch": {"launch": "auto"}}
    seen = []
    async for name, true, pools in follow_through(b10434, FLAGS, sources, tiny_model, tmp_path):
        is_within(pools["http"], true)
        is_exact(pools["log"], true)
        is_exact(pools["launch"], true)
        assert len(pools["http"].layouts) == 1 or true.layout.slots > 1
        seen.append(name)
    assert seen == list(FLAGS)


async def test_each_layout_of_the_current_build(current: CurrentBuild, tiny_model: Path, tmp_path: Path):
    sources = {"http": {}, "log": {"logs": str(tmp_path / "server.log")}}
    seen = []
    async for name, true, pools in follow_through(current, CURRENT, sources, tiny_model, tmp_path):
        is_within(pools["http"], true)
        is_exact(pools["log"], true)
        seen.append(name)
    assert seen == list(CURRENT)


@pytest.mark.parametrize("layout", AS_ARGV)
async def test_the_command_line_that_the_operator_names_settles_the_current_build(layout: str, current: CurrentBuild, tiny_model: Path, tmp_path: Path):
    true = truth(current, tiny_model, tmp_path, *CURRENT[layout])
    with current.serve(tiny_model, tmp_path / "server.log", *CURRENT[layout], "--metrics") as server:
        async with inspecting(server.url, launch={"argv": ["llama-server", *AS_ARGV[layout]]}) as inspection:
            is_exact(await inspection.pool(), true)


async def test_a_restart_between_two_polls_is_noticed_by_the_log_and_by_the_process(b10434: Build, tiny_model: Path, tmp_path: Path):
    """Nobody saw the port refuse: the log's new beginning, or the process's other start, is the sign."""
    path = tmp_path / "server.log"
    sources = {"log": {"logs": str(path)}, "launch": {"launch": "auto"}}
    with b10434.serve(tiny_model, path, *FLAGS["split"]) as server:
        async with AsyncExitStack() as stack:
            watching = {name: await stack.enter_async_context(inspecting(server.url, **fields)) for name, fields in sources.items()}
            for inspection in watching.values():
                assert (await inspection.pool()).layouts == (Split(4, 512),)
            server.stop()
            with b10434.serve(tiny_model, path, *FLAGS["shared above the trained context"], port=server.port):
                for name, inspection in watching.items():
                    snapshot = await inspection.poll()
                    assert snapshot.generation == 2, name
                    assert snapshot.pools[0].layouts == (Shared(4, 16384, 8192),), name


async def test_use_never_shrinks_the_bounds_below_the_truth(b10434: Build, tiny_model: Path, tmp_path: Path):
    """What slots were seen to hold at once rules out pools that are smaller, and no others."""
    true = truth(b10434, tiny_model, tmp_path, *FLAGS["split"])
    with b10434.serve(tiny_model, tmp_path / "server.log", *FLAGS["split"]) as server:
        async with inspecting(server.url, may_wake=True) as inspection:
            before = (await inspection.pool()).kv_capacity_tokens.bounds
            for seed in range(3):
                client.complete(server.url, 100, 300, seed=seed, id_slot=seed)
            pool = await inspection.pool()
            assert pool.kv_reclaimable_tokens.value == 3 * 399
            assert before == (512, 2048)
            assert pool.kv_capacity_tokens.bounds == (3 * 399, 2048)
            is_within(pool, true)
