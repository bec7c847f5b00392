"""What the operating system says of a server's process: connections that are really there, and how a look reaches the adapter and the snapshot."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import psutil
import pytest

from fakes import NO_PROCESS, NOON, FakeAdapter, FakeClock, FakeSources, known, process
from inspector.collector import TargetCollector, Watched
from inspector.contract import Observation, ProcessView
from inspector.generation import Seen
from inspector.inspection import Inspection
from inspector.local import connections
from inspector.local.connections import connections_of
from inspector.local.process import Process
from inspector.model import MEMORY_FIELDS, Memory, Pool, State
from inspector.reading import NOT_OFFERED, Known, Reading, Reason, Unknown

pytestmark = pytest.mark.anyio

LISTENS = """
import socket, sys
servers = [socket.create_server(("127.0.0.1", 0)) for _ in range(int(sys.argv[1]))]
print(*(server.getsockname()[1] for server in servers), flush=True)
kept = []
while True:
    kept.append(servers[0].accept())
    print("accepted", flush=True)
"""
CONNECTS = "import socket, sys; kept = socket.create_connection(('127.0.0.1', int(sys.argv[1]))); print(flush=True); input()"


@contextmanager
def python(code: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    argv = [sys.executable, "-c", code, *map(str, arguments)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        try:
            yield running
        finally:
            running.kill()


def said(running: subprocess.Popen[str]) -> str:
    assert running.stdout is not None
    return running.stdout.readline().strip()


def value(reading: Reading[Any]) -> Any:
    return reading.value if isinstance(reading, Known) else reading.reason


# --- Connections ---------------------------------------------------------------------------------------------------------------------


def test_connections_of_others_count_and_ours_do_not() -> None:
    with ExitStack() as stack:
        server = stack.enter_context(python(LISTENS, 1))
        port = int(said(server))
        assert value(connections_of(server.pid, port, NOON)) == 0
        stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        said(server)
        assert value(connections_of(server.pid, port, NOON)) == 0
        for number in (1, 2, 3):
            client = stack.enter_context(python(CONNECTS, port))
            said(client)
            said(server)
            assert value(connections_of(server.pid, port, NOON)) == number
        client.kill()
        client.wait()
        psutil.wait_procs([psutil.Process(client.pid)] if psutil.pid_exists(client.pid) else [], timeout=5)
        assert value(connections_of(server.pid, port, NOON)) == 2


def test_behind_a_published_port_the_one_that_the_process_listens_on_counts() -> None:
    with ExitStack() as stack:
        server = stack.enter_context(python(LISTENS, 1))
        port = int(said(server))
        said(stack.enter_context(python(CONNECTS, port)))
        said(server)
        assert value(connections_of(server.pid, port + 1, NOON)) == 1


def test_several_ports_none_of_them_the_targets_are_not_guessed_at() -> None:
    with python(LISTENS, 2) as server:
        ports = [int(port) for port in said(server).split()]
        other = next(port for port in range(20000, 30000) if port not in ports)
        assert value(connections_of(server.pid, other, NOON)) == Reason.AMBIGUOUS
        assert value(connections_of(server.pid, ports[1], NOON)) == 0


def test_a_process_that_does_not_listen_or_is_gone_has_no_count() -> None:
    with python("print(flush=True); input()") as running:
        said(running)
        assert value(connections_of(running.pid, 8080, NOON)) == Reason.AMBIGUOUS
    assert value(connections_of(running.pid, 8080, NOON)) == Reason.NO_SOURCE


def test_a_process_of_another_user_is_unauthorized(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(pid: int) -> Any:
        raise psutil.AccessDenied(pid)

    monkeypatch.setattr(connections.psutil, "Process", refuse)
    assert value(connections_of(7, 8080, NOON)) == Reason.UNAUTHORIZED


# --- A look on its way to the snapshot -----------------------------------------------------------------------------------------------

VIEW = ProcessView(7, known(2), known("1.0"), known("llama"), known(4096))
MEMORY = Memory(known(64), known(32), known(8), Unknown(Reason.NO_SOURCE, "no files"))
READY = Observation(State.READY, pools=(Pool(slots=known(4)),))


class FakeInspection:
    def __init__(self, process: Process) -> None:
        self.process = process

    def look(self, now: float) -> Seen:
        return Seen(VIEW, replace(MEMORY, used_bytes=known(self.process.pid)))


async def polled(*script: Any, found: Process | Unknown, inspect: Any = lambda process, adapter: FakeInspection(process)) -> Any:
    clock = FakeClock()
    adapter = FakeAdapter(list(script))
    collector = TargetCollector(Watched("chat", adapter), FakeSources(clock, process=found), {}, inspect=inspect, clock=clock)
    return await collector.poll()


async def test_memory_of_the_process_is_in_every_snapshot_whatever_the_engine() -> None:
    snapshot = await polled(READY, found=process(7))
    assert snapshot.memory == replace(MEMORY, used_bytes=known(7))
    assert snapshot.offered >= set(MEMORY_FIELDS)


async def test_an_adapters_own_memory_is_not_overruled() -> None:
    own = Memory(used_bytes=known(99))
    assert (await polled(replace(READY, memory=own), found=process(7))).memory == own


async def test_without_a_process_no_memory_is_offered() -> None:
    for found, inspect in ((NO_PROCESS, lambda process, adapter: FakeInspection(process)), (process(7), None)):
        snapshot = await polled(READY, found=found, inspect=inspect)
        assert snapshot.memory == Memory()
        assert not snapshot.offered & set(MEMORY_FIELDS)


async def test_a_server_that_is_down_has_no_memory() -> None:
    assert (await polled(Observation(State.UNREACHABLE, "refused"), found=process(7))).memory == Memory()


async def test_a_sleeping_server_shows_no_live_memory() -> None:
    memory = (await polled(Observation(State.SLEEPING, "asleep"), found=process(7))).memory
    assert value(memory.used_bytes) == Reason.SLEEPING
    assert memory.total_bytes == known(64)


async def test_the_adapter_sees_the_process_or_why_not() -> None:
    views: list[ProcessView | Unknown] = []

    def note(ask: Any, recall: Any) -> Observation:
        views.append(ask.process)
        return READY

    await polled(note, found=process(7))
    await polled(note, found=NO_PROCESS)
    assert views == [VIEW, NO_PROCESS]


def test_connections_are_looked_at_for_adapters_that_want_them_only() -> None:
    with python(LISTENS, 1) as server:
        port = int(said(server))
        found = Process(server.pid, NOON, (sys.executable, "-m", "x"), {})
        adapter = FakeAdapter([READY])
        assert isinstance(Inspection(found, port, adapter).look(NOON).process, Unknown)
        adapter.package = "no-such-package"  # type: ignore[attr-defined]
        seen = Inspection(found, port, adapter).look(NOON)
        assert isinstance(seen.process, ProcessView)
        assert value(seen.process.connections) == 0
        assert value(seen.process.package_version) == Reason.NO_SOURCE
        assert isinstance(seen.memory.used_bytes, Known)
        assert seen.memory.weights_bytes != NOT_OFFERED
