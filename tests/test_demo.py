"""`inspector demo` as a newcomer runs it: a process of its own, in a folder of its own, that leaves nothing behind however it is ended."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil
import pytest

from engines.inspecting import samples_of
from engines.server import wait_until

pytestmark = pytest.mark.engine
pytest_plugins = ["engines.fixtures"]

DEMO = [sys.executable, "-m", "inspector", "demo"]
PATIENCE = 60


@dataclass
class Demo:
    """A running demo. `folder` is where it is started and where it makes its temporary files."""

    process: subprocess.Popen[str]
    folder: Path
    told: list[str] = field(default_factory=list)

    def children(self) -> list[psutil.Process]:
        with suppress(psutil.NoSuchProcess):
            return psutil.Process(self.process.pid).children(recursive=True)
        return []

    def wait_told(self, text: str) -> str:
        """The first line with `text`."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.told.append(line)
            if text in line:
                return line
        raise AssertionError(f"it ended without saying {text!r}: {self.told} {self.process.stderr.read() if self.process.stderr else ''}")

    def end(self) -> tuple[str, str]:
        """Waits for the end; what it still said."""
        return self.process.communicate(timeout=PATIENCE)


@pytest.fixture
def demo(tmp_path: Path, current: object) -> Iterator[Demo]:
    process = subprocess.Popen(
        [*DEMO, "--listen", "127.0.0.1:0", "--seconds", "6"],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with process:
        yield Demo(process, tmp_path)
        if process.poll() is None:
            process.kill()


def nothing_is_left(demo: Demo, children: list[psutil.Process], *ports: int) -> None:
    assert [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE] == []
    assert list(demo.folder.iterdir()) == []
    for port in ports:
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", port)) != 0


def port_in(line: str) -> int:
    """The port of the URL in a line."""
    found = re.search(r"http://127\.0\.0\.1:(\d+)", line)
    assert found is not None
    return int(found[1])


def test_it_shows_a_server_under_load_and_ends_by_itself_without_a_trace(demo: Demo):
    server = port_in(demo.wait_told("answers at"))
    inspector = port_in(demo.wait_told("/metrics"))
    children = demo.children()
    assert children
    seen: list[Mapping[str, list[tuple[dict[str, str], float]]]] = []

    def under_load() -> bool:
        seen.append(samples_of(httpx.get(f"http://127.0.0.1:{inspector}/metrics", trust_env=False).text))
        return any(value > 0 for _, value in seen[-1].get("inspector_kv_used_tokens", []))

    wait_until(under_load, "tokens are in use", seconds=10)
    samples = seen[-1]
    assert [value for _, value in samples["inspector_target_up"]] == [1]
    unknown = {labels["field"] for labels, value in samples["inspector_field_known"] if value == 0}
    assert "kv_bytes_per_token" in unknown, "its server does not run with -lv 4"
    assert {f"inspector_{name}" for name in unknown} & samples.keys() == set(), "what is unknown has no sample"
    told, errors = demo.end()
    assert (demo.process.returncode, errors) == (0, "")
    assert "kv_used_tokens" in told
    assert "unknown (" in told
    assert "The demo has ended" in told
    nothing_is_left(demo, children, server, inspector)


def the_server_starts(demo: Demo) -> None:
    demo.wait_told("Starting")
    wait_until(lambda: bool(demo.children()), "the server's process is there")


def the_load_runs(demo: Demo) -> None:
    demo.wait_told("kv_used_tokens")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("moment", [the_server_starts, the_load_runs])
def test_a_signal_at_any_moment_leaves_nothing(demo: Demo, moment, number: signal.Signals):
    moment(demo)
    children = demo.children()
    assert children
    ports = [port_in(line) for line in demo.told if "http://" in line]
    demo.process.send_signal(number)
    told, errors = demo.end()
    assert errors == "", "no traceback"
    if moment is the_load_runs:
        assert demo.process.returncode == 0
        assert "The demo has ended" in told
    nothing_is_left(demo, children, *ports)


def test_a_terminal_that_presses_ctrl_c_twice_leaves_nothing(demo: Demo):
    the_load_runs(demo)
    children = demo.children()
    demo.process.send_signal(signal.SIGINT)
    with suppress(ProcessLookupError):
        demo.process.send_signal(signal.SIGINT)
    demo.end()
    wait_until(lambda: not any(child.is_running() for child in children), "the server has ended")
    nothing_is_left(demo, children)


def test_a_port_that_is_taken_is_told_in_a_sentence(tmp_path: Path):
    with socket.socket() as taken:
        with suppress(OSError):  # in use by another: as good
            taken.bind(("127.0.0.1", 9836))
            taken.listen()
        done = subprocess.run([*DEMO, "--seconds", "1"], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "inspector: 127.0.0.1:9836 is already in use; choose another with --listen\n"
