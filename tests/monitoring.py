"""Real Prometheus, Alertmanager and inspector processes for tests, and a receiver that writes down what Alertmanager tells people."""

from __future__ import annotations

import json
import re
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import yaml

from engines.server import Server, wait_until
from tools import tool

DEPLOY = Path(__file__).parents[1] / "deploy"

DURATION = re.compile(r"\b([0-9]+)m\b")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def get(url: str, **query: str | Sequence[str]) -> Any:
    """The JSON of an answer."""
    return httpx.get(url, params=query, timeout=10.0, trust_env=False, verify=False).raise_for_status().json()


def answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=2.0, trust_env=False, verify=False).status_code == 200
    except httpx.TransportError:
        return False


@contextmanager
def started(argv: Sequence[str], port: int, ready: str, log: Path) -> Iterator[Server]:
    """A process that listens on a port, once its readiness path answers."""
    with Server(argv, log, lambda _: f"http://127.0.0.1:{port}", wait=False) as server:
        wait_until(lambda: answers(server.url + ready) or not server.alive(), f"{argv[0]} answers", 60)
        assert server.alive(), server.log_text()[-2000:]
        yield server


def inspector(config: Path, port: int, log: Path) -> Any:
    """The daemon, as its users start it."""
    argv = [sys.executable, "-m", "inspector", "serve", "--config", str(config), "--listen", f"127.0.0.1:{port}", "--log-format", "json"]
    return started(argv, port, "/-/ready", log)


# --- Alertmanager -----------------------------------------------------------------------------------------------------------------------------


def alertmanager(folder: Path, receiver: str, port: int) -> Any:
    """Alertmanager with its state in `folder`: started there once more it is the same one. It tells every change at once."""
    route = {"receiver": "people", "group_by": ["..."], "group_wait": "0s", "group_interval": "1s", "repeat_interval": "1h"}
    config = {"route": route, "receivers": [{"name": "people", "webhook_configs": [{"url": receiver, "send_resolved": True}]}]}
    file = folder / "alertmanager.yaml"
    file.write_text(yaml.safe_dump(config))
    argv = [
        tool("prometheus-alertmanager"),
        f"--config.file={file}",
        f"--storage.path={folder / 'alertmanager'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--cluster.listen-address=",
    ]
    return started(argv, port, "/-/ready", folder / "alertmanager.log")


class Receiver:
    """What reached people: (alert, severity, target, status) in order."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, str, str]] = []
        self.url = ""

    def of(self, alert: str, severity: str) -> list[str]:
        """The statuses that were told of an alert, in order."""
        return [status for name, level, _, status in self.told if (name, level) == (alert, severity)]


@contextmanager
def receiver() -> Iterator[Receiver]:
    made = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            for alert in json.loads(self.rfile.read(int(self.headers["Content-Length"])))["alerts"]:
                labels = alert["labels"]
                made.told.append((labels["alertname"], labels.get("severity", ""), labels.get("target", ""), alert["status"]))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    made.url = f"http://127.0.0.1:{server.server_address[1]}/"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


# --- Prometheus -------------------------------------------------------------------------------------------------------------------------------


def prometheus(folder: Path, scraped: Sequence[str], *, port: int, alertmanager: str | None = None, rules: Sequence[Path] = ()) -> Any:
    """Prometheus that scrapes the given inspectors (HOST:PORT) each second."""
    config: dict[str, Any] = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "500ms"},
        "rule_files": [str(path) for path in rules],
        "scrape_configs": [{"job_name": "inspector", "static_configs": [{"targets": list(scraped)}]}],
    }
    if alertmanager is not None:
        config["alerting"] = {"alertmanagers": [{"static_configs": [{"targets": [alertmanager.removeprefix("http://")]}]}]}
    file = folder / "prometheus.yaml"
    file.write_text(yaml.safe_dump(config))
    argv = [
        tool("prometheus"),
        f"--config.file={file}",
        f"--storage.tsdb.path={folder / 'prometheus'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=warn",
    ]
    return started(argv, port, "/-/ready", folder / "prometheus.log")


def query(url: str, expression: str) -> list[dict[str, Any]]:
    """The result of an instant query."""
    found: list[dict[str, Any]] = get(f"{url}/api/v1/query", query=expression)["data"]["result"]
    return found


def hastened(rules: Path, folder: Path) -> Path:
    """The shipped rules with a second for each minute, so that a test need not wait; nothing else is changed."""
    made = folder / rules.name
    made.write_text(DURATION.sub(r"\1s", rules.read_text()))
    return made


def wait_for(holds: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
    wait_until(holds, what, seconds, 0.1)
