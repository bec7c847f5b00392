"""What a poll costs, a real llama.cpp server and us, beside what a scrape of the same server costs it and a real Prometheus.

    python bench/poll_cost.py

Inspector and Prometheus take turns, twice each, on one idle server; each asks it as often as the other. Prints processor time for each look, and the
ratios; exits with 1 above the promised ones. Prometheus comes from Debian's package.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import anyio
import httpx
import psutil

from inspector.demo.server import DemoServer

INTERVAL = 0.1
SECONDS = 12.0
ROUNDS = 2
PATIENCE = 60.0

PROMISED_OF_SERVER = 4.0
"""Most that a poll may cost the server, in scrapes: it asks up to three routes, and `/slots` is as long as there are slots."""
PROMISED_OF_US = 8.0
"""Most that a poll may cost us, in what a scrape costs Prometheus, which is written in Go and does not understand what it reads."""


@dataclass(frozen=True)
class Cost:
    """Processor seconds for each look: of the server, and of who looks."""

    looks: float
    server: float
    looker: float


def main() -> int:
    if shutil.which("prometheus") is None:
        sys.exit("prometheus is missing: install Debian's package of this name")
    return anyio.run(compare)


async def compare() -> int:
    async with DemoServer.start() as server:
        rounds = [(look(server, inspector), look(server, prometheus)) for _ in range(ROUNDS)]
    for poll, scrape in rounds:
        for name, cost in (("inspector", poll), ("prometheus", scrape)):
            print(f"{name:<12}{cost.looks:6.0f} looks   server {cost.server * 1e6:7.0f} us each   itself {cost.looker * 1e6:7.0f} us each")
    of_server = min(poll.server / scrape.server for poll, scrape in rounds)
    of_us = min(poll.looker / scrape.looker for poll, scrape in rounds)
    print(f"a poll in scrapes: server {of_server:.1f} (promised {PROMISED_OF_SERVER:g}), itself {of_us:.1f} (promised {PROMISED_OF_US:g})")
    return 0 if of_server <= PROMISED_OF_SERVER and of_us <= PROMISED_OF_US else 1


Looker = Callable[[DemoServer, Path, int], tuple[list[str], Callable[[str], float]]]


def look(server: DemoServer, looker: Looker) -> Cost:
    """One turn: the looker is started, left alone until it looks regularly, and measured for a while."""
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        argv, looks = looker(server, Path(folder), port)
        with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            try:
                return measured(process.pid, server.pid, lambda: looks(f"http://127.0.0.1:{port}"))
            finally:
                process.terminate()


def measured(looker: int, server: int, looks: Callable[[], float]) -> Cost:
    deadline = time.monotonic() + PATIENCE
    while looks() < 20:
        if time.monotonic() > deadline:
            sys.exit("it did not begin to look in time")
        time.sleep(0.5)
    before = looks(), spent(server), spent(looker)
    time.sleep(SECONDS)
    done, of_server, of_looker = (after - earlier for after, earlier in zip((looks(), spent(server), spent(looker)), before, strict=True))
    return Cost(done, of_server / done, of_looker / done)


def spent(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


def inspector(server: DemoServer, folder: Path, port: int) -> tuple[list[str], Callable[[str], float]]:
    config = folder / "inspector.yaml"
    target = {"name": "idle", "engine": "llamacpp", "url": server.url, "logs": str(server.log_path), "interval": INTERVAL, "may_wake": True}
    config.write_text(f"listen: 127.0.0.1:{port}\ntargets:\n  - {json.dumps(target)}\n")
    return [sys.executable, "-m", "inspector", "serve", "--config", str(config)], lambda url: sample(f"{url}/metrics", "inspector_polls_total{")


def prometheus(server: DemoServer, folder: Path, port: int) -> tuple[list[str], Callable[[str], float]]:
    config = folder / "prometheus.yaml"
    job = {"job_name": "llama", "static_configs": [{"targets": [server.url.removeprefix("http://")]}]}
    config.write_text(
        json.dumps({"global": {"scrape_interval": f"{INTERVAL * 1000:.0f}ms", "scrape_timeout": f"{INTERVAL * 1000:.0f}ms"}, "scrape_configs": [job]})
    )
    argv = ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address=127.0.0.1:{port}"]
    return argv, lambda url: sample(f"{url}/metrics", "prometheus_target_interval_length_seconds_count{")


def sample(url: str, start: str) -> float:
    """A sample of a page; 0 looks before there is one."""
    try:
        page = httpx.get(url, trust_env=False, verify=False, timeout=10.0).text
    except httpx.TransportError:
        return 0.0
    return next((float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line.startswith(start)), 0.0)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


if __name__ == "__main__":
    sys.exit(main())
