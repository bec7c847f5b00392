"""Memory that an idle `inspector serve` holds with one target, a real llama.cpp server.

    python bench/resident.py

Reads the process's resident size after its first polls, and again after Prometheus has scraped it as often. Exits with 1 above the promised size.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import anyio
import httpx
import psutil

from inspector.demo.server import DemoServer

PROMISED = 60.0
"""Megabytes of 10^6 bytes."""
POLLS = 20
INTERVAL = "100ms"
PATIENCE = 60.0


async def main() -> int:
    async with DemoServer.start() as server:
        with tempfile.TemporaryDirectory() as folder:
            config = Path(folder, "inspector.yaml")
            target = {"name": "idle", "engine": "llamacpp", "url": server.url, "logs": str(server.log_path), "interval": INTERVAL}
            config.write_text(f"listen: 127.0.0.1:0\ntargets:\n  - {json.dumps(target)}\n")
            with subprocess.Popen(
                [sys.executable, "-m", "inspector", "serve", "--config", str(config), "--log-format", "json"], stderr=subprocess.PIPE
            ) as process:
                try:
                    return measure(process)
                finally:
                    process.terminate()


def measure(process: subprocess.Popen[bytes]) -> int:
    url = address(process)
    polled = wait_for_polls(url)
    sizes = {f"after {polled:.0f} polls": resident(process.pid)}
    for _ in range(POLLS):
        httpx.get(f"{url}metrics", trust_env=False)
    sizes[f"after {POLLS} scrapes more"] = resident(process.pid)
    for name, size in sizes.items():
        print(f"{name:<24}{size:6.1f} MB")
    print(f"{'promised':<24}{PROMISED:6.1f} MB")
    return 0 if max(sizes.values()) <= PROMISED else 1


def address(process: subprocess.Popen[bytes]) -> str:
    """Where the inspector says that it answers."""
    assert process.stderr is not None
    for line in process.stderr:
        told = json.loads(line)
        if "address" in told:
            return str(told["address"])
    sys.exit("the inspector ended before it answered")


def wait_for_polls(url: str) -> float:
    """Polls so far, at least so many as wanted. Asked seldom: the daemon is to be idle."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        time.sleep(POLLS / 10)
        page = httpx.get(f"{url}metrics", trust_env=False).text
        polls = [float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line.startswith("inspector_polls_total{")]
        if polls and polls[0] >= POLLS:
            return polls[0]
    sys.exit("the target was not polled in time")


def resident(pid: int) -> float:
    return psutil.Process(pid).memory_info().rss / 1e6


if __name__ == "__main__":
    sys.exit(anyio.run(main))
