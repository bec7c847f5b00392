"""An Alertmanager in a thread that takes alerts and tells those that fire, for tests of what is sent there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


@dataclass
class FakeAlertmanager:
    """`posts` holds every list of alerts that arrived, `status` what it answers, `authorization` what came with each request."""

    url: str
    status: int = 200
    posts: list[list[dict[str, Any]]] = field(default_factory=list)
    active: list[dict[str, Any]] = field(default_factory=list)
    authorization: list[str] = field(default_factory=list)

    def told(self, name: str) -> list[dict[str, Any]]:
        """Every telling of an alert, in order."""
        return [alert for post in self.posts for alert in post if alert["labels"]["alertname"] == name]


@contextmanager
def fake_alertmanager() -> Iterator[FakeAlertmanager]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            said.authorization.append(self.headers.get("Authorization", ""))
            if said.status == 200:
                said.posts.append(body)
            self.answer(b"")

        def do_GET(self) -> None:
            self.answer(json.dumps(said.active).encode())

        def answer(self, body: bytes) -> None:
            self.send_response(said.status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    said = FakeAlertmanager(f"http://127.0.0.1:{server.server_address[1]}")
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield said
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
