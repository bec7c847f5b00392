"""The session budget against real vLLM servers: 33 blocks run four sessions of eight blocks each without a preemption, 32 blocks, one of them the null block,
preempt one of the four and run three; half-way, what is guaranteed goes through."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import anyio
import httpx
import psutil
import pytest

from engines.inspecting import Inspection, inspecting
from engines.server import Server
from engines.vllm import MODEL, REQUEST_SECONDS, engine_core, parsed, read_page, serve, sessions
from inspector.budget import Shape, budget
from inspector.layout import Span
from inspector.model import Pool

pytestmark = [pytest.mark.anyio, pytest.mark.engine]

SHAPE = Shape(700, 324)
LAST = Shape(700, 325)
"""Its 1024 stored tokens fill eight blocks of 128 to the last."""
ABOVE = Shape(700, 326)
RUNNING = (700, 1300)

ONE_THREAD = {"OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
"""An engine that takes every core of a small machine keeps us from looking for seconds."""

FLAGS = ("--no-enable-prefix-caching", "--max-num-seqs=6")
"""Six sequences, so that the cache sets the limit."""


def preemptions(server: Server) -> float:
    return parsed(read_page(server.url))["vllm:num_preemptions_total"][0][1]


def run(server: Server, count: int, shape: Shape) -> float:
    """So many sessions to their ends, sent as one request, so that they begin together; the preemptions among them."""
    before = preemptions(server)
    prompts = [[3 + (31 * number + 7 * place) % 250 for place in range(shape.prompt)] for number in range(1, count + 1)]
    body = {"model": MODEL, "prompt": prompts, "max_tokens": shape.output, "ignore_eos": True, "temperature": 0}
    reply = httpx.post(f"{server.url}/v1/completions", json=body, timeout=REQUEST_SECONDS, trust_env=False)
    assert reply.status_code == 200, reply.text
    assert reply.json()["usage"]["completion_tokens"] == count * shape.output
    return preemptions(server) - before


def served(model: Path, folder: Path, blocks: int) -> Server:
    return serve(model, folder / f"{blocks}.log", *FLAGS, f"--num-gpu-blocks-override={blocks}")


async def test_33_blocks_run_four_sessions_and_32_blocks_three(tiny_hf_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ONE_THREAD.items():
        monkeypatch.setenv(name, value)
    for blocks, fit in ((33, 4), (32, 3)):
        with served(tiny_hf_model, tmp_path, blocks) as server:
            async with inspecting(server.url, engine="vllm", logs=str(server.log_path)) as inspection:
                pool = await inspection.pool()
                limits = {shape: (made.capacity, made.headroom, made.limited_by) for shape, made in ((s, budget(pool, s)) for s in (SHAPE, LAST, ABOVE))}
                assert limits == {
                    SHAPE: (Span(fit, fit), Span(fit, fit), "kv"),
                    LAST: (Span(fit, fit), Span(fit, fit), "kv"),
                    ABOVE: (Span(3, 3), Span(3, 3), "kv"),
                }
                assert run(server, fit, SHAPE) == 0
                assert run(server, fit, LAST) == 0
                assert run(server, fit + 1, SHAPE) >= 1
                assert run(server, 3, ABOVE) == 0
                assert run(server, 4, ABOVE) >= 1
                if blocks == 33:
                    await assert_half_way(server, inspection)


async def assert_half_way(server: Server, inspection: Inspection) -> None:
    """One session runs. How far it goes is not told: `guaranteed` counts it to its limit of 16 blocks, `possible` with the blocks that it holds.

    The engine is halted for the look, so that the others come while the session is where it was seen."""
    core = engine_core(server)
    for beyond in (False, True):
        with sessions(server.url, [RUNNING]) as (running,), ThreadPoolExecutor(max_workers=1) as others:
            try:
                pool = await halted_half_way(core, inspection, running)
                headroom = budget(pool, SHAPE).headroom
                assert headroom in (Span(2, 3), Span(2, 2))
                preempted = others.submit(run, server, headroom.possible + 1 if beyond else headroom.guaranteed, SHAPE)
                await anyio.sleep(0.5)
            finally:
                core.resume()
        assert preempted.result() >= 1 if beyond else preempted.result() == 0
        assert running.result() == 200


async def halted_half_way(core: psutil.Process, inspection: Inspection, running: Future[int]) -> Pool:
    """Halts the engine again and again until its session has more than its prompt."""
    while not running.done():
        await anyio.sleep(0.02)
        core.suspend()
        pool = await inspection.pool()
        if pool.kv_used_tokens.value >= RUNNING[0]:
            return pool
        core.resume()
    raise AssertionError("no look found the session running")
