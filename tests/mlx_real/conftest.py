"""Real mlx_lm servers, and the inspector on them as the daemon puts it together."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from engines.inspecting import Inspection, target
from engines.mlx import serve, write_model
from engines.server import Server
from inspector.board import Board
from inspector.config import Config, Poll
from inspector.wiring import Wiring, assessor, jobs
from inspector_mlx import ADAPTER

Watch = Callable[..., AbstractAsyncContextManager[Inspection]]


@pytest.fixture(scope="session")
def tiny_mlx_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def server(tiny_mlx_model: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server with the flags that the file names in FLAGS."""
    log = tmp_path_factory.mktemp("mlx") / "mlx.log"
    with serve(tiny_mlx_model, log, *getattr(request.module, "FLAGS", ())) as running:
        yield running


@pytest.fixture
def watch() -> Watch:
    """The inspector on a server, with its log, and its process found by the port; `fields` of the configuration change that."""

    @asynccontextmanager
    async def watching(server: Server, **fields: Any) -> AsyncIterator[Inspection]:
        config = Config().model_copy(
            update={"targets": (target(server.url, **{"engine": "mlx", "launch": "auto", "logs": str(server.log_path), **fields}),), "poll": Poll(timeout=10)}
        )
        (job,) = jobs(config, {"mlx": ADAPTER})
        watcher = Wiring({"mlx": ADAPTER}).build(job)
        try:
            yield Inspection(watcher, Board(assessor(config)))
        finally:
            await watcher.aclose()

    return watching
