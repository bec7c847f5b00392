"""The web server wrapper on real sockets."""

import signal
import socket

import anyio
import httpx
import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from inspector.server import ListenError, address_of, bind, serve

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
