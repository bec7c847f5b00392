"""A server in front of a real one: writes down every request and passes the bytes on unchanged, or misbehaves as told.

It runs in a thread with an event loop of its own, so that blocking and async tests may use it alike; or, for many requests, in the test's own loop.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Self, TypeAlias
from urllib.parse import parse_qsl, urlsplit

import anyio
from anyio.abc import ByteReceiveStream, ByteStream, SocketStream, TaskStatus
from anyio.from_thread import start_blocking_portal
from anyio.streams.buffered import BufferedByteReceiveStream

LARGEST_HEAD = 65536
CLOSED = (anyio.EndOfStream, anyio.IncompleteRead, anyio.BrokenResourceError, anyio.ClosedResourceError)


@dataclass(frozen=True)
class Recorded:
    """One request as it arrived. `headers` has lower-case names."""

    method: str
    path: str
    query: tuple[tuple[str, str], ...]
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True)
class Pass:
    """Hand the request on; `delay` seconds later; break the connection after `cut` bytes of the answer; hand it back byte by byte with a `pause` between."""

    delay: float = 0.0
    cut: int | None = None
    pause: float = 0.0


@dataclass(frozen=True)
class Answer:
    """Answer in the server's stead."""

    status: int
    body: bytes = b""
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Freeze:
    """Take the request and never answer."""


Behaviour: TypeAlias = Pass | Answer | Freeze


class RecordingProxy:
    """`with RecordingProxy(server.url) as proxy:`: `proxy.url` stands for the server, `proxy.requests` grows with each request.

    `behave` decides for each request; it may be replaced at any time."""

    def __init__(self, upstream: str) -> None:
        split = urlsplit(upstream)
        self._upstream = (split.hostname or "127.0.0.1", split.port or 80)
        self._stack = ExitStack()
        self.requests: list[Recorded] = []
        self.behave: Callable[[Recorded], Behaviour] = lambda request: Pass()
        self.url = ""

    def __enter__(self) -> Self:
        portal = self._stack.enter_context(start_blocking_portal())
        serving, _ = portal.start_task(self._serve)
        self._stack.callback(serving.cancel)
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    @classmethod
    @asynccontextmanager
    async def beside(cls, upstream: str) -> AsyncIterator[Self]:
        """The same in the event loop of an async test: four times as fast, for the two do not hand one interpreter to and fro."""
        proxy = cls(upstream)
        async with anyio.create_task_group() as tasks:
            await tasks.start(proxy._serve)
            yield proxy
            tasks.cancel_scope.cancel()

    def asked(self) -> set[tuple[str, str, tuple[tuple[str, str], ...]]]:
        """The different requests so far: method, path, query."""
        return {(request.method, request.path, request.query) for request in self.requests}

    async def _serve(self, *, task_status: TaskStatus[None]) -> None:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
        async with listener:
            self.url = f"http://127.0.0.1:{listener.extra(anyio.abc.SocketAttribute.local_port)}"
            task_status.started()
            await listener.serve(self._connection)

    async def _connection(self, client: SocketStream) -> None:
        async with client:
            with suppress(*CLOSED):
                await self._exchange(client)

    async def _exchange(self, client: SocketStream) -> None:
        """All requests of one connection, in order; the answers flow back beside them."""
        incoming = BufferedByteReceiveStream(client)
        upstream: SocketStream | None = None
        manner = _Manner()
        async with anyio.create_task_group() as tasks:
            try:
                while True:
                    raw, request = await _read_request(incoming)
                    self.requests.append(request)
                    match self.behave(request):
                        case Freeze():
                            await anyio.sleep_forever()
                        case Answer() as answer:
                            await client.send(_encode(answer))
                        case Pass(delay, cut, pause):
                            await anyio.sleep(delay)
                            manner.left, manner.pause = cut, pause
                            if upstream is None:
                                upstream = await anyio.connect_tcp(*self._upstream)
                                tasks.start_soon(_pump, upstream, client, manner)
                            await upstream.send(raw)
            except (*CLOSED, OSError):
                tasks.cancel_scope.cancel()
            finally:
                if upstream is not None:
                    await anyio.aclose_forcefully(upstream)


async def _read_request(incoming: BufferedByteReceiveStream) -> tuple[bytes, Recorded]:
    """The next request: as it was sent, and taken apart."""
    head = await incoming.receive_until(b"\r\n\r\n", LARGEST_HEAD)
    first, *lines = head.decode("latin-1").split("\r\n")
    method, target, _version = first.split(" ", 2)
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    length = int(headers.get("content-length", "0"))
    body = await incoming.receive_exactly(length) if length else b""
    split = urlsplit(target)
    return head + b"\r\n\r\n" + body, Recorded(method, split.path, tuple(parse_qsl(split.query, keep_blank_values=True)), headers, body)


@dataclass
class _Manner:
    """How the answer under way is handed back: bytes until the connection breaks, seconds between two bytes."""

    left: int | None = None
    pause: float = 0.0


async def _pump(source: ByteReceiveStream, client: ByteStream, manner: _Manner) -> None:
    """Send on what arrives, for as long as may be; then the client is hung up on, as when a server dies."""
    with suppress(*CLOSED):
        while manner.left is None or manner.left > 0:
            chunk = await source.receive()
            if manner.left is not None:
                chunk = chunk[: manner.left]
                manner.left -= len(chunk)
            await (_drip(chunk, client, manner.pause) if manner.pause else client.send(chunk))
    await anyio.aclose_forcefully(client)


async def _drip(chunk: bytes, client: ByteStream, pause: float) -> None:
    for byte in chunk:
        await client.send(bytes([byte]))
        await anyio.sleep(pause)


def _encode(answer: Answer) -> bytes:
    lines = [f"HTTP/1.1 {answer.status} Replaced", f"Content-Type: {answer.content_type}", f"Content-Length: {len(answer.body)}"]
    lines += [f"{name}: {value}" for name, value in answer.headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + answer.body
