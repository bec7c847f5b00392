"""Fixtures of tests/vllm_real: real vLLM servers, one for all tests of a file (a start takes most of a minute), and polls that are listened in on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from engines.server import Server
from engines.vllm import API_SERVER, serve, write_model
from inspector.collector import TargetCollector, Watched
from inspector.contract import Reply, Route
from inspector.fetch import Client, Endpoint
from inspector.follow import FileSource, Follower
from inspector.model import Snapshot
from inspector.reading import Reason, Unknown
from inspector_vllm import ADAPTER


@pytest.fixture(scope="session")
def tiny_hf_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="module")
def server(tiny_hf_model: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server with the flags that the file names in FLAGS, started as it says in COMMAND."""
    log = tmp_path_factory.mktemp("vllm") / "vllm.log"
    flags, command = getattr(request.module, "FLAGS", ()), getattr(request.module, "COMMAND", API_SERVER)
    with serve(tiny_hf_model, log, *flags, command=command) as running:
        yield running


@dataclass
class Polled:
    """One poll: what came of it, and every reply by path."""

    snapshot: Snapshot
    replies: dict[str, Reply | Unknown]

    @property
    def page(self) -> bytes:
        """The page of metrics that this poll rests on: the last one read."""
        reply = [reply for path, reply in self.replies.items() if path.startswith("/metrics")][-1]
        assert isinstance(reply, Reply)
        return reply.body


@dataclass
class Watcher:
    """Polls a server through the real client and collector, listening in."""

    client: Client
    log: Path | None
    replies: dict[str, Reply | Unknown] = field(default_factory=dict)
    collector: TargetCollector = field(init=False)

    async def get(self, route: Route, query: Any = None, /, **options: Any) -> Reply | Unknown:
        reply = await self.client.get(route, query, **options)
        self.replies.pop(route.path, None)
        self.replies[route.path] = reply
        return reply

    def follower(self, patterns: Any) -> Follower | None:
        return None if self.log is None else Follower(FileSource(self.log), patterns)

    def find_process(self, table: Any) -> Unknown:
        return Unknown(Reason.NO_SOURCE, "not looked for")

    def launch_file(self, table: Any) -> Unknown:
        return Unknown(Reason.NO_SOURCE, "none is named")

    async def poll(self) -> Polled:
        self.replies = {}
        snapshot = await self.collector.poll()
        return Polled(snapshot, self.replies)


Watch = Callable[..., Any]


@pytest.fixture
def watch(server: Server) -> Watch:
    """A fresh watcher of the server; `stalled_after` in seconds."""

    @asynccontextmanager
    async def watching(*, stalled_after: float = 60.0, log: bool = True) -> AsyncIterator[Watcher]:
        async with AsyncExitStack() as stack:
            watcher = Watcher(Client(Endpoint(server.url)), server.log_path if log else None)
            watcher.collector = TargetCollector(Watched("real", ADAPTER, interval=1.0, timeout=10.0, stalled_after=stalled_after), watcher, {"vllm": ADAPTER})
            stack.push_async_callback(watcher.client.aclose)
            stack.push_async_callback(watcher.collector.aclose)
            yield watcher

    return watching
