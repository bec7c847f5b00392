"""The session budget against real servers: what is guaranteed runs to its end at once, and one more than what is possible does not fit.

Prompts that are sent as one list begin in one batch and end in one step, so that a full cache is full to the last cell.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from engines import client, log
from engines.builds import Build, CurrentBuild
from engines.inspecting import Inspection, inspecting
from engines.server import Server
from inspector.budget import Budget, Shape, budget
from inspector.contract import PlanSettings
from inspector.layout import Span
from inspector.model import Pool
from inspector.planning.frontier import Planner, Point
from inspector.planning.model_files import read_gguf, trained_context
from inspector.registry import load_adapters

pytestmark = [pytest.mark.anyio, pytest.mark.engine]
pytest_plugins = ["engines.fixtures"]

KV_SIZE = re.compile(r"llama_kv_cache: size = +([0-9.]+) MiB")
RUNNING = Shape(200, 1100)
HALF_WAY = 600
"""Tokens that the running session holds, at least, when the others are sent."""


@pytest.fixture(params=["b10434", "current"])
def build(request: pytest.FixtureRequest) -> Build | CurrentBuild:
    return request.getfixturevalue(request.param)


def flags(build: Build | CurrentBuild, slots: int, context: int, *, shared: bool) -> tuple[str, ...]:
    if isinstance(build, Build):
        return ("-np", str(slots), "-c", str(context), "--metrics", *(("--kv-unified",) if shared else ()))
    return ("--slots", str(slots), "--context", str(context), "--metrics", *(("--unified",) if shared else ()))


def outcomes(url: str, count: int, shape: Shape, seed: int) -> list[tuple[int, int | None, bool | None]]:
    """Of so many sessions sent as one request: status, generated tokens, and whether the server calls the text cut."""
    prompts = [client.prompt_ids(shape.prompt, seed + number) for number in range(count)]
    done = client.complete(url, prompts, shape.output)  # type: ignore[arg-type]  # a list of prompts, each of token ids
    bodies: Any = done.body if isinstance(done.body, list) else [done.body] * (count if done.status != 200 else 1)
    return [(done.status, body.get("tokens_predicted"), body.get("truncated")) for body in bodies]


@contextmanager
def together(url: str, count: int, shape: Shape, seed: int = 0) -> Iterator[Future[list[tuple[int, int | None, bool | None]]]]:
    with ThreadPoolExecutor(max_workers=1) as pool:
        yield pool.submit(outcomes, url, count, shape, seed)


def whole(count: int, shape: Shape) -> list[tuple[int, int, bool]]:
    return [(200, shape.output, False)] * count


def killed(count: int) -> list[tuple[int, None, None]]:
    return [(500, None, None)] * count


async def empty_budget(inspection: Inspection, shape: Shape) -> Budget:
    made = budget(await inspection.pool(), shape)
    assert made.headroom == made.capacity, "nothing runs"
    return made


async def half_way(inspection: Inspection, sessions: int, running: Future[Any]) -> Pool:
    """The pool of a poll in which all running sessions are half-way, and their ends are known."""
    seen = []
    while not running.done():
        pool = await inspection.pool()
        busy = [slot for slot in pool.slots_detail if slot.busy.value]
        seen.append([slot.used_tokens.value for slot in busy])
        if len(busy) == sessions and all(tokens >= HALF_WAY for tokens in seen[-1]):
            return pool
        await anyio.sleep(0.02)
    raise AssertionError(f"no poll found {sessions} sessions half-way: {seen}")


async def sees_one_wait(inspection: Inspection, request: Future[Any]) -> bool:
    while not request.done():
        if (await inspection.pool()).requests_waiting.value == 1:
            return True
    return False


def sources(server: Server, *, known: bool) -> dict[str, Any]:
    """With the log the layout is known; by HTTP alone it is not. What wakes a sleeper may be read in both."""
    return {"may_wake": True, **({"logs": str(server.log_path)} if known else {})}


# --- The boundary to the token -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["b10068", "b10434", "current"])
@pytest.mark.parametrize("prompt", [100, 400])
async def test_a_shared_pool_may_be_full_to_the_last_cell_and_one_token_more_kills_all(
    name: str, prompt: int, request: pytest.FixtureRequest, tiny_model: Path, tmp_path: Path
):
    build = request.getfixturevalue(name)
    full, above = Shape(prompt, 513 - prompt), Shape(prompt, 514 - prompt)
    assert full.stored * 4 == 2048
    with build.serve(tiny_model, tmp_path / "server.log", *flags(build, 4, 2048, shared=True)) as server:
        async with inspecting(server.url, **sources(server, known=True)) as inspection:
            assert (await empty_budget(inspection, full)).capacity == Span(4, 4)
            assert outcomes(server.url, 4, full, 0) == whole(4, full)
            assert outcomes(server.url, 4, full, 9) == whole(4, full), "cells that idle slots keep are in nobody's way"
            made = await empty_budget(inspection, above)
            assert (made.capacity, made.limited_by) == (Span(3, 3), "kv")
            assert outcomes(server.url, 4, above, 20) == killed(4)
            server.wait_log("Context size has been exceeded. off")
            assert log.exhaustions(server.log_text()) == 1
            assert outcomes(server.url, 3, above, 30) == whole(3, above)


async def test_a_slot_gives_all_tokens_up_to_its_context_and_cuts_the_next(build: Build | CurrentBuild, tiny_model: Path, tmp_path: Path):
    """At its very end the server calls a text cut that is whole; what counts is the tokens."""
    last, above = Shape(300, 212), Shape(300, 213)
    with build.serve(tiny_model, tmp_path / "server.log", *flags(build, 4, 2048, shared=False)) as server:
        async with inspecting(server.url, **sources(server, known=True)) as inspection:
            assert (await empty_budget(inspection, last)).capacity == Span(4, 4)
            assert [tokens for _, tokens, _ in outcomes(server.url, 4, last, 0)] == [212] * 4
            made = await empty_budget(inspection, above)
            assert (made.capacity, made.limited_by) == (Span(0, 0), "context")
            assert outcomes(server.url, 1, above, 9) == [(200, 212, True)]


# --- Empty ---------------------------------------------------------------------------------------------------------------------------


async def test_an_empty_split_server_runs_as_many_as_it_has_slots_and_one_more_waits(build: Build | CurrentBuild, tiny_model: Path, tmp_path: Path):
    shape = Shape(200, 300)
    with build.serve(tiny_model, tmp_path / "server.log", *flags(build, 4, 2048, shared=False)) as server:
        async with inspecting(server.url, **sources(server, known=True)) as inspection:
            made = await empty_budget(inspection, shape)
            assert (made.headroom, made.limited_by) == (Span(4, 4), "slots")
            with together(server.url, 4, shape) as request:
                assert not await sees_one_wait(inspection, request)
            assert request.result() == whole(4, shape)
            with together(server.url, 5, shape, 9) as request:
                assert await sees_one_wait(inspection, request)


async def test_an_empty_shared_server_runs_what_its_pool_holds_and_one_more_kills_all(build: Build | CurrentBuild, tiny_model: Path, tmp_path: Path):
    shape = Shape(300, 383)
    with build.serve(tiny_model, tmp_path / "server.log", *flags(build, 6, 2048, shared=True)) as server:
        async with inspecting(server.url, **sources(server, known=True)) as inspection:
            made = await empty_budget(inspection, shape)
            assert (made.headroom, made.limited_by) == (Span(3, 3), "kv")
            assert outcomes(server.url, 3, shape, 0) == whole(3, shape)
            assert outcomes(server.url, 4, shape, 9) == killed(4)


@pytest.mark.parametrize("shared", [False, True], ids=["split", "shared"])
async def test_by_http_alone_the_bounds_of_an_empty_server_hold_and_the_log_closes_them(
    shared: bool, build: Build | CurrentBuild, tiny_model: Path, tmp_path: Path
):
    """Both servers look alike: 4 slots, 2048 tokens a request."""
    shape = Shape(300, 390)
    with build.serve(tiny_model, tmp_path / "server.log", *flags(build, 4, 2048 if shared else 8192, shared=shared)) as server:
        async with inspecting(server.url, **sources(server, known=True)) as informed, inspecting(server.url, **sources(server, known=False)) as inspection:
            bounds = (await empty_budget(inspection, shape)).headroom
            assert bounds == Span(2, 4)
            truth = (await empty_budget(informed, shape)).headroom
            assert truth == (Span(2, 2) if shared else Span(4, 4))
            assert outcomes(server.url, bounds.guaranteed, shape, 0) == whole(2, shape)
            assert outcomes(server.url, truth.guaranteed, shape, 10) == whole(truth.guaranteed, shape)
            if shared:
                assert outcomes(server.url, truth.possible + 1, shape, 20) == killed(3)
            with together(server.url, bounds.possible + 1, Shape(300, 200 if shared else 1500), 30) as request:
                assert await sees_one_wait(inspection, request)


# --- Planned from the file -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shared", [False, True], ids=["split", "shared"])
async def test_a_server_started_as_planned_is_what_was_planned(shared: bool, b10434: Build, tiny_model: Path, tmp_path: Path):
    """3 sessions in 2 MiB beside the weights: the setting gives the planned bytes, layout and tokens, and the next larger one does not fit the memory."""
    model = read_gguf(tiny_model)
    assert model.weights_bytes is not None
    room = 2 * 2**20
    settings = PlanSettings(unified=shared, memory_bytes=model.weights_bytes + room)
    plans: Any = load_adapters().adapters["llamacpp"]
    point = Planner(plans, model, settings, trained_context(model) or 0).largest_context(3)
    assert isinstance(point, Point)
    for setting, within in ((point.setting, True), (point.setting + 3 * 256, False)):
        with b10434.serve(tiny_model, tmp_path / f"{setting}.log", *flags(b10434, 3, setting, shared=shared), "-lv", "4") as server:
            mebibytes = float(KV_SIZE.findall(server.log_text())[-1])
            assert (mebibytes * 2**20 <= room + 2**13) is within
            if within:
                assert abs(mebibytes - point.kv_bytes / 2**20) <= 0.005
                assert outcomes_in_full(server.url, 3, Shape(point.tokens - 100, 100))


def outcomes_in_full(url: str, count: int, shape: Shape) -> bool:
    return [tokens for _, tokens, _ in outcomes(url, count, shape, 0)] == [shape.output] * count


# --- Half-way ------------------------------------------------------------------------------------------------------------------------


async def test_a_running_session_ends_at_what_it_holds_and_may_grow(build: Build | CurrentBuild, tiny_model: Path, tmp_path: Path):
    """What it holds and may still add is its end, or the one token above it that is sampled and never stored."""
    ends = set()
    with build.serve(tiny_model, tmp_path / "server.log", *flags(build, 4, 8192, shared=False)) as server:
        async with inspecting(server.url, **sources(server, known=True)) as inspection:
            with client.sessions(server.url, [(RUNNING.prompt, RUNNING.output)]) as (running,):
                while not running.done():
                    for slot in (await inspection.pool()).slots_detail:
                        if slot.busy.value and hasattr(slot.growth_tokens, "value"):
                            ends.add(slot.used_tokens.value + slot.growth_tokens.value)
            assert running.result().held_tokens == RUNNING.stored
    assert RUNNING.stored in ends or RUNNING.total in ends
    assert ends <= {RUNNING.stored, RUNNING.total}


async def test_half_way_the_free_slots_of_a_split_server_are_exact(build: Build | CurrentBuild, tiny_model: Path, tmp_path: Path):
    shape = Shape(200, 500)
    with build.serve(tiny_model, tmp_path / "server.log", *flags(build, 4, 8192, shared=False)) as server:
        async with inspecting(server.url, **sources(server, known=True)) as inspection:
            for more, waits in ((2, False), (3, True)):
                with together(server.url, 2, RUNNING) as running:
                    made = budget(await half_way(inspection, 2, running), shape)
                    assert made.headroom == Span(2, 2)
                    with together(server.url, more, shape, 10 * more) as request:
                        assert await sees_one_wait(inspection, request) is waits
                    assert request.result() == whole(more, shape)
                assert running.result() == whole(2, RUNNING)


async def test_half_way_a_shared_server_runs_what_is_guaranteed_and_dies_of_more_than_is_possible(
    build: Build | CurrentBuild, tiny_model: Path, tmp_path: Path
):
    """Two running sessions end at 1300 of 4096 cells each; two of 748 more fill them to the last."""
    shape = Shape(600, 149)
    with build.serve(tiny_model, tmp_path / "server.log", *flags(build, 8, 4096, shared=True)) as server:
        async with inspecting(server.url, **sources(server, known=True)) as inspection:
            for beyond in (False, True):
                with together(server.url, 2, RUNNING) as running:
                    headroom = budget(await half_way(inspection, 2, running), shape).headroom
                    assert (headroom.guaranteed, headroom.possible) in {(2, 3), (2, 2)}
                    more = headroom.possible + 1 if beyond else headroom.guaranteed
                    done = outcomes(server.url, more, shape, 10 * more)
                assert done == (killed(more) if beyond else whole(more, shape))
                assert running.result() == (killed(2) if beyond else whole(2, RUNNING))


@pytest.mark.parametrize("shared", [False, True], ids=["split", "shared"])
async def test_half_way_by_http_alone_the_bounds_hold_and_the_log_closes_them(shared: bool, build: Build | CurrentBuild, tiny_model: Path, tmp_path: Path):
    shape = Shape(600, 149)
    with build.serve(tiny_model, tmp_path / "server.log", *flags(build, 4, 2048 if shared else 8192, shared=shared)) as server:
        async with inspecting(server.url, **sources(server, known=True)) as informed, inspecting(server.url, **sources(server, known=False)) as inspection:
            for beyond in (False, True):
                with client.sessions(server.url, [(RUNNING.prompt, RUNNING.output)]) as (running,):
                    bounds = budget(await half_way(inspection, 1, running), shape).headroom
                    truth = budget(await half_way(informed, 1, running), shape).headroom
                    # What idle slots keep rules small pools out, so that the second look may know better than the first.
                    assert bounds in ((Span(1, 3), Span(2, 3)) if beyond and not shared else (Span(1, 3),))
                    assert truth == (Span(1, 1) if shared else Span(3, 3))
                    if beyond:
                        with together(server.url, bounds.possible + 1, shape, 20) as request:
                            assert await sees_one_wait(inspection, request)
                    else:
                        assert outcomes(server.url, truth.guaranteed, shape, 10) == whole(truth.guaranteed, shape)
                        assert running.result().status == 200
