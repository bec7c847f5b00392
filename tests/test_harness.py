"""The harness for real servers holds what the other tests rest on, on every engine."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import psutil
import pytest

from engines import client, log
from engines.builds import Build, CurrentBuild, MissingEngineError, cached, missing
from engines.proxy import Answer, Freeze, Pass, RecordingProxy
from engines.server import Server, ServerDiedError, wait_until

pytestmark = pytest.mark.engine
pytest_plugins = ["engines.fixtures"]

FLAGS = {
    "b10068": ("-np", "4", "-c", "4096", "--metrics"),
    "b10434": ("-np", "4", "-c", "4096", "--metrics"),
    "current": ("--slots", "4", "--context", "4096", "--metrics"),
}
SLEEP = {"b10434": ("--sleep-idle-seconds", "2"), "current": ("--sleep", "2")}

Engine = Build | CurrentBuild


@pytest.fixture(params=["b10068", "b10434", "current"])
def engine(request: pytest.FixtureRequest) -> Engine:
    return request.getfixturevalue(request.param)


@pytest.fixture
def server(engine: Engine, tiny_model: Path, tmp_path: Path):
    with engine.serve(tiny_model, tmp_path / "server.log", *FLAGS[engine.name]) as running:
        yield running


def refuses(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def test_the_log_the_slots_and_the_reply_agree_on_what_a_session_holds(server: Server):
    done = client.complete(server.url, 100, 150)
    (release,) = log.wait_for_releases(server, 1)
    assert done.status == 200
    assert release.tokens == done.held_tokens == 249
    assert client.held(client.raw_slots(server.url), busy=False) == 249
    assert client.raw_metrics(server.url)["n_tokens_max"] == 249


def test_sessions_run_at_the_same_time_and_differ_in_their_prompts(server: Server):
    with client.sessions(server.url, [(50, 900)] * 4) as running:
        wait_until(lambda: client.busy(server.url) == 4, "four slots are busy")
    assert [session.result().held_tokens for session in running] == [949] * 4
    assert sum(release.tokens for release in log.wait_for_releases(server, 4)) == 4 * 949
    assert client.raw_metrics(server.url)["prompt_tokens_total"] == 200, "no prompt came out of another's cache"


def test_the_layout_is_read_from_the_log(server: Server):
    assert log.layout(server.log_text()) == log.Layout(slots=4, slot_tokens=1024, unified=False)


def test_stopping_leaves_no_process_and_no_port(engine: Engine, tiny_model: Path, tmp_path: Path):
    server = engine.serve(tiny_model, tmp_path / "server.log", *FLAGS[engine.name])
    with client.sessions(server.url, [(50, 100)]):
        server.stop()
    assert not psutil.pid_exists(server.pid)
    assert refuses(server.port)


def test_a_restart_on_the_same_port_has_a_log_of_its_own(engine: Engine, tiny_model: Path, tmp_path: Path):
    path = tmp_path / "server.log"
    with engine.serve(tiny_model, path, *FLAGS[engine.name]) as first:
        client.complete(first.url, 20, 20)
        log.wait_for_releases(first, 1)
    with engine.serve(tiny_model, path, *FLAGS[engine.name], port=first.port) as second:
        assert second.url == first.url
        assert log.releases(second.log_text()) == []
        assert len(log.releases(path.read_text())) == 1


def test_a_server_that_cannot_start_says_why(engine: Engine, tmp_path: Path):
    with pytest.raises(ServerDiedError, match=r"none\.gguf"):
        engine.serve(tmp_path / "none.gguf", tmp_path / "server.log").wait_ready()


def test_a_server_with_a_key_asks_for_it(engine: Engine, tiny_model: Path, tmp_path: Path):
    with engine.serve(tiny_model, tmp_path / "server.log", env={"LLAMA_API_KEY": "sesame"}) as server:
        assert client.get(server.url, "/slots").status_code == 401
        assert client.raw_slots(server.url, key="sesame")


def test_it_dies_when_its_starter_is_killed(tiny_model: Path, tmp_path: Path, current: CurrentBuild):
    """What a Ctrl-C or a kill -9 of the demo must not leave behind."""
    starter = tmp_path / "starter.py"
    starter.write_text(
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-m', 'inspector.demo.server', '--with-parent', '--model', sys.argv[1]],"
        " stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True)\n"
        "print(child.pid, child.stdout.readline().decode().strip(), flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, str(starter), str(tiny_model)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pid, url = process.stdout.readline().split()
        assert client.get(url, "/health").status_code == 200
        process.kill()
    wait_until(lambda: not psutil.pid_exists(int(pid)), "the server has ended with its starter")


@pytest.mark.parametrize("build", ["b10434", "current"])
def test_an_idle_server_falls_asleep_and_wakes(build: str, request: pytest.FixtureRequest, tiny_model: Path, tmp_path: Path):
    """Also what adapters rest on: counters outlive the sleep, cached tokens do not, and the log shows another load."""
    engine: Engine = request.getfixturevalue(build)
    with engine.serve(tiny_model, tmp_path / "server.log", *FLAGS[build], *SLEEP[build]) as server:
        client.complete(server.url, 100, 200)
        before = client.raw_metrics(server.url)
        wait_until(lambda: client.sleeping(server.url), "the server sleeps")
        server.wait_log(log.FELL_ASLEEP)
        assert (log.sleeps(server.log_text()), log.wakes(server.log_text()), log.loads(server.log_text())) == (1, 0, 1)
        client.complete(server.url, 10, 10)
        log.wait_for_releases(server, 2)
        after = client.raw_metrics(server.url)
        assert (log.wakes(server.log_text()), log.loads(server.log_text())) == (1, 2)
        assert after["prompt_tokens_total"] == before["prompt_tokens_total"] + 10
        assert after["n_decode_total"] >= before["n_decode_total"] + 10
        assert client.held(client.raw_slots(server.url), busy=False) == 19


def test_reading_metrics_wakes_the_older_build_and_not_the_current_one(tiny_model: Path, tmp_path: Path, b10434: Build, current: CurrentBuild):
    for engine, wakes in ((b10434, 1), (current, 0)):
        with engine.serve(tiny_model, tmp_path / f"{engine.name}.log", *FLAGS[engine.name], *SLEEP[engine.name]) as server:
            wait_until(lambda server=server: client.sleeping(server.url), "the server sleeps")
            assert client.raw_metrics(server.url)["requests_processing"] == 0
            assert client.sleeping(server.url) is (wakes == 0)
            assert log.wakes(server.log_text()) == wakes


@pytest.mark.parametrize("build", ["b10068", "b10434"])
def test_a_router_evicts_a_model_for_another(build: str, request: pytest.FixtureRequest, two_models: Path, tmp_path: Path):
    router: Build = request.getfixturevalue(build)
    with router.route(two_models, tmp_path / "router.log", "--models-max", "1", "-np", "2", "-c", "1024") as server:
        assert client.router_states(server.url) == {"ant": "unloaded", "bee": "unloaded"}
        assert client.complete(server.url, 50, 60, model="ant").held_tokens == 109
        assert client.router_states(server.url) == {"ant": "loaded", "bee": "unloaded"}
        assert client.held(client.raw_slots(server.url, model="ant", autoload="false"), busy=False) == 109
        client.complete(server.url, 50, 60, model="bee")
        assert client.router_states(server.url) == {"ant": "unloaded", "bee": "loaded"}
        assert (log.router_loads(server.log_text()), log.router_stops(server.log_text())) == (["ant", "bee"], ["ant"])
        children = server.children()
    assert len(children) == 1
    assert not any(psutil.pid_exists(child.pid) for child in children)


def test_the_proxy_records_each_request_and_changes_no_byte(server: Server):
    with RecordingProxy(server.url) as proxy, httpx.Client(base_url=proxy.url, trust_env=False) as one_connection:
        for path in ("/props", "/slots?model=a%20b&autoload=false", "/no/such/route", "/props"):
            through = one_connection.get(path, headers={"X-Mark": "7"})
            assert (through.status_code, through.content) == ((direct := httpx.get(server.url + path, trust_env=False)).status_code, direct.content)
        assert client.complete(proxy.url, 5, 5).status == 200
    assert [(request.method, request.path) for request in proxy.requests] == [
        ("GET", "/props"), ("GET", "/slots"), ("GET", "/no/such/route"), ("GET", "/props"), ("POST", "/completion"),
    ]  # fmt: skip
    assert proxy.requests[1].query == (("model", "a b"), ("autoload", "false"))
    assert proxy.requests[0].headers["x-mark"] == "7"


def test_the_proxy_can_misbehave(server: Server):
    with RecordingProxy(server.url) as proxy:
        proxy.behave = lambda request: Answer(501, b'{"error":{}}') if request.path == "/metrics" else Pass()
        assert client.get(proxy.url, "/metrics").status_code == 501
        assert client.get(proxy.url, "/health").status_code == 200
        proxy.behave = lambda request: Pass(cut=40)
        with pytest.raises(httpx.RemoteProtocolError):
            client.get(proxy.url, "/props")
        proxy.behave = lambda request: Freeze()
        with pytest.raises(httpx.ReadTimeout):
            httpx.get(proxy.url, timeout=0.2, trust_env=False)
        proxy.behave = lambda request: Pass(delay=0.3)
        begun = time.monotonic()
        client.get(proxy.url, "/health")
        assert time.monotonic() - begun >= 0.3
        server.stop()
        proxy.behave = lambda request: Pass()
        with pytest.raises(httpx.TransportError):
            client.get(proxy.url, "/health")
    assert len(proxy.requests) == 6


@pytest.mark.parametrize(("ci", "outcome"), [("true", pytest.fail.Exception), ("", pytest.skip.Exception)])
def test_a_missing_engine_is_a_failure_where_engines_must_be_there(ci: str, outcome: type[BaseException], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CI", ci)
    with pytest.raises(outcome, match="no such engine"):
        missing("no such engine")


def test_what_could_not_be_installed_leaves_nothing_half_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("engines.builds.CACHE", tmp_path / "cache")

    def breaks_off(folder: Path) -> None:
        (folder / "half").write_text("")
        raise MissingEngineError("no network")

    with pytest.raises(MissingEngineError):
        cached("engine", breaks_off)
    assert [path.suffix for path in (tmp_path / "cache").iterdir()] == [".lock"]
    assert cached("engine", lambda folder: (folder / "whole").write_text("")).joinpath("whole").exists()
