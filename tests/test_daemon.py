"""The daemon in this process, on real sockets, over recorded servers."""

import os
import signal
import socket
import threading
from contextlib import asynccontextmanager

import anyio
import httpx
import pytest
import structlog

from inspector.config import Config, ConfigError, Poll, Target, load
from inspector.daemon import Daemon, Pace
from inspector.journal import Secrets
from inspector.registry import load_adapters
from inspector.server import bind
from recorded_server import BUSY, recorded_server

pytestmark = pytest.mark.anyio

KEY = "sk-daemon-secret"


def target(name, url, **fields):
    return Target.model_validate({"name": name, "url": url, "engine": "llamacpp", "launch": "none", "interval": 0.05, "may_wake": True, **fields})


def config(*targets):
    """Nothing is stale by time here: tests run on busy machines."""
    return Config().model_copy(update={"targets": targets, "poll": Poll(stale_after=1000)})


@asynccontextmanager
async def running(of_config, **options):
    """A daemon and a client that asks it."""
    daemon = Daemon(of_config, load_adapters(), Secrets(), bind("127.0.0.1", 0), **options)
    async with anyio.create_task_group() as tasks:
        address = await tasks.start(daemon.run)
        async with httpx.AsyncClient(base_url=f"http://{address}", trust_env=False) as client:
            yield daemon, client
        tasks.cancel_scope.cancel()


async def until(client, path, holds):
    with anyio.fail_after(10):
        while not holds(reply := await client.get(path)):
            await anyio.sleep(0.02)
    return reply


async def ready(client):
    return await until(client, "/-/ready", lambda reply: reply.status_code == 200)


@pytest.fixture
def events():
    with structlog.testing.capture_logs() as captured:
        yield captured


def told(events, name):
    return [event for event in events if event["event"] == name]


async def test_what_a_server_says_is_on_metrics():
    with recorded_server() as server:
        async with running(config(target("chat", server.url))) as (_, client):
            await ready(client)
            text = (await client.get("/metrics")).text
    assert 'inspector_target_up{engine="llamacpp",target="chat"} 1.0' in text
    assert 'inspector_slots{engine="llamacpp",pool="0",target="chat"} 4.0' in text
    assert {method for method, _, _ in server.asked} == {"GET"}


async def test_a_server_that_is_down_disturbs_no_other():
    with recorded_server() as server, socket.create_server(("127.0.0.1", 0)) as silent:
        hangs = f"http://127.0.0.1:{silent.getsockname()[1]}"
        async with running(config(target("hangs", hangs), target("down", "http://127.0.0.1:1"), target("chat", server.url))) as (_, client):
            reply = await until(client, "/metrics", lambda r: 'inspector_target_up{engine="llamacpp",target="chat"} 1.0' in r.text)
            await until(client, "/metrics", lambda r: 'inspector_target_up{engine="llamacpp",target="down"} 0.0' in r.text)
            assert 'target="hangs"} 0.0' not in [line for line in reply.text.splitlines() if line.startswith("inspector_target_up")]
            assert (await client.get("/-/ready")).text == "not ready: 1 of 3 targets have not been polled yet\n"


async def test_a_probe_is_a_fresh_poll():
    with recorded_server() as server:
        async with running(config(target("chat", server.url, interval=3600.0))) as (_, client):
            await ready(client)
            server.bodies["/health"] = (503, b'{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}')
            assert 'state="loading",target="chat"} 1.0' in (await client.get("/probe?target=chat")).text
            assert 'state="loading",target="chat"} 1.0' in (await client.get("/metrics")).text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_a_signal_ends_it_whole_even_while_a_server_hangs(number):
    listener = bind("127.0.0.1", 0)
    port = listener.getsockname()[1]
    with socket.create_server(("127.0.0.1", 0)) as silent, anyio.fail_after(10):
        hangs = f"http://127.0.0.1:{silent.getsockname()[1]}"
        daemon = Daemon(config(target("hangs", hangs)), load_adapters(), Secrets(), listener)
        async with anyio.create_task_group() as tasks:
            await tasks.start(daemon.run)
            os.kill(os.getpid(), number)
    with socket.create_server(("127.0.0.1", port)):
        pass


FILE = """
poll: {{stale_after: 1000}}
targets:
  - {{name: kept, url: "{url}", engine: llamacpp, launch: none, interval: 50ms}}
  - {{name: {second}, url: "{url}", engine: llamacpp, launch: none, interval: 50ms}}
"""


async def test_sighup_loads_the_new_configuration_and_a_bad_one_is_refused_whole(tmp_path, events):
    file = tmp_path / "inspector.yaml"
    with recorded_server() as server:
        file.write_text(FILE.format(url=server.url, second="old"))
        async with running(load(file), load=lambda: load(file)) as (daemon, client):
            await ready(client)
            assert "inspector_config_last_reload_successful 1.0" not in (await client.get("/metrics")).text
            kept = daemon.board.entry("kept").polls

            file.write_text(FILE.format(url=server.url, second="new") + "  - {name: kept, url: nonsense, colour: red}\n")
            os.kill(os.getpid(), signal.SIGHUP)
            await until(client, "/metrics", lambda r: "inspector_config_last_reload_successful 0.0" in r.text)
            assert [e.info.name for e in daemon.board.entries()] == ["kept", "old"]
            problems = [event["problem"] for event in told(events, "configuration refused, the old one stays")]
            assert len(problems) == 3, "every problem is told"
            assert all(str(file) in problem for problem in problems)

            file.write_text(FILE.format(url=server.url, second="new"))
            os.kill(os.getpid(), signal.SIGHUP)
            await until(client, "/metrics", lambda r: "inspector_config_last_reload_successful 1.0" in r.text)
            assert [e.info.name for e in daemon.board.entries()] == ["kept", "new"]
            assert daemon.board.entry("kept").polls >= kept, "an unchanged target goes on undisturbed"
            await ready(client)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_it_though_a_reload_hangs(number):
    """A file on a dead network disk: the hang-ups behind it wait, the end does not."""
    begun, let_go, loads = threading.Event(), threading.Event(), []

    def hangs():
        loads.append(1)
        begun.set()
        let_go.wait(30)
        return Config()

    daemon = Daemon(Config(), load_adapters(), Secrets(), bind("127.0.0.1", 0), load=hangs)
    try:
        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:
                await tasks.start(daemon.run)
                for _ in range(5):
                    os.kill(os.getpid(), signal.SIGHUP)
                    await anyio.sleep(0.01)
                while not begun.is_set():
                    await anyio.sleep(0.01)
                os.kill(os.getpid(), number)
    finally:
        let_go.set()
    assert len(loads) == 1


async def test_an_engine_that_no_adapter_knows_is_refused_at_a_reload_too(events):
    with recorded_server() as server:
        strange = target("chat", server.url).model_copy(update={"engine": "abacus"})
        async with running(config(target("chat", server.url)), load=lambda: config(strange)) as (daemon, client):
            await ready(client)
            assert len(await daemon.reload()) == 1
            assert daemon.board.entry("chat").info.engine == "llamacpp"


async def test_a_key_that_comes_with_a_reload_is_masked_from_then_on(tmp_path):
    (tmp_path / "key").write_text(KEY)
    file = tmp_path / "inspector.yaml"
    file.write_text('targets: [{name: chat, engine: llamacpp, url: "http://127.0.0.1:1", api_key_file: key}]')
    secrets = Secrets()
    async with anyio.create_task_group() as tasks:
        daemon = Daemon(Config(), load_adapters(), secrets, bind("127.0.0.1", 0), load=lambda: load(file))
        await tasks.start(daemon.run)
        assert await daemon.reload() == ()
        tasks.cancel_scope.cancel()
    assert secrets.masked(f"Bearer {KEY}") == "Bearer ***"


async def test_reload_over_http_only_where_it_is_switched_on():
    web = Config().web.model_copy(update={"reload": True})
    refusing = ConfigError([])
    answers = [Config(), refusing]

    def again():
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async with running(Config(web=web), load=again) as (_, client):
        assert (await client.post("/-/reload")).status_code == 200
    async with running(Config(), load=again) as (_, client):
        assert (await client.post("/-/reload")).status_code == 403


async def test_without_a_target_it_looks_for_servers_and_forgets_them_after_a_while(events):
    with recorded_server() as server:
        found, looks = [], 0

        async def discover():
            nonlocal looks
            looks += 1
            return list(found)

        async with running(config(), discover=discover, pace=Pace(discovery=0.05, forget=1.0)) as (_, client):
            await ready(client)
            found.append(target("llamacpp-1", server.url))
            await until(client, "/metrics", lambda r: 'inspector_target_up{engine="llamacpp",target="llamacpp-1"} 1.0' in r.text)
            found.clear()
            gone_at = looks
            await until(client, "/sd", lambda _: looks > gone_at + 1)
            assert len((await client.get("/sd")).json()) == 1, "a server that has just gone is kept on the board for a while"
            await until(client, "/sd", lambda r: r.json() == [])
    assert [e["target"] for e in told(events, "server found")] == ["llamacpp-1"]
    assert len(told(events, "no model server found on this machine; looking again")) == 1


async def test_it_is_not_ready_before_it_has_looked_for_servers():
    looked = anyio.Event()

    async def discover():
        await looked.wait()
        return []

    async with running(Config(), discover=discover) as (_, client):
        reply = await client.get("/-/ready")
        assert (reply.status_code, reply.text) == (503, "not ready: still looking for the servers of this machine\n")
        assert (await client.get("/-/healthy")).status_code == 200
        looked.set()
        await ready(client)


async def test_a_bearer_token_of_the_configuration_is_asked_for(tmp_path):
    (tmp_path / "token").write_text("token-1\n")
    file = tmp_path / "inspector.yaml"
    file.write_text("web: {bearer_token_file: token}\ntargets: []\n")
    async with running(load(file)) as (_, client):
        assert (await client.get("/metrics")).status_code == 401
        assert (await client.get("/metrics", headers={"Authorization": "Bearer token-1"})).status_code == 200
        assert (await client.get("/-/ready")).status_code == 200


@pytest.mark.parametrize(
    ("after", "token"),
    [
        ("web: {bearer_token_file: token}", "token-2"),
        ("listen: 0.0.0.0:9836\nweb: {bearer_token_file: token}", "token-1"),
        ("listen: 127.0.0.1:1", "token-1"),
        ("web: {}", None),
    ],
)
async def test_a_rotated_token_counts_from_the_reload_on_where_the_address_is_the_same(tmp_path, after, token):
    """A file for another address may have no token and be right; at the address that is open it would let everybody in."""
    (tmp_path / "token").write_text("token-1\n")
    file = tmp_path / "inspector.yaml"
    file.write_text("web: {bearer_token_file: token}")
    async with running(load(file), load=lambda: load(file)) as (daemon, client):
        (tmp_path / "token").write_text("token-2\n")
        file.write_text(after)
        assert await daemon.reload() == ()
        answers = {word: (await client.get("/metrics", headers={"Authorization": f"Bearer {word}"})).status_code for word in ("token-1", "token-2", "none")}
    assert answers == {word: 200 if token in (None, word) else 401 for word in answers}


async def test_changes_of_a_target_are_told_once(events):
    with recorded_server() as server:
        async with running(config(target("chat", server.url))) as (_, client):
            await ready(client)
            server.bodies["/slots"] = (501, b'{"error":{"code":501,"message":"disabled","type":"not_supported_error"}}')
            await until(client, "/metrics", lambda r: 'field="kv_used_tokens",pool="0",target="chat"} 0.0' in r.text)
            polls = server.asked.copy()
            await until(client, "/metrics", lambda _: len(server.asked) > len(polls) + 8)
    assert len(told(events, "target state")) == 1
    assert [e["reason"] for e in told(events, "field unknown") if e["field"] == "kv_used_tokens"] == ["endpoint_disabled"]


async def test_no_key_leaves_in_an_event_a_page_or_a_metric(tmp_path, events):
    (tmp_path / "key").write_text(KEY)
    file = tmp_path / "inspector.yaml"
    with recorded_server(BUSY, key=KEY) as server:
        chat = f'{{name: chat, url: "{server.url}", engine: llamacpp, launch: none, api_key_file: key, interval: 50ms, labels: {{team: a}}}}'
        file.write_text(f"{{poll: {{stale_after: 1000}}, targets: [{chat}]}}")
        async with running(load(file)) as (_, client):
            await ready(client)
            await until(client, "/metrics", lambda r: 'inspector_target_up{engine="llamacpp",target="chat"} 1.0' in r.text)
            pages = [(await client.get(path)).text for path in ("/", "/metrics", "/api/v1/targets", "/probe?target=chat", "/sd")]
    assert any(authorization == f"Bearer {KEY}" for _, _, authorization in server.asked), "the key was in use"
    assert KEY not in "".join(pages) + repr(events)


async def test_a_bug_while_loading_or_looking_ends_nothing(events):
    def load():
        raise RuntimeError(KEY)

    async def discover():
        raise RuntimeError(KEY)

    async with running(config(), load=load, discover=discover) as (daemon, client):
        await ready(client)
        assert len(await daemon.reload()) == 1
        assert "inspector_config_last_reload_successful 0.0" in (await client.get("/metrics")).text
    assert KEY not in repr(events)
