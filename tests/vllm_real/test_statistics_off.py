"""A real vLLM that keeps no statistics answers all the same, and nothing about its load is known."""

from __future__ import annotations

import pytest

from engines.server import Server
from engines.vllm import LENGTH, SEQUENCES, complete
from engines.vllm_fixtures import Watch
from inspector.model import POOL_FIELDS, State
from inspector.reading import Known, Reason, Unknown
from inspector_vllm import ADAPTER

pytestmark = [pytest.mark.anyio, pytest.mark.engine]

FLAGS = ("--disable-log-stats",)


async def test_every_live_field_is_unknown_and_names_the_remedy(server: Server, watch: Watch) -> None:
    assert complete(server.url, 20, 20) == 200
    async with watch() as watcher:
        snapshots = [(await watcher.poll()).snapshot for _ in range(3)]
    for snapshot in snapshots:
        assert snapshot.state is State.READY
        pool = snapshot.pools[0]
        for field in ADAPTER.offers(None):
            reading = pool.reading(field)
            if POOL_FIELDS[field].live:
                assert isinstance(reading, Unknown)
                assert reading.reason is Reason.ENDPOINT_DISABLED
                assert "--disable-log-stats" in reading.detail
            assert not (isinstance(reading, Known) and reading.value == 0)
        assert pool.context_limit_tokens.value == LENGTH  # type: ignore[union-attr]
        assert pool.slots.value == SEQUENCES  # type: ignore[union-attr]
