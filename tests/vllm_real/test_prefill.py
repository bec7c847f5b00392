"""A real vLLM that reads long prompts in small pieces: for seconds it generates nothing, and works."""

from __future__ import annotations

import time

import anyio
import pytest

from engines.server import Server
from engines.vllm import complete, parsed, sessions
from engines.vllm_fixtures import Polled, Watch
from inspector.model import State

pytestmark = [pytest.mark.anyio, pytest.mark.engine]

LONGEST = 16384
FLAGS = (
    f"--max-model-len={LONGEST}", f'--hf-overrides={{"max_position_embeddings": {LONGEST}}}', "--num-gpu-blocks-override=160", "--max-num-batched-tokens=64",
)  # fmt: skip
"""With 64 tokens in a step, a prompt takes 250 steps; every second one moves the usage by a block."""

PROMPT = LONGEST - 384

SHARE = 8
"""A prefill lasts so many times `stalled_after`: long enough to be seen standing still, if nothing but tokens counted. A block of it takes far less."""


def series(polled: Polled, name: str) -> float:
    return parsed(polled.page)[f"vllm:{name}"][0][1]


def longest_silence(polls: list[tuple[float, Polled]]) -> float:
    """Seconds, the longest for which requests ran or waited and neither token counter moved."""
    longest = since = 0.0
    last: tuple[float, float] | None = None
    for at, polled in polls:
        tokens = (series(polled, "generation_tokens_total"), series(polled, "prompt_tokens_total"))
        if tokens != last or series(polled, "num_requests_running") + series(polled, "num_requests_waiting") == 0:
            last, since = tokens, at
        longest = max(longest, at - since)
    return longest


async def test_an_engine_in_a_long_prefill_never_stalls(server: Server, watch: Watch) -> None:
    began = time.monotonic()
    assert complete(server.url, PROMPT, 1, seed=9) == 200
    stalled_after = (time.monotonic() - began) / SHARE
    polls: list[tuple[float, Polled]] = []
    async with watch(stalled_after=stalled_after) as watcher:
        with sessions(server.url, [(PROMPT, 1)] * 2) as requests:
            while not all(request.done() for request in requests):
                polls.append((time.monotonic(), await watcher.poll()))
                await anyio.sleep(0.1)
    assert [request.result() for request in requests] == [200] * 2
    assert longest_silence(polls) > stalled_after, "the prompts were read too fast for this test"
    assert {polled.snapshot.state for _, polled in polls} == {State.READY}
