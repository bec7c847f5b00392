"""A server in a thread that answers with recorded bodies, for tests that run the inspector as a process of its own."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

BODIES = Path(__file__).parent / "fixtures" / "llamacpp" / "b11549"

BUSY: Mapping[str, tuple[int, bytes]] = {
    "/health": (200, (BODIES / "health.json").read_bytes()),
    "/props": (200, (BODIES / "props.json").read_bytes()),
    "/slots": (200, (BODIES / "slots-busy.json").read_bytes()),
    "/metrics": (200, (BODIES / "metrics-busy.txt").read_bytes()),
    "/v1/models": (200, (BODIES / "v1_models.json").read_bytes()),
}
"""A llama.cpp server with its slots at work, by path."""

DISABLED = (501, b'{"error":{"code":501,"message":"This server does not support it.","type":"not_supported_error"}}')


@dataclass
class RecordedServer:
    """`bodies` may be changed while it runs; `asked` holds method, path with query, and the Authorization header of each request."""

    url: str
    bodies: dict[str, tuple[int, bytes]]
    asked: list[tuple[str, str, str]] = field(default_factory=list)


@contextmanager
def recorded_server(bodies: Mapping[str, tuple[int, bytes]] = BUSY, key: str = "") -> Iterator[RecordedServer]:
    """Serves while the block lasts. With a `key`, all but /health answers 401 without it."""

    class Handler(BaseHTTPRequestHandler):
        wbufsize = -1  # Head and body in one write: two of them wait for one another.
        protocol_version = "HTTP/1.1"
        server_version, sys_version = "llama.cpp", ""

        def version_string(self) -> str:
            return "llama.cpp"

        def answer(self) -> None:
            authorization = self.headers.get("Authorization", "")
            said.asked.append((self.command, self.path, authorization))
            path = self.path.partition("?")[0]
            status, body = said.bodies.get(path, (404, b'{"error":{"code":404,"message":"File Not Found","type":"not_found_error"}}'))
            if key and path != "/health" and authorization != f"Bearer {key}":
                status, body = 401, b'{"error":{"code":401,"message":"Invalid API Key","type":"authentication_error"}}'
            self.send_response(status)
            self.send_header("Content-Type", "text/plain; version=0.0.4" if path == "/metrics" else "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_HEAD = answer

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """A client that goes away is part of some tests."""

    server = Server(("127.0.0.1", 0), Handler)
    said = RecordedServer(f"http://127.0.0.1:{server.server_port}", dict(bodies))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield said
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
