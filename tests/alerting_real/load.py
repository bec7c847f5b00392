"""Load that keeps a real server's shared KV pool nearly full, for as long as a block lasts."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event

from engines import client

SHAPE = (1900, 140)
"""Four of these hold at least 7,600 of 8,192 cells from the first generated token to the last."""


@contextmanager
def full_pool(url: str, sessions: int = 4, shape: tuple[int, int] = SHAPE) -> Iterator[None]:
    """So many sessions again and again; what they repeat of their prompts the server keeps, so the pool is full again at once."""
    done = Event()

    def again(seed: int) -> None:
        while not done.is_set():
            client.complete(url, shape[0], shape[1], seed=seed, n_probs=100)

    with ThreadPoolExecutor(max_workers=sessions) as pool:
        running = [pool.submit(again, seed) for seed in range(sessions)]
        try:
            yield
        finally:
            done.set()
    for session in running:
        session.result()
