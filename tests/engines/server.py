"""A server process of a test: started with its output in a file, stopped by pid, nothing left behind."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx
import psutil

READY_SECONDS = 60.0
STOP_SECONDS = 10.0
GOODBYE_SECONDS = 2.0
"""A llama-server that is told to end in the middle of a request may wait for ever; then it is killed."""


class ServerDiedError(RuntimeError):
    def __init__(self, code: int, log: str) -> None:
        super().__init__(f"the server ended with code {code}; the end of its log:\n{log[-2000:]}")
        self.code = code


def wait_until(condition: Callable[[], bool], what: str, seconds: float = 30.0, pause: float = 0.02) -> None:
    """Return when `condition` holds; fail the test, saying `what` was waited for, when it does not in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"after {seconds:g} s still not: {what}")
        time.sleep(pause)


class Server:
    """A running server. `argv` must make it listen on loopback and, with `find_url`, tell where; the log file keeps growing over restarts of the same path."""

    def __init__(
        self, argv: Sequence[str], log: Path, find_url: Callable[[str], str | None], *, env: Mapping[str, str] | None = None, wait: bool = True
    ) -> None:
        self.argv = list(argv)
        self.log_path = log
        self._skip = log.stat().st_size if log.exists() else 0
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("LLAMA_")}
        with log.open("ab") as output:
            # Input stays open: a server that watches it ends with us, however we end.
            self._process = subprocess.Popen(
                self.argv, stdin=subprocess.PIPE, stdout=output, stderr=output, env=inherited | dict(env or {}), start_new_session=True
            )
        self.pid = self._process.pid
        try:
            self.url = self._wait_for_url(find_url)
            if wait:
                self.wait_ready()
        except BaseException:
            self.stop()
            raise

    def log_text(self) -> str:
        """All that this process has written so far."""
        with self.log_path.open("rb") as log:
            log.seek(self._skip)
            return log.read().decode(errors="replace")

    @property
    def port(self) -> int:
        port = httpx.URL(self.url).port
        assert port is not None
        return port

    def alive(self) -> bool:
        return self._process.poll() is None

    def children(self) -> list[psutil.Process]:
        """Processes below this one, as a router has."""
        try:
            return psutil.Process(self.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []

    def wait_ready(self, seconds: float = READY_SECONDS) -> None:
        """Return when /health says 200."""

        def ready() -> bool:
            self._fail_if_dead()
            try:
                return httpx.get(f"{self.url}/health", timeout=2.0, trust_env=False, verify=False).status_code == 200
            except httpx.TransportError:
                return False

        wait_until(ready, f"{self.url}/health says 200", seconds)

    def wait_log(self, text: str, seconds: float = 30.0, times: int = 1) -> None:
        """Return when the log holds `text` at least so many times."""
        wait_until(lambda: self.log_text().count(text) >= times, f"{text!r} stands {times} times in the log", seconds)

    def stop(self) -> None:
        """End the process and those below it, and wait until they are gone. Harmless when it is gone already."""
        below = self.children()
        if self._process.poll() is None:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(GOODBYE_SECONDS)
        self.kill(below)

    def kill(self, below: Sequence[psutil.Process] = ()) -> None:
        """End the process as a crash does: no goodbye, connections reset."""
        below = below or self.children()
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(STOP_SECONDS)
        for process in below:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(below, timeout=STOP_SECONDS)
        if self._process.stdin is not None:
            self._process.stdin.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def _fail_if_dead(self) -> None:
        code = self._process.poll()
        if code is not None:
            raise ServerDiedError(code, self.log_text())

    def _wait_for_url(self, find_url: Callable[[str], str | None]) -> str:
        found: list[str] = []

        def said() -> bool:
            text = self.log_text()
            url = find_url(text)
            if url is None:
                self._fail_if_dead()
            else:
                found.append(url)
            return bool(found)

        wait_until(said, "the server says where it listens", READY_SECONDS)
        return found[0]
