"""The web server: uvicorn inside our own task group. We bind the socket, we stop it, and a bind error is a sentence instead of an exit."""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Iterator

import anyio
import uvicorn
from anyio.abc import TaskStatus
from starlette.types import ASGIApp

GRACE = 1
"""Seconds that requests in progress may still take when the server is stopped."""


class ListenError(Exception):
    """The address cannot be listened on; the text says why and what to do."""


def bind(host: str, port: int) -> socket.socket:
    """A listening socket. `port` 0 takes a free one. Raises ListenError."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listener = socket.create_server(address[:2], family=family, dualstack_ipv6=host == "::")
    except socket.gaierror as error:
        raise ListenError(f"{host!r} is not an address of this machine: {error.strerror}") from error
    except OSError as error:
        raise ListenError(_told(address_text(host, port), error)) from error
    listener.setblocking(False)
    return listener


def address_of(listener: socket.socket) -> str:
    """HOST:PORT that a socket listens on."""
    host, port = listener.getsockname()[:2]
    return address_text(host, port)


def address_text(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def serve(app: ASGIApp, listener: socket.socket, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
    """Serves until cancelled, then lets requests in progress end for `GRACE` seconds. The socket is closed in any case."""
    config = uvicorn.Config(
        app,
        http="h11",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=GRACE,
    )
    server = _Server(config)
    with listener:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_run_shielded, server, listener)
            try:
                await server.answering.wait()
                task_status.started()
                await anyio.sleep_forever()
            finally:
                server.should_exit = True


async def _run_shielded(server: uvicorn.Server, listener: socket.socket) -> None:
    """Cancelling `Server.serve` would leave the port bound and lose the requests in progress; it ends by `should_exit`."""
    with anyio.CancelScope(shield=True):
        await server.serve(sockets=[listener])


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.answering = anyio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.answering.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals belong to the daemon."""
        yield


def _told(address: str, error: OSError) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            return f"{address} is already in use; choose another with --listen"
        case errno.EACCES:
            return f"{address} may not be used by this user; choose a port above 1023 with --listen"
        case errno.EADDRNOTAVAIL:
            return f"{address} is not an address of this machine; choose another with --listen"
        case _:
            return f"{address} cannot be listened on: {error.strerror}; choose another with --listen"
