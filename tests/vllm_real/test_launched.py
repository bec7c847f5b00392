"""A real vLLM of which only HTTP and the process are seen: what it serves at once is known from its command line alone."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

import pytest

from engines.server import Server
from engines.vllm import SEQUENCES
from inspector.collector import NO_LAUNCH_FILE, TargetCollector, Watched
from inspector.contract import FlagTable, LogPattern
from inspector.fetch import Client, Endpoint
from inspector.follow import Follower
from inspector.local.process import Process, process_on
from inspector.model import Snapshot, State
from inspector.reading import Kind, Known, Reason, Unknown
from inspector_vllm import ADAPTER

pytestmark = [pytest.mark.anyio, pytest.mark.engine]


class Sources:
    """HTTP, and the process that listens at the address where `looks`; no log and no launch file."""

    def __init__(self, client: Client, url: str, *, looks: bool) -> None:
        self.get = client.get
        self._url = urlsplit(url)
        self._looks = looks

    def follower(self, patterns: tuple[LogPattern, ...]) -> Follower | None:
        return None

    def find_process(self, table: FlagTable | None) -> Process | Unknown:
        if not self._looks:
            return Unknown(Reason.NO_SOURCE, "not looked for")
        assert self._url.hostname is not None
        assert self._url.port is not None
        return process_on((self._url.hostname, self._url.port))

    def launch_file(self, table: FlagTable) -> Unknown:
        return NO_LAUNCH_FILE


async def polled(url: str, *, looks: bool) -> Snapshot:
    client = Client(Endpoint(url))
    adapters: Mapping[str, object] = {"vllm": ADAPTER}
    collector = TargetCollector(Watched("real", ADAPTER, interval=1.0, timeout=10.0), Sources(client, url, looks=looks), adapters)  # type: ignore[arg-type]
    try:
        return await collector.poll()
    finally:
        await collector.aclose()
        await client.aclose()


async def test_slots_are_known_from_the_command_line_of_the_running_process_alone(server: Server) -> None:
    snapshot = await polled(server.url, looks=True)
    slots = snapshot.pools[0].slots
    assert snapshot.state is State.READY
    assert isinstance(slots, Known), slots
    assert slots.value == SEQUENCES == 4
    assert slots.origin.kind is Kind.LAUNCH
    assert str(server.log_path.parent) not in repr(snapshot)
    assert snapshot.drift == ()


async def test_slots_are_unknown_where_nobody_looks_at_the_process(server: Server) -> None:
    """Otherwise the test above proves nothing of the command line."""
    slots = (await polled(server.url, looks=False)).pools[0].slots
    assert isinstance(slots, Unknown)
    assert slots.reason is Reason.NO_SOURCE
