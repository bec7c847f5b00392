"""The web server wrapper on real sockets."""

import contextlib
import io
import signal
import socket

import anyio
import httpx
import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from inspector.journal import Secrets, set_up
from inspector.server import ListenError, address_of, bind, serve
from inspector.verbosity import Format, LogLevel

pytestmark = pytest.mark.anyio


def test_a_port_in_use_is_a_sentence_with_a_remedy():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ListenError) as error:
            bind("127.0.0.1", port)
    assert str(error.value) == f"127.0.0.1:{port} is already in use; choose another with --listen"


@pytest.mark.parametrize(("host", "told"), [("192.0.2.1", "is not an address of this machine"), ("no such host", "is not an address of this machine")])
def test_an_address_of_another_machine_is_refused(host, told):
    with pytest.raises(ListenError, match=told):
        bind(host, 0)


async def test_a_request_in_progress_is_answered_before_the_server_ends_and_the_port_is_free_then():
    entered = anyio.Event()

    async def slow(_):
        entered.set()
        await anyio.sleep(0.2)
        return PlainTextResponse("done")

    listener = bind("127.0.0.1", 0)
    address = address_of(listener)
    answers = []

    async def ask():
        async with httpx.AsyncClient(trust_env=False) as client:
            answers.append((await client.get(f"http://{address}/")).text)

    async with anyio.create_task_group() as asking, anyio.create_task_group() as serving:
        await serving.start(serve, Starlette(routes=[Route("/", slow)]), listener)
        asking.start_soon(ask)
        await entered.wait()
        serving.cancel_scope.cancel()
    assert answers == ["done"]
    with socket.create_server(("127.0.0.1", int(address.rpartition(":")[2]))):
        pass


async def test_a_request_that_does_not_end_does_not_hold_up_the_end():
    entered = anyio.Event()

    async def endless(_):
        entered.set()
        await anyio.sleep_forever()

    listener = bind("127.0.0.1", 0)
    address = address_of(listener)

    async def ask():
        async with httpx.AsyncClient(trust_env=False, timeout=30) as client:
            with pytest.raises(httpx.HTTPError):
                (await client.get(f"http://{address}/")).raise_for_status()

    with anyio.fail_after(10):
        async with anyio.create_task_group() as asking, anyio.create_task_group() as serving:
            await serving.start(serve, Starlette(routes=[Route("/", endless)]), listener)
            asking.start_soon(ask)
            await entered.wait()
            serving.cancel_scope.cancel()


async def test_signal_handlers_are_left_alone():
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    async with anyio.create_task_group() as tasks:
        await tasks.start(serve, Starlette(), bind("127.0.0.1", 0))
        assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize(
    "sent",
    [
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabcd\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01 TLS\r\n\r\n",
    ],
)
async def test_a_clients_mistake_is_no_event_of_the_journal_but_a_line_for_those_who_debug(sent):
    async def reading(request):
        return PlainTextResponse(str(len(await request.body())))

    for level in (LogLevel.INFO, LogLevel.DEBUG):
        stream = io.StringIO()
        set_up(Secrets(), Format.JSON, level, stream)
        listener = bind("127.0.0.1", 0)
        host, _, port = address_of(listener).rpartition(":")
        async with anyio.create_task_group() as serving:
            await serving.start(serve, Starlette(routes=[Route("/", reading, methods=["GET", "POST"])]), listener)
            async with await anyio.connect_tcp(host, int(port)) as client:
                await client.send(sent)
                with anyio.move_on_after(10), contextlib.suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                    while True:
                        await client.receive()
            serving.cancel_scope.cancel()
        assert "Traceback" not in stream.getvalue()
        assert "site-packages" not in stream.getvalue()
        assert bool(stream.getvalue()) is (level is LogLevel.DEBUG)
