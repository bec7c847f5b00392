"""The one HTTP client towards inspected servers.

It can do one thing: GET a route of an adapter, under the target's base path, within one deadline and one size. It follows no redirect, keeps no cookie, and
reads no proxy or password from the environment: it drives httpx's transport itself, below the client that would do these. What goes wrong on the way
becomes an `Unknown` here, from a table of fixed sentences, so that no key can be part of one.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import anyio
import httpx

from inspector import __version__
from inspector.address import Address, parse_address
from inspector.contract import Reply, Route
from inspector.fetch.errors import ENCODING, FAILURES, TOO_LARGE, TRUNCATED, failure, hung_up
from inspector.fetch.gunzip import Gunzip, NotGzipError, TooLargeError
from inspector.reading import Unknown
from inspector.secrets import Secret

LARGEST_BODY = 8 * 1024 * 1024
"""Bytes of a body, both as received and as decompressed. The largest real one, `/slots` of 256 slots, has a third of a megabyte."""

PASSED_ON = ("content-type", "server", "process-start-time-unix")
"""The reply headers that an adapter may see."""

KEPT_FOR = 600.0
"""Seconds that an idle connection is kept. Most servers close it earlier, which the pool notices before it sends."""


@dataclass(frozen=True)
class Endpoint:
    """How to reach one server: its URL (see `inspector.address`), the key and the headers that the operator gave for it, and TLS files."""

    url: str
    api_key: Secret | None = None
    headers: Mapping[str, Secret] = field(default_factory=dict)
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None


class Client:
    """Asks one server. It holds one connection open between requests; its owner sees to it that requests come one after the other.

    `ssl_context` is shared by all clients whose endpoint names no TLS files of its own; building one costs more than hundreds of polls.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        transport: httpx.AsyncBaseTransport | None = None,
        ssl_context: ssl.SSLContext | None = None,
        largest_body: int = LARGEST_BODY,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._endpoint = endpoint
        self._address = parse_address(endpoint.url)
        self._transport = transport
        self._ssl_context = ssl_context
        self._largest_body = largest_body
        self._clock = clock

    async def get(self, route: Route, query: Mapping[str, str] | None = None, *, deadline: float, send_key: bool = True) -> Reply | Unknown:
        """What the server answered, whatever the status, with the time at which it was asked; Unknown when there is no answer that can be used.

        `deadline`: seconds for the whole exchange, from connecting to the last byte. `send_key` False withholds the key and the operator's headers.
        Raises ValueError for a query that the route does not allow: that is a mistake in an adapter.
        """
        target = _target(route, query or {})
        at = self._clock()
        try:
            with anyio.fail_after(deadline):
                response, body = await self._exchange(self._request(target, send_key))
        except FAILURES as error:
            return failure(error)
        if isinstance(body, Unknown):
            return body
        headers = {name: value for name in PASSED_ON if (value := response.headers.get(name)) is not None}
        return Reply(route, response.status_code, headers, body, at)

    async def aclose(self) -> None:
        """Closes the connection."""
        if self._transport is not None:
            await self._transport.aclose()

    def _request(self, target: str, send_key: bool) -> httpx.Request:
        ours = {"Accept": "*/*", "Accept-Encoding": "identity", "User-Agent": f"inference-inspector/{__version__}"}
        if send_key and self._endpoint.api_key is not None:
            ours["Authorization"] = f"Bearer {self._endpoint.api_key.get_secret_value()}"
        theirs = {name: value.get_secret_value() for name, value in self._endpoint.headers.items()} if send_key else {}
        replaced = {name.lower() for name in theirs}
        headers = {name: value for name, value in ours.items() if name.lower() not in replaced} | theirs
        return httpx.Request("GET", self._address.root + target, headers=headers)

    async def _exchange(self, request: httpx.Request) -> tuple[httpx.Response, bytes | Unknown]:
        course = _Course()
        request.extensions["trace"] = course
        try:
            response = await self._send(request, course)
            try:
                return response, await _read(response, self._largest_body)
            finally:
                with anyio.CancelScope(shield=True):
                    await response.aclose()
        except BaseException:
            with anyio.CancelScope(shield=True):
                await course.abandon()
            raise

    async def _send(self, request: httpx.Request, course: _Course) -> httpx.Response:
        """The response, its body still to come. A kept connection that the server was just closing is replaced, once: nothing was answered on it."""
        if self._transport is None:
            self._transport = _transport(self._address, self._endpoint, self._ssl_context)
        try:
            return await self._transport.handle_async_request(request)
        except httpx.TransportError as error:
            if not (course.reused and hung_up(error)):
                raise
        return await self._transport.handle_async_request(request)


class _Course:
    """Listens to httpcore: whether an exchange used a kept connection (it does not begin with connecting), and which one it opened."""

    def __init__(self) -> None:
        self.first = ""
        self.opened: Any = None

    @property
    def reused(self) -> bool:
        return self.first.startswith("http11.")

    async def __call__(self, event: str, info: Mapping[str, Any]) -> None:
        self.first = self.first or event
        if event in ("connection.connect_tcp.complete", "connection.connect_unix_socket.complete"):
            self.opened = info["return_value"]

    async def abandon(self) -> None:
        """Closes what was opened: httpcore forgets a connection whose TLS handshake is cancelled."""
        if self.opened is not None:
            await self.opened.aclose()


def tls_context(ca_file: Path | None = None, cert_file: Path | None = None, key_file: Path | None = None) -> ssl.SSLContext:
    """Trust in the given authority, else in the system's; with the client certificate if one is given. Raises OSError, ssl.SSLError among them."""
    context = ssl.create_default_context(cafile=ca_file)
    if cert_file is not None:
        context.load_cert_chain(cert_file, key_file, password="")  # An encrypted key fails instead of asking at the terminal.
    return context


def _transport(address: Address, endpoint: Endpoint, shared: ssl.SSLContext | None) -> httpx.AsyncHTTPTransport:
    files = (endpoint.ca_file, endpoint.cert_file, endpoint.key_file)
    if address.scheme != "https":
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # Never used, trusts nobody; without it httpx would load all authorities.
    elif any(files) or shared is None:
        context = tls_context(*files)
    else:
        context = shared
    limits = httpx.Limits(max_connections=2, max_keepalive_connections=1, keepalive_expiry=KEPT_FOR)
    return httpx.AsyncHTTPTransport(verify=context, trust_env=False, limits=limits, uds=address.socket)


def _target(route: Route, query: Mapping[str, str]) -> str:
    """Path and query of a request: what the route requires, and what it allows."""
    if not route.path.startswith("/") or "?" in route.path:
        raise ValueError(f"route {route.path!r} is not a plain path")
    if refused := query.keys() - (route.allowed - {name for name, _ in route.required}):
        raise ValueError(f"route {route.path} does not allow {', '.join(sorted(refused))} in its query")
    pairs = [*route.required, *query.items()]  # A required name may stand several times, as `name[]` does.
    return route.path + ("?" + urlencode(pairs, quote_via=quote, safe="", errors="replace") if pairs else "")


async def _read(response: httpx.Response, most: int) -> bytes | Unknown:
    """The body, decompressed; stops reading as soon as either size is above `most`."""
    encoding = response.headers.get("content-encoding", "").strip().lower()
    if encoding not in ("", "identity", "gzip", "x-gzip"):
        return ENCODING
    stream = response.stream
    assert isinstance(stream, httpx.AsyncByteStream)  # noqa: S101 - an async transport's streams are async
    try:
        raw = _capped(stream, most)
        return await (_gunzipped(raw, most) if encoding.endswith("gzip") else _joined(raw))
    except TooLargeError:
        return TOO_LARGE
    except NotGzipError:
        return TRUNCATED


async def _capped(stream: httpx.AsyncByteStream, most: int) -> AsyncIterator[bytes]:
    size = 0
    async for chunk in stream:
        size += len(chunk)
        if size > most:
            raise TooLargeError
        yield chunk


async def _joined(chunks: AsyncIterator[bytes]) -> bytes:
    body = bytearray()
    async for chunk in chunks:
        body += chunk
    return bytes(body)


async def _gunzipped(chunks: AsyncIterator[bytes], most: int) -> bytes:
    gunzip = Gunzip(most)
    async for chunk in chunks:
        gunzip.feed(chunk)
    return gunzip.finish()
