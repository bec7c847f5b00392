"""The inspector on one real server, put together as the daemon does it, and polled by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from inspector.board import Board
from inspector.config import Config, Poll, Target
from inspector.metrics import registry
from inspector.model import Pool, Snapshot
from inspector.registry import load_adapters
from inspector.wiring import TargetWatcher, Wiring, assessor, jobs

NAME = "real"


@dataclass
class Inspection:
    """One target and its board."""

    watcher: TargetWatcher
    board: Board

    async def poll(self) -> Snapshot:
        """A poll, put on the board."""
        snapshot = await self.watcher.poll()
        self.board.add(self.watcher.info)
        self.board.put(snapshot)
        return snapshot

    async def pool(self) -> Pool:
        """The one pool that a poll shows."""
        (pool,) = (await self.poll()).pools
        return pool

    def exposition(self) -> str:
        """What /metrics says of the target now."""
        return generate_latest(registry(self.board)).decode()

    def samples(self) -> dict[str, list[tuple[dict[str, str], float]]]:
        """The samples of `exposition` by name."""
        return samples_of(self.exposition())


def target(url: str, **fields: Any) -> Target:
    """A target of which nothing but HTTP is known, unless `fields` of the configuration say more."""
    return Target.model_validate({"name": NAME, "engine": "llamacpp", "url": url, "launch": "none", **fields})


@asynccontextmanager
async def inspecting(url: str, **fields: Any) -> AsyncIterator[Inspection]:
    config = Config().model_copy(update={"targets": (target(url, **fields),), "poll": Poll()})
    adapters = load_adapters().adapters
    (job,) = jobs(config, adapters)
    watcher = Wiring(adapters).build(job)
    try:
        yield Inspection(watcher, Board(assessor(config)))
    finally:
        await watcher.aclose()


def samples_of(text: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    """The samples of an exposition by name: labels and value."""
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found
