"""Which process a target's facts are taken from, with processes that really listen."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from inspector.config import Target
from inspector.contract import FlagTable
from inspector.discovery import Found
from inspector.local.process import Process
from inspector.reading import Reason, Unknown
from inspector.wiring import BEHIND_SOCKET, ELSEWHERE, NOT_LOOKED_FOR, TargetSources, found_targets
from inspector_llamacpp import ADAPTER

LISTENS = """
import socket
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
server.accept()
"""
SERVER, OTHERS = "llama-server", ("docker-proxy", "nginx", "llama-swap")


@pytest.fixture
def listening(tmp_path: Path) -> Iterator[Any]:
    """Starts a program of some name that listens; gives (pid, port)."""
    running = []

    def start(name: str) -> tuple[int, int]:
        program = tmp_path / name
        program.write_text(f"#!{sys.executable}\n{LISTENS}")
        program.chmod(0o755)
        child = subprocess.Popen([str(program), "-c", "8192"], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
        running.append(child)
        assert child.stdout is not None
        return child.pid, int(child.stdout.readline())

    yield start
    for child in running:
        child.kill()
        child.wait()
        child.stdout.close()


@pytest.fixture
def launches(tmp_path: Path) -> dict[str, Any]:
    file = tmp_path / "start.sh"
    file.write_text("exec llama-server -c 8192\n")
    return {"auto": "auto", "none": "none", "file": {"file": str(file)}, "argv": {"argv": ["llama-server", "-c", "8192"]}}


def found(launch: Any, url: str, table: FlagTable | None = ADAPTER.flags) -> Process | Unknown:
    target = Target.model_validate({"name": "chat", "engine": "llamacpp", "url": url, "launch": launch})

    async def get(*_: Any, **__: Any) -> Any:
        raise AssertionError("nobody is asked")

    sources = TargetSources(target, get)
    process = sources.find_process(table)
    assert sources.process is process
    return process


def test_the_server_is_looked_at_also_where_a_launch_file_or_a_command_line_is_named(listening: Any, launches: dict[str, Any]) -> None:
    pid, port = listening(SERVER)
    for name in ("auto", "file", "argv"):
        process = found(launches[name], f"http://127.0.0.1:{port}")
        assert isinstance(process, Process), name
        assert process.pid == pid
    assert found("none", f"http://127.0.0.1:{port}") == NOT_LOOKED_FOR


@pytest.mark.parametrize("other", OTHERS)
def test_what_listens_in_the_servers_stead_is_not_looked_at(other: str, listening: Any, launches: dict[str, Any]) -> None:
    """Its memory, its start and its command line are its own. Whoever names it by its id means it."""
    pid, port = listening(other)
    for name in ("auto", "file", "argv"):
        process = found(launches[name], f"http://127.0.0.1:{port}")
        assert isinstance(process, Unknown), name
        assert process.reason is Reason.NO_SOURCE
        assert str(pid) in process.detail
        assert str(port) in process.detail
        assert "8192" not in process.detail
        assert other not in process.detail
    named = found({"pid": pid}, f"http://127.0.0.1:{port}")
    assert isinstance(named, Process)
    assert named.pid == pid


def test_a_listener_is_taken_where_the_adapter_has_no_way_to_know_its_server(listening: Any, launches: dict[str, Any]) -> None:
    pid, port = listening("some-engine")
    process = found(launches["auto"], f"http://127.0.0.1:{port}", None)
    assert isinstance(process, Process)
    assert process.pid == pid


def test_a_server_elsewhere_or_behind_a_socket_is_not_looked_for(launches: dict[str, Any]) -> None:
    for name in ("auto", "file", "argv"):
        assert found(launches[name], "http://192.0.2.7:8080") == ELSEWHERE
        assert found(launches[name], "unix:/run/llama.sock") == BEHIND_SOCKET


def test_servers_that_share_engine_and_port_have_names_of_their_own():
    """One port on two addresses is two servers; under one name the second would hide the first."""
    urls = ["http://127.0.0.1:8080", "http://127.0.0.2:8080", "http://127.0.0.1:8081"]
    named = {target.name: target.url for target in found_targets([Found("llamacpp", url, 1) for url in urls])}
    assert named == {"llamacpp-127.0.0.1-8080": urls[0], "llamacpp-127.0.0.2-8080": urls[1], "llamacpp-8081": urls[2]}
