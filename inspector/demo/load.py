"""A little steady traffic for the demo's own server.

This is the one place in the project that asks a server to generate, and it has its own HTTP client: the inspector's `fetch` cannot send a POST. It may be
pointed only at a loopback address, where the demo's server listens.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_address

import anyio
import httpx

from inspector.demo import DemoError
from inspector.demo.model import FIRST_LETTER, VOCABULARY

REQUEST_SECONDS = 120.0
MOST_REQUESTS = 10_000
PAUSE_SECONDS = 0.05


@dataclass
class LoadReport:
    """How many requests were finished, and how many the server refused or broke off."""

    finished: int = 0
    failed: int = 0


async def run_load(base_url: str, *, sessions: int, prompt_tokens: int, output_tokens: int, seconds: float, most_requests: int = MOST_REQUESTS) -> LoadReport:
    """Keep `sessions` completions running, each of `prompt_tokens` in and `output_tokens` out, for `seconds` or `most_requests`, whichever comes first.

    Ends at once when cancelled: the server drops a generation whose client has gone. Raises `DemoError` for an address that is not on this machine."""
    _refuse_strangers(base_url)
    report = LoadReport()
    numbers = iter(range(most_requests))
    timeout = httpx.Timeout(REQUEST_SECONDS, connect=5.0)
    limits = httpx.Limits(max_connections=sessions)
    async with httpx.AsyncClient(base_url=base_url, timeout=timeout, limits=limits, trust_env=False) as client:
        with anyio.move_on_after(seconds):
            async with anyio.create_task_group() as tasks:
                for _ in range(sessions):
                    tasks.start_soon(_session, client, numbers, prompt_tokens, output_tokens, report)
    return report


async def _session(client: httpx.AsyncClient, numbers: Iterator[int], prompt_tokens: int, output_tokens: int, report: LoadReport) -> None:
    for number in numbers:
        try:
            reply = await client.post("/completion", json=_request(number, prompt_tokens, output_tokens))
        except httpx.HTTPError:
            reply = None
        if reply is not None and reply.is_success:
            report.finished += 1
        else:
            report.failed += 1
            await anyio.sleep(PAUSE_SECONDS)


def _request(number: int, prompt_tokens: int, output_tokens: int) -> dict[str, object]:
    """A completion of an exact length. The prompt is given as token ids; its first ones count the requests, so that sessions do not share a cached prefix."""
    letters = len(VOCABULARY) - FIRST_LETTER
    rounds, first = divmod(number, letters)
    prompt = [FIRST_LETTER + (offset % letters) for offset in (first, rounds, *range(prompt_tokens))][:prompt_tokens]
    return {"prompt": prompt, "n_predict": output_tokens, "ignore_eos": True}


def _refuse_strangers(base_url: str) -> None:
    host = httpx.URL(base_url).host
    try:
        local = host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        local = False
    if not local:
        raise DemoError("the demo's traffic goes to 127.0.0.1 only")
