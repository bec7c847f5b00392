"""Requests of tests to real servers: sessions of an exact length, and the raw truth that readings are compared with.

This is test traffic; the inspector's own requests go through `inspector.fetch` only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
from anyio import to_thread

from inspector.demo.model import FIRST_LETTER, VOCABULARY

REQUEST_SECONDS = 120.0
UNUSED = False
"""No TLS on loopback: reading the system's authorities for each request would cost more than the request."""
LETTERS = len(VOCABULARY) - FIRST_LETTER


def prompt_ids(tokens: int, seed: int = 0) -> list[int]:
    """A prompt of exactly so many tokens. Prompts of different seeds differ in the first token, so that they share no cached prefix."""
    return [FIRST_LETTER + (seed + 7 * place * (place + seed)) % LETTERS for place in range(tokens)]


@dataclass(frozen=True)
class Completion:
    """What the server answered. `body` is its JSON whatever the status."""

    status: int
    body: dict[str, Any]

    @property
    def held_tokens(self) -> int:
        """Tokens that the slot holds in its cache afterwards: all but the last one sampled."""
        return int(self.body["tokens_evaluated"]) + int(self.body["tokens_predicted"]) - 1


def complete(url: str, prompt: int | Sequence[int], output: int, *, seed: int = 0, key: str = "", **options: Any) -> Completion:
    """Run one completion to its end. `prompt` is a number of tokens or token ids;
    further `options` of /completion are passed on: id_slot, cache_prompt, model, …."""
    ids = prompt_ids(prompt, seed) if isinstance(prompt, int) else list(prompt)
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    body = {"prompt": ids, "n_predict": output, "ignore_eos": True, **options}
    reply = httpx.post(f"{url}/completion", json=body, headers=headers, timeout=REQUEST_SECONDS, trust_env=False, verify=UNUSED)
    return Completion(reply.status_code, reply.json())


async def complete_async(url: str, prompt: int | Sequence[int], output: int, **options: Any) -> Completion:
    return await to_thread.run_sync(lambda: complete(url, prompt, output, **options))


@contextmanager
def sessions(url: str, shapes: Sequence[tuple[int, int]], **options: Any) -> Iterator[list[Future[Completion]]]:
    """Completions of the given (prompt, output) tokens, running at the same time. Leaving the block waits for all of them."""
    with ThreadPoolExecutor(max_workers=max(1, len(shapes))) as pool:
        yield [pool.submit(complete, url, prompt, output, seed=seed, **options) for seed, (prompt, output) in enumerate(shapes)]


def get(url: str, path: str, key: str = "", **query: str) -> httpx.Response:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return httpx.get(f"{url}{path}", params=query, headers=headers, timeout=30.0, trust_env=False, verify=UNUSED)


def raw_slots(url: str, key: str = "", **query: str) -> list[dict[str, Any]]:
    """/slots as the server gives it. Mind that this wakes a sleeping model."""
    reply = get(url, "/slots", key, **query)
    assert reply.status_code == 200, reply.text
    slots: list[dict[str, Any]] = reply.json()
    return slots


def held(slots: Sequence[dict[str, Any]], busy: bool) -> int:
    """Tokens that the busy, or the idle, slots hold. A slot that was never used has no such key in these builds and holds none."""
    return sum(slot["n_prompt_tokens"] for slot in slots if slot["is_processing"] is busy and "n_prompt_tokens" in slot)


def busy(url: str, **query: str) -> int:
    return sum(slot["is_processing"] for slot in raw_slots(url, **query))


def raw_metrics(url: str, key: str = "", **query: str) -> dict[str, float]:
    """Samples of /metrics by name without the `llamacpp:` prefix; labels are dropped."""
    reply = get(url, "/metrics", key, **query)
    assert reply.status_code == 200, reply.text
    rows = (line.rsplit(" ", 1) for line in reply.text.splitlines() if line and not line.startswith("#"))
    return {name.removeprefix("llamacpp:").split("{")[0]: float(value) for name, value in rows}


def sleeping(url: str, key: str = "", **query: str) -> bool:
    answer: bool = get(url, "/props", key, **query).json()["is_sleeping"]
    return answer


def router_states(url: str, key: str = "") -> dict[str, str]:
    """Each model of a router and what it says of it."""
    return {entry["id"]: entry["status"]["value"] for entry in get(url, "/models", key).json()["data"]}
