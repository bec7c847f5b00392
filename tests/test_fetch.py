"""The client towards servers: what leaves the process, and what becomes of every way in which an answer can be bad."""

import ast
import contextlib
import gzip
import inspect
import logging
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import httpx
import pytest
import respx
import trustme
from anyio.abc import ByteStream, SocketAttribute
from anyio.streams.tls import TLSListener

import inspector.fetch.client
from inspector import __version__
from inspector.contract import Reply, Route
from inspector.fetch import Client, Endpoint, tls_context
from inspector.fetch.errors import TABLE, failure
from inspector.fetch.gunzip import Gunzip, NotGzipError, TooLargeError
from inspector.reading import Reason, Unknown
from inspector.secrets import Secret

pytestmark = pytest.mark.anyio

SLOTS = Route("/slots")
MODEL_SLOTS = Route("/slots", required=(("autoload", "false"),), allowed=frozenset({"model"}))
KEY = "sk-hunter2"
SOON = 0.3
"""A deadline that is meant to pass."""
AMPLE = 20.0

Handler = Callable[["Connection"], Awaitable[None]]


@dataclass
class Connection:
    """The server's side of one connection. `number` counts from 1."""

    stream: ByteStream
    number: int
    log: "Log"

    async def request(self) -> bytes:
        """The next request's head; raises anyio.EndOfStream when there is none."""
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += await self.stream.receive(1)
        self.log.requests.append(head.decode("latin-1"))
        return head

    async def send(self, data: bytes) -> None:
        await self.stream.send(data)


@dataclass
class Log:
    url: str = ""
    connections: int = 0
    requests: list[str] = field(default_factory=list)


def reply(body: bytes = b"[]", *headers: str, status: str = "200 OK") -> bytes:
    head = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


@contextlib.asynccontextmanager
async def serving(handler: Handler, *, path: Path | None = None, tls=None):
    """A server on a loopback port, or at a socket's path, whose connections are handled by `handler`."""
    log = Log()
    listener = await (anyio.create_unix_listener(path) if path else anyio.create_tcp_listener(local_host="127.0.0.1"))

    async def connected(stream: ByteStream) -> None:
        log.connections += 1
        async with stream:
            with contextlib.suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                await handler(Connection(stream, log.connections, log))

    port = None if path else listener.extra(SocketAttribute.local_port)
    log.url = f"unix:{path}" if path else f"{'https' if tls else 'http'}://127.0.0.1:{port}"
    async with TLSListener(listener, tls) if tls else listener as accepting, anyio.create_task_group() as group:
        group.start_soon(accepting.serve, connected)
        yield log
        group.cancel_scope.cancel()


def answering(*answers: bytes) -> Handler:
    """Answers the requests of each connection with these bytes in turn (the last one again and again) and keeps the connection."""

    async def handler(connection: Connection) -> None:
        for turn in range(1000):
            await connection.request()
            await connection.send(answers[min(turn, len(answers) - 1)])

    return handler


def closing_after(answer: bytes) -> Handler:
    async def handler(connection: Connection) -> None:
        await connection.request()
        await connection.send(answer)

    return handler


@contextlib.asynccontextmanager
async def asking(endpoint: str | Endpoint, **options):
    client = Client(Endpoint(endpoint) if isinstance(endpoint, str) else endpoint, **options)
    try:
        yield client
    finally:
        await client.aclose()


async def once(handler: Handler, *, deadline: float = AMPLE, route: Route = SLOTS, **options) -> Reply | Unknown:
    async with serving(handler) as server, asking(server.url, **options) as client:
        with anyio.fail_after(2 * AMPLE):
            return await client.get(route, deadline=deadline)


def reason(result: Reply | Unknown) -> Reason:
    assert isinstance(result, Unknown), result
    return result.reason


# --- What leaves the process ---------------------------------------------------------------------------------------------------------


async def test_a_request_says_this_and_nothing_else():
    async with serving(answering(reply())) as server, asking(server.url) as client:
        await client.get(SLOTS, deadline=AMPLE)
    host = server.url.removeprefix("http://")
    lines = server.requests[0].strip().split("\r\n")
    assert lines[0] == "GET /slots HTTP/1.1"
    assert sorted(lines[1:]) == sorted([f"Host: {host}", "Accept: */*", "Accept-Encoding: identity", f"User-Agent: inference-inspector/{__version__}"])


@pytest.mark.parametrize("base", ["", "/", "/gateway/llm", "/gateway/llm/"])
async def test_routes_lie_under_the_base_path(base):
    async with serving(answering(reply())) as server, asking(server.url + base) as client:
        await client.get(MODEL_SLOTS, {"model": "m"}, deadline=AMPLE)
    assert server.requests[0].startswith(f"GET {base.rstrip('/')}/slots?autoload=false&model=m HTTP/1.1\r\n")


@pytest.mark.parametrize(
    ("model", "encoded"),
    [
        ("ggml-org/gemma-3:Q4_K_M", "ggml-org%2Fgemma-3%3AQ4_K_M"),
        ("a b+c&autoload=true#x?%2F", "a%20b%2Bc%26autoload%3Dtrue%23x%3F%252F"),
        ("é\r\nHost: x", "%C3%A9%0D%0AHost%3A%20x"),
        ("", ""),
    ],
)
async def test_query_values_are_encoded(model, encoded):
    async with serving(answering(reply())) as server, asking(server.url) as client:
        await client.get(MODEL_SLOTS, {"model": model}, deadline=AMPLE)
    assert server.requests[0].startswith(f"GET /slots?autoload=false&model={encoded} HTTP/1.1\r\n")


async def test_a_required_name_may_stand_several_times():
    """vLLM's small page names each series that it wants: `name[]` again and again."""
    route = Route("/metrics/", required=(("name[]", "a:b"), ("name[]", "c"), ("name[]", "a:b")))
    async with serving(answering(reply())) as server, asking(server.url) as client:
        await client.get(route, {}, deadline=AMPLE)
    assert server.requests[0].startswith("GET /metrics/?name%5B%5D=a%3Ab&name%5B%5D=c&name%5B%5D=a%3Ab HTTP/1.1\r\n")


@pytest.mark.parametrize(
    ("route", "query"),
    [
        (SLOTS, {"model": "m"}),
        (MODEL_SLOTS, {"reload": "1"}),
        (MODEL_SLOTS, {"autoload": "true"}),
        (Route("/slots", required=(("autoload", "false"),), allowed=frozenset({"autoload"})), {"autoload": "true"}),
        (Route("slots"), {}),
        (Route("/slots?fail_on_no_slot=1"), {}),
    ],
)
async def test_what_a_route_does_not_allow_is_never_asked(route, query):
    router = respx.Router(assert_all_called=False)
    asked = router.route()
    async with asking("http://127.0.0.1:1", transport=httpx.MockTransport(router.async_handler)) as client:
        with pytest.raises(ValueError, match="route"):
            await client.get(route, query, deadline=AMPLE)
    assert not asked.called


def test_the_only_verb_is_get():
    """One request is made in the file, and its verb is a literal."""
    calls = [node for node in ast.walk(ast.parse(inspect.getsource(inspector.fetch.client))) if isinstance(node, ast.Call)]
    requests = [call for call in calls if ast.unparse(call.func) == "httpx.Request"]
    assert [ast.literal_eval(call.args[0]) for call in requests] == ["GET"]
    assert not [call for call in calls if ast.unparse(call.func) in ("httpx.AsyncClient", "httpx.Client")]


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "307 Temporary", "308 Permanent"])
async def test_a_redirect_is_an_answer_and_not_followed(status):
    async with serving(answering(reply(b"elsewhere"))) as other:
        moved = reply(b"", f"Location: {other.url}/slots", status=status)
        async with serving(answering(moved)) as server, asking(server.url) as client:
            result = await client.get(SLOTS, deadline=AMPLE)
    assert isinstance(result, Reply)
    assert (result.status, result.body, other.connections, len(server.requests)) == (int(status[:3]), b"", 0, 1)


async def test_cookies_are_not_kept():
    async with serving(answering(reply(b"[]", "Set-Cookie: session=1; Path=/"))) as server, asking(server.url) as client:
        await client.get(SLOTS, deadline=AMPLE)
        await client.get(SLOTS, deadline=AMPLE)
    assert "cookie" not in server.requests[1].lower()


async def test_the_environment_has_no_say(monkeypatch, tmp_path):
    """No proxy and no password file of the environment is used."""
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login user password hunter2\n")
    (tmp_path / ".netrc").chmod(0o600)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    async with serving(answering(reply(b"proxy"))) as proxy, serving(answering(reply(b"server"))) as server:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        async with asking(server.url) as client:
            result = await client.get(SLOTS, deadline=AMPLE)
    assert isinstance(result, Reply)
    assert (result.body, proxy.connections) == (b"server", 0)
    assert "authorization" not in server.requests[0].lower()


async def test_the_key_and_the_operators_headers_are_sent():
    async with serving(answering(reply())) as server, asking(Endpoint(server.url, Secret(KEY), {"X-Tenant": Secret("lab")})) as client:
        await client.get(SLOTS, deadline=AMPLE)
        await client.get(SLOTS, deadline=AMPLE, send_key=False)
    assert f"\r\nAuthorization: Bearer {KEY}\r\n" in server.requests[0]
    assert "\r\nX-Tenant: lab\r\n" in server.requests[0]
    assert KEY not in server.requests[1]
    assert "tenant" not in server.requests[1].lower()


async def test_the_operators_header_replaces_ours():
    theirs = {"user-agent": Secret("gatekeeper"), "host": Secret("llm.example")}
    async with serving(answering(reply())) as server, asking(Endpoint(server.url, headers=theirs)) as client:
        await client.get(SLOTS, deadline=AMPLE)
    lines = [line.lower() for line in server.requests[0].split("\r\n")]
    assert [line for line in lines if line.startswith(("user-agent:", "host:"))] in (
        ["host: llm.example", "user-agent: gatekeeper"],
        ["user-agent: gatekeeper", "host: llm.example"],
    )


async def test_a_socket_file_is_asked(tmp_path):
    async with serving(closing_after(reply(b"here")), path=tmp_path / "a.sock") as server, asking(f"{server.url}:/base") as client:
        result = await client.get(SLOTS, deadline=AMPLE)
    assert isinstance(result, Reply)
    assert result.body == b"here"
    assert server.requests[0].startswith("GET /base/slots HTTP/1.1\r\nHost: localhost\r\n")


# --- What comes back -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [200, 204, 304, 400, 401, 403, 404, 500, 501, 503])
async def test_any_status_is_an_answer(status):
    router = respx.Router()
    router.get("http://127.0.0.1:1/slots").respond(status, content=b"body")
    async with asking("http://127.0.0.1:1", transport=httpx.MockTransport(router.async_handler), clock=lambda: 12.5) as client:
        result = await client.get(SLOTS, deadline=AMPLE)
    assert isinstance(result, Reply)
    assert (result.status, result.body, result.at, result.route) == (status, b"body", 12.5, SLOTS)


async def test_the_time_is_that_of_asking():
    """A value is as old as the question, not as the answer."""
    times = iter([1.0, 2.0])
    result = await once(answering(reply()), clock=lambda: next(times))
    assert isinstance(result, Reply)
    assert result.at == 1.0


async def test_few_headers_are_passed_on():
    headers = ["Content-Type: text/plain; version=0.0.4", "SERVER: llama.cpp", "Process-Start-Time-Unix: 17", "X-Request-Id: 5", "Set-Cookie: a=b"]
    result = await once(answering(reply(b"[]", *headers)))
    assert isinstance(result, Reply)
    assert result.headers == {"content-type": "text/plain; version=0.0.4", "server": "llama.cpp", "process-start-time-unix": "17"}


async def test_an_empty_body_is_an_answer():
    result = await once(answering(reply(b"")))
    assert isinstance(result, Reply)
    assert (result.status, result.body) == (200, b"")


async def test_http_1_0_without_length_is_read_to_the_end():
    result = await once(closing_after(b"HTTP/1.0 200 OK\r\nServer: BaseHTTP\r\n\r\n" + b"x" * 100_000))
    assert isinstance(result, Reply)
    assert result.body == b"x" * 100_000


async def test_a_chunked_body_is_joined():
    result = await once(answering(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n"))
    assert isinstance(result, Reply)
    assert result.body == b"abcde"


async def test_switching_protocols_is_no_answer():
    answer = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nframes"
    assert reason(await once(answering(answer))) is Reason.INVALID


# --- Compression and size ------------------------------------------------------------------------------------------------------------

MOST = 65_536


@pytest.mark.parametrize("encoding", ["gzip", "x-gzip", "GZIP"])
@pytest.mark.parametrize("body", [b"", b"x", b"hello" * 5000])
async def test_gzip_that_was_not_asked_for_is_read(encoding, body):
    result = await once(answering(reply(gzip.compress(body, mtime=0), f"Content-Encoding: {encoding}")))
    assert isinstance(result, Reply)
    assert result.body == body


async def test_an_empty_gzip_body_is_empty():
    result = await once(answering(reply(b"", "Content-Encoding: gzip", status="304 Not Modified")))
    assert isinstance(result, Reply)
    assert result.body == b""


@pytest.mark.parametrize("encoding", ["br", "zstd", "deflate", "gzip, gzip", "unheard-of"])
async def test_an_unknown_encoding_is_invalid(encoding):
    assert reason(await once(answering(reply(b"data", f"Content-Encoding: {encoding}")))) is Reason.INVALID


@pytest.mark.parametrize(
    "data", [gzip.compress(b"hello" * 500, mtime=0)[:-3], gzip.compress(b"hello", mtime=0)[:8], b"not gzip", gzip.compress(b"hello", mtime=0) + b"tail"]
)
async def test_damaged_gzip_is_invalid(data):
    assert reason(await once(answering(reply(data, "Content-Encoding: gzip")))) is Reason.INVALID


@pytest.mark.parametrize("pack", [lambda body: reply(body), lambda body: reply(gzip.compress(body, mtime=0), "Content-Encoding: gzip")])
async def test_the_largest_body_is_taken_and_one_byte_more_is_not(pack):
    largest = bytes(MOST)
    result = await once(answering(pack(largest)), largest_body=MOST)
    assert isinstance(result, Reply)
    assert result.body == largest
    assert reason(await once(answering(pack(largest + b"x")), largest_body=MOST)) is Reason.INVALID


async def test_received_bytes_count_even_when_they_become_few():
    """Gzip members that hold nothing."""
    assert reason(await once(answering(reply(gzip.compress(b"", mtime=0) * 5000, "Content-Encoding: gzip")), largest_body=MOST)) is Reason.INVALID


async def test_an_endless_body_is_left_early():
    sent = 0
    ended = anyio.Event()

    async def handler(connection: Connection) -> None:
        nonlocal sent
        await connection.request()
        await connection.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        try:
            for _ in range(10_000):
                await connection.send(b"1000\r\n" + bytes(4096) + b"\r\n")
                sent += 4096
        finally:
            ended.set()

    async with serving(handler) as server, asking(server.url, largest_body=MOST) as client:
        result = await client.get(SLOTS, deadline=AMPLE)
        with anyio.fail_after(AMPLE):
            await ended.wait()
    assert reason(result) is Reason.INVALID
    assert sent < 10_000 * 4096


async def test_a_gzip_bomb_is_refused():
    bomb = gzip.compress(bytes(64 * 1024 * 1024))
    assert reason(await once(answering(reply(bomb, "Content-Encoding: gzip")))) is Reason.INVALID


def test_a_gzip_bomb_never_unfolds():
    gunzip = Gunzip(1000)
    with pytest.raises(TooLargeError):
        gunzip.feed(gzip.compress(bytes(10_000_000)))
    assert len(gunzip._body) == 1001


@pytest.mark.parametrize("step", [1, 7, 100_000])
def test_gzip_comes_in_any_pieces(step):
    data = gzip.compress(b"one", mtime=0) + gzip.compress(b"", mtime=0) + gzip.compress(b"two" * 1000, mtime=0)
    gunzip = Gunzip(MOST)
    for start in range(0, len(data), step):
        gunzip.feed(data[start : start + step])
    assert gunzip.finish() == b"one" + b"two" * 1000


@pytest.mark.parametrize("length", range(1, 24))
def test_gzip_that_ends_early_is_never_taken(length):
    gunzip = Gunzip(MOST)
    gunzip.feed(gzip.compress(b"hello", mtime=0)[:length])
    with pytest.raises(NotGzipError):
        gunzip.finish()


# --- What goes wrong -----------------------------------------------------------------------------------------------------------------


async def byte_by_byte_headers(connection: Connection) -> None:
    await connection.request()
    await connection.send(b"HTTP/1.1 200 OK\r\n")
    for number in range(10_000):
        await connection.send(b"X: y\r\n" if number % 2 else b"Z: y\r\n")
        await anyio.sleep(0.02)


async def byte_by_byte_body(connection: Connection) -> None:
    await connection.request()
    await connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    for _ in range(100_000):
        await connection.send(b"x")
        await anyio.sleep(0.02)


async def silent(connection: Connection) -> None:
    await connection.request()
    await anyio.sleep_forever()


async def continuing(connection: Connection) -> None:
    await connection.request()
    while True:
        await connection.send(b"HTTP/1.1 100 Continue\r\n\r\n" * 100)


SLOW = [silent, byte_by_byte_headers, byte_by_byte_body, continuing]


@pytest.mark.parametrize("handler", SLOW)
async def test_one_deadline_holds_for_the_whole_exchange(handler):
    assert reason(await once(handler, deadline=SOON)) is Reason.TIMEOUT


async def test_a_body_that_would_come_too_late_is_not_waited_for():
    """Nor is it a good answer: it would be one within two seconds."""

    async def late(connection: Connection) -> None:
        await connection.request()
        await connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n")
        for _ in range(100):
            await connection.send(b"x")
            await anyio.sleep(0.02)

    assert reason(await once(late, deadline=SOON)) is Reason.TIMEOUT


@pytest.mark.parametrize("handler", SLOW)
async def test_after_deadlines_the_client_still_works(handler):
    async def first_slow(connection: Connection) -> None:
        await (handler if connection.number <= 3 else answering(reply(b"well")))(connection)

    async with serving(first_slow) as server, asking(server.url) as client:
        slow = [await client.get(SLOTS, deadline=0.05) for _ in range(3)]
        well = await client.get(SLOTS, deadline=AMPLE)
    assert [reason(result) for result in slow] == [Reason.TIMEOUT] * 3
    assert isinstance(well, Reply)
    assert (well.body, server.connections) == (b"well", 4)


async def test_a_handshake_that_never_ends_is_a_timeout():
    async def mute(connection: Connection) -> None:
        await anyio.sleep_forever()

    async with serving(mute) as server, asking(server.url.replace("http:", "https:")) as client:
        assert [reason(await client.get(SLOTS, deadline=SOON)) for _ in range(3)] == [Reason.TIMEOUT] * 3


async def test_a_late_answer_does_not_become_that_of_the_next_question():
    """The connection of an exchange that was given up is not used again."""

    async def handler(connection: Connection) -> None:
        await connection.request()
        if connection.number == 1:
            await anyio.sleep(2 * SOON)
        await connection.send(reply(f"{connection.number}".encode()))

    async with serving(handler) as server, asking(server.url) as client:
        assert reason(await client.get(SLOTS, deadline=SOON)) is Reason.TIMEOUT
        result = await client.get(Route("/props"), deadline=AMPLE)
    assert isinstance(result, Reply)
    assert result.body == b"2"


async def test_nobody_listens():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        async with asking(f"http://127.0.0.1:{unused.getsockname()[1]}") as client:
            result = await client.get(SLOTS, deadline=AMPLE)
    assert reason(result) is Reason.UNREACHABLE
    assert "refused" in result.detail


async def test_a_socket_file_that_is_not_there(tmp_path):
    async with asking(f"unix:{tmp_path}/none.sock") as client:
        result = await client.get(SLOTS, deadline=AMPLE)
    assert reason(result) is Reason.UNREACHABLE
    assert str(tmp_path) not in result.detail


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"", Reason.UNREACHABLE),
        (b"HTTP/1.1 200 OK\r\nContent-Le", Reason.UNREACHABLE),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", Reason.INVALID),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab", Reason.INVALID),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nab", Reason.INVALID),
        (b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n", Reason.INVALID),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", Reason.INVALID),
        (b"HTTP/1.1 twohundred\r\n\r\n", Reason.INVALID),
        (b"SSH-2.0-OpenSSH_9.2\r\n", Reason.UNREACHABLE),
        (b"\x15\x03\x01\x00\x02\x02\x50", Reason.INVALID),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 300_000, Reason.INVALID),
        (b"HTTP/2 200\r\n\r\n", Reason.INVALID),
    ],
)
async def test_an_answer_that_is_not_whole(answer, why):
    assert reason(await once(closing_after(answer))) is why


async def test_a_reset_is_unreachable():
    async def resetting(connection: Connection) -> None:
        await connection.request()
        raw = connection.stream.extra(SocketAttribute.raw_socket)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    assert reason(await once(resetting)) is Reason.UNREACHABLE


# --- Kept connections ----------------------------------------------------------------------------------------------------------------


async def test_one_connection_serves_many_requests():
    async with serving(answering(reply())) as server, asking(server.url) as client:
        for _ in range(5):
            assert isinstance(await client.get(SLOTS, deadline=AMPLE), Reply)
    assert (server.connections, len(server.requests)) == (1, 5)


async def test_a_connection_that_the_server_closed_between_polls_is_replaced():
    async with serving(closing_after(reply())) as server, asking(server.url) as client:
        for _ in range(3):
            assert isinstance(await client.get(SLOTS, deadline=AMPLE), Reply)
            await anyio.sleep(0.05)
    assert (server.connections, len(server.requests)) == (3, 3)


async def test_a_connection_that_closes_under_the_request_is_replaced_once():
    """The server's idle timer and our question crossed."""

    async def handler(connection: Connection) -> None:
        await connection.request()
        await connection.send(reply(f"{connection.number}".encode()))
        await connection.request()

    async with serving(handler) as server, asking(server.url) as client:
        await client.get(SLOTS, deadline=AMPLE)
        result = await client.get(SLOTS, deadline=AMPLE)
    assert isinstance(result, Reply)
    assert (result.body, server.connections, len(server.requests)) == (b"2", 2, 3)


async def test_a_new_connection_that_closes_is_not_tried_again():
    async with serving(closing_after(b"")) as server, asking(server.url) as client:
        assert reason(await client.get(SLOTS, deadline=AMPLE)) is Reason.UNREACHABLE
    assert (server.connections, len(server.requests)) == (1, 1)


async def test_the_second_try_is_the_last():
    async def handler(connection: Connection) -> None:
        await connection.request()
        if connection.number == 1:
            await connection.send(reply())
            await connection.request()

    async with serving(handler) as server, asking(server.url) as client:
        await client.get(SLOTS, deadline=AMPLE)
        assert reason(await client.get(SLOTS, deadline=AMPLE)) is Reason.UNREACHABLE
    assert (server.connections, len(server.requests)) == (2, 3)


@pytest.mark.parametrize(
    ("second", "why"),
    [(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", Reason.INVALID), (b"garbage\r\n\r\n", Reason.INVALID), (None, Reason.TIMEOUT)],
)
async def test_an_exchange_that_went_further_is_not_tried_again(second, why):
    """A question that may have cost the server work is not put twice."""

    async def handler(connection: Connection) -> None:
        await connection.request()
        await connection.send(reply())
        await connection.request()
        if second is None:
            await anyio.sleep_forever()
        await connection.send(second)

    async with serving(handler) as server, asking(server.url) as client:
        await client.get(SLOTS, deadline=AMPLE)
        assert reason(await client.get(SLOTS, deadline=SOON if second is None else AMPLE)) is why
    assert (server.connections, len(server.requests)) == (1, 2)


async def test_a_closed_client_leaves_no_connection():
    ended = anyio.Event()

    async def handler(connection: Connection) -> None:
        try:
            await answering(reply())(connection)
        finally:
            ended.set()

    async with serving(handler) as server:
        async with asking(server.url) as client:
            await client.get(SLOTS, deadline=AMPLE)
        with anyio.fail_after(AMPLE):
            await ended.wait()


# --- TLS -----------------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return _written(trustme.CA(), tmp_path_factory.mktemp("ca") / "ca.pem")


@pytest.fixture(scope="module")
def other_authority(tmp_path_factory):
    return _written(trustme.CA(), tmp_path_factory.mktemp("other") / "ca.pem")


def _written(ca: trustme.CA, path: Path) -> tuple[trustme.CA, Path]:
    ca.cert_pem.write_to_path(path)
    return ca, path


def server_context(ca: trustme.CA, name: str = "127.0.0.1", *, wants_client: bool = False):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert(name).configure_cert(context)
    if wants_client:
        context.verify_mode = ssl.CERT_REQUIRED
        ca.configure_trust(context)
    return context


async def over_tls(context, **files) -> Reply | Unknown:
    async with serving(answering(reply(b"secret")), tls=context) as server, asking(Endpoint(server.url, Secret(KEY), **files)) as client:
        result = await client.get(SLOTS, deadline=AMPLE)
        again = await client.get(SLOTS, deadline=AMPLE)
    assert type(result) is type(again)
    assert isinstance(result, Unknown) == (server.requests == [])
    return result


async def test_the_named_authority_is_trusted(authority):
    ca, ca_file = authority
    result = await over_tls(server_context(ca), ca_file=ca_file)
    assert isinstance(result, Reply)
    assert result.body == b"secret"


async def test_a_shared_context_is_used(authority):
    ca, ca_file = authority
    async with serving(answering(reply()), tls=server_context(ca)) as server, asking(server.url, ssl_context=tls_context(ca_file)) as client:
        assert isinstance(await client.get(SLOTS, deadline=AMPLE), Reply)


async def test_an_unknown_authority_is_refused_before_the_key_is_sent(authority, other_authority, caplog):
    ca, _ = authority
    _, other = other_authority
    for files in ({"ca_file": other}, {}):
        result = await over_tls(server_context(ca), **files)
        assert reason(result) is Reason.UNREACHABLE
        assert "certificate" in result.detail
        assert "tls.ca_file" in result.detail


@pytest.mark.parametrize(("host", "name"), [("127.0.0.1", "elsewhere.example"), ("127.0.0.1", "127.0.0.9"), ("localhost", "elsewhere.example")])
async def test_another_hosts_certificate_is_refused_and_not_blamed_on_its_authority(authority, host, name):
    ca, ca_file = authority
    async with (
        serving(answering(reply()), tls=server_context(ca, name)) as server,
        asking(Endpoint(server.url.replace("127.0.0.1", host), ca_file=ca_file)) as client,
    ):
        result = await client.get(SLOTS, deadline=AMPLE)
    assert reason(result) is Reason.UNREACHABLE
    assert "certificate is for another name" in result.detail
    assert "ca_file" not in result.detail


@pytest.fixture(scope="module")
def client_files(authority, tmp_path_factory):
    ca, _ = authority
    folder = tmp_path_factory.mktemp("client")
    certificate = ca.issue_cert("inspector@example.com")
    certificate.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    certificate.private_key_pem.write_to_path(folder / "key.pem")
    certificate.private_key_and_cert_chain_pem.write_to_path(folder / "both.pem")
    return folder


@pytest.mark.parametrize("names", [{"cert_file": "cert.pem", "key_file": "key.pem"}, {"cert_file": "both.pem"}])
async def test_a_client_certificate_is_shown(authority, client_files, names):
    ca, ca_file = authority
    files = {kind: client_files / name for kind, name in names.items()}
    assert isinstance(await over_tls(server_context(ca, wants_client=True), ca_file=ca_file, **files), Reply)


async def test_a_missing_client_certificate_is_named(authority):
    """The server's refusal comes after the handshake in TLS 1.3, as an alert where the answer should be."""
    ca, ca_file = authority
    async with serving(answering(reply()), tls=server_context(ca, wants_client=True)) as server, asking(Endpoint(server.url, ca_file=ca_file)) as client:
        result = await client.get(SLOTS, deadline=AMPLE)
    assert reason(result) is Reason.UNREACHABLE
    assert server.requests == []


async def test_https_to_a_server_that_speaks_http():
    async with serving(closing_after(reply())) as server, asking(server.url.replace("http:", "https:")) as client:
        with_tls = await client.get(SLOTS, deadline=SOON)
    assert reason(with_tls) in (Reason.UNREACHABLE, Reason.TIMEOUT)


async def test_plain_answer_to_a_handshake_names_tls():
    async def plain(connection: Connection) -> None:
        await connection.stream.receive(1)
        await connection.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with serving(plain) as server, asking(server.url.replace("http:", "https:")) as client:
        result = await client.get(SLOTS, deadline=AMPLE)
    assert reason(result) is Reason.UNREACHABLE
    assert "TLS" in result.detail


@pytest.mark.parametrize("kind", ["ca_file", "cert_file"])
async def test_a_tls_file_that_went_away_is_data_too(kind, tmp_path):
    async with asking(Endpoint("https://127.0.0.1:1", Secret(KEY), **{kind: tmp_path / "gone.pem"})) as client:
        result = await client.get(SLOTS, deadline=AMPLE)
    assert reason(result) is Reason.UNREACHABLE
    assert "tls" in result.detail
    assert str(tmp_path) not in result.detail


# --- Exceptions and secrets ----------------------------------------------------------------------------------------------------------

EXCEPTIONS = sorted((getattr(httpx, name) for name in httpx.__all__), key=str)
EXCEPTIONS = [kind for kind in EXCEPTIONS if isinstance(kind, type) and issubclass(kind, Exception)]
TIMEOUTS = {httpx.TimeoutException, httpx.ConnectTimeout, httpx.ReadTimeout, httpx.WriteTimeout, httpx.PoolTimeout}
DOWN = {httpx.ConnectError, httpx.ReadError, httpx.WriteError, httpx.CloseError, httpx.NetworkError, httpx.ProxyError}


def test_every_exception_of_httpx_is_in_the_table():
    assert len(EXCEPTIONS) > 20
    assert [kind for kind in EXCEPTIONS if kind not in TABLE] == []


@pytest.mark.parametrize("kind", EXCEPTIONS)
async def test_every_exception_becomes_an_unknown_without_its_text(kind):
    def raising(request: httpx.Request) -> httpx.Response:
        error = kind.__new__(kind)
        Exception.__init__(error, f"Illegal header value b'Bearer {KEY}'")
        raise error

    async with asking(Endpoint("http://127.0.0.1:1", Secret(KEY)), transport=httpx.MockTransport(raising)) as client:
        result = await client.get(SLOTS, deadline=AMPLE)
    assert isinstance(result, Unknown)
    assert KEY not in repr(result)
    if kind in TIMEOUTS:
        assert result.reason is Reason.TIMEOUT
    if kind in DOWN:
        assert result.reason is Reason.UNREACHABLE
    if issubclass(kind, httpx.ProtocolError | httpx.DecodingError | httpx.StreamError | httpx.InvalidURL):
        assert result.reason is Reason.INVALID


@pytest.mark.parametrize("kind", TABLE)
def test_every_detail_tells_what_to_do(kind):
    error = kind.__new__(kind)
    assert ";" in failure(error).detail


async def test_a_mistake_of_ours_is_not_hidden_as_a_fault_of_the_server():
    def raising(request: httpx.Request) -> httpx.Response:
        raise ZeroDivisionError

    async with asking("http://127.0.0.1:1", transport=httpx.MockTransport(raising)) as client:
        with pytest.raises(ZeroDivisionError):
            await client.get(SLOTS, deadline=AMPLE)


@pytest.mark.parametrize("key", [f"{KEY}\r\nHost: elsewhere", f"{KEY}\n", f"{KEY}é", f"{KEY}\x00"])
async def test_a_key_that_cannot_be_sent_is_not_sent_and_not_told(key):
    async with serving(answering(reply())) as server, asking(Endpoint(server.url, Secret(key))) as client:
        result = await client.get(SLOTS, deadline=AMPLE)
    assert reason(result) is Reason.INVALID
    assert KEY not in repr(result)
    assert server.requests == []


async def test_nothing_that_is_logged_holds_a_key(caplog):
    """httpx and httpcore log at the lowest level what they do."""
    caplog.set_level(logging.DEBUG)
    async with serving(answering(reply())) as server, asking(Endpoint(server.url, Secret(KEY), {"X-Tenant": Secret("lab-tenant")})) as client:
        await client.get(SLOTS, deadline=AMPLE)
        assert caplog.records
        assert KEY not in repr(client) + repr(vars(client))
    for record in caplog.records:
        assert KEY not in record.getMessage() + repr(record.args)
        assert "lab-tenant" not in record.getMessage() + repr(record.args)


def test_a_password_in_the_url_is_refused_without_being_told():
    with pytest.raises(ValueError) as refused:
        Client(Endpoint("http://user:hunter2@127.0.0.1:8080"))
    assert "hunter2" not in str(refused.value)
