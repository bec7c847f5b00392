"""The demo's engine and its traffic: real, bounded, and gone afterwards."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio
import gguf
import httpx
import psutil
import pytest

from engines import client, log
from engines.proxy import Answer, RecordingProxy
from inspector.demo import DemoError, needs_extra
from inspector.demo.load import run_load
from inspector.demo.model import write_tiny_model
from inspector.demo.server import DemoServer

pytestmark = [pytest.mark.anyio, pytest.mark.engine]
pytest_plugins = ["engines.fixtures"]


async def test_the_server_comes_up_works_and_leaves_nothing(current: object):
    async with DemoServer.start(slots=2, context=1024) as server:
        assert (await client.complete_async(server.url, 30, 20)).held_tokens == 49
        assert [slot["n_ctx"] for slot in client.raw_slots(server.url)] == [512, 512]
        assert client.raw_metrics(server.url)["prompt_tokens_total"] == 30
        assert "listening on" in server.log_path.read_text()
        connections = psutil.Process(server.pid).net_connections()
        assert {connection.laddr.ip for connection in connections} == {"127.0.0.1"}
    assert not psutil.pid_exists(server.pid)
    assert not server.log_path.parent.exists()


async def test_settings_reach_the_server(current: object):
    async with DemoServer.start(slots=3, context=1536, unified=True, metrics=False, sleep=1, trained_context=1024) as server:
        assert log.layout(server.log_path.read_text()) == log.Layout(slots=3, slot_tokens=1024, unified=True)
        assert client.get(server.url, "/metrics").status_code == 501
        with anyio.fail_after(20):
            while not client.sleeping(server.url):
                await anyio.sleep(0.05)


async def test_a_cancelled_block_leaves_nothing_even_in_the_middle_of_work(current: object):
    with anyio.move_on_after(5) as scope:
        async with DemoServer.start() as server, anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: run_load(server.url, sessions=4, prompt_tokens=100, output_tokens=900, seconds=600))
            while client.busy(server.url) == 0:
                await anyio.sleep(0.02)
            scope.cancel()
    assert not psutil.pid_exists(server.pid)
    assert not server.log_path.parent.exists()


async def test_a_server_that_cannot_start_is_an_error_with_its_last_words(current: object):
    async with DemoServer.start() as first:
        taken = httpx.URL(first.url).port
        assert taken is not None
        with pytest.raises(DemoError, match=f"ended with code 1; its last words: .*{taken}"):
            async with DemoServer.start(port=taken):
                pass


async def test_traffic_has_the_asked_shape_and_ends_in_time(current: object):
    async with DemoServer.start() as server:
        with RecordingProxy(server.url) as proxy, anyio.fail_after(60):
            report = await run_load(proxy.url, sessions=3, prompt_tokens=40, output_tokens=30, seconds=600, most_requests=12)
        assert (report.finished, report.failed) == (12, 0)
        assert {(request.method, request.path) for request in proxy.requests} == {("POST", "/completion")}
        assert client.raw_metrics(server.url)["prompt_tokens_total"] == 12 * 40, "no prompt came out of another's cache"
        assert client.raw_metrics(server.url)["tokens_predicted_total"] == 12 * 30
        with anyio.fail_after(60):
            assert (await run_load(server.url, sessions=2, prompt_tokens=10, output_tokens=10, seconds=0.5)).finished > 0


async def test_traffic_that_is_refused_is_counted(current: object):
    with RecordingProxy("http://127.0.0.1:9") as proxy, anyio.fail_after(30):
        proxy.behave = lambda request: Answer(503, b"{}")
        report = await run_load(proxy.url, sessions=2, prompt_tokens=10, output_tokens=10, seconds=600, most_requests=4)
    assert (report.finished, report.failed) == (0, 4)


@pytest.mark.parametrize("url", ["http://192.0.2.1:8080", "http://example.org", "http://127.0.0.1.example.org"])
async def test_traffic_goes_nowhere_but_to_this_machine(url: str):
    with pytest.raises(DemoError, match=r"127\.0\.0\.1 only"):
        await run_load(url, sessions=1, prompt_tokens=1, output_tokens=1, seconds=1)


def test_the_model_is_the_same_each_time_and_has_the_asked_context(tmp_path: Path, tiny_model: Path):
    again = write_tiny_model(tmp_path / "again.gguf", context_length=8192)
    assert again.read_bytes() == tiny_model.read_bytes()
    short = gguf.GGUFReader(str(write_tiny_model(tmp_path / "short.gguf", context_length=512)))
    assert short.fields["llama.context_length"].contents() == 512
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again.gguf", "short.gguf"]


@pytest.mark.parametrize("package", ["gguf", "numpy"])
def test_a_missing_extra_names_the_remedy(package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(DemoError, match=rf"{package}.*pip install 'inference-inspector\[demo\]'"):
        write_tiny_model(tmp_path / "tiny.gguf")
    assert list(tmp_path.iterdir()) == []


def test_only_import_errors_become_a_missing_extra():
    with pytest.raises(ZeroDivisionError), needs_extra():
        raise ZeroDivisionError
