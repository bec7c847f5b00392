"""What is asked of a vLLM server, in which order; the filtered page and its proof; what each state of a server means."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from asking import NOON, REFUSED, TIMED_OUT, FakeAsk
from fakes import FakeClock, FakeSources
from inspector.collector import TargetCollector, Watched
from inspector.contract import Reply
from inspector.discovery import RECOGNITION_ROUTES
from inspector.model import State
from inspector.reading import Known, Reason, Unknown
from inspector_vllm import ADAPTER
from inspector_vllm.names import WANTED
from inspector_vllm.routes import METRICS, METRICS_FILTERED
from inspector_vllm.scrape import RECHECK
from test_vllm_cases import CASES, ask_of, fields, observed

pytestmark = pytest.mark.anyio

Page = tuple[int, bytes] | Unknown
WANTED_LINE = re.compile(rb"(?m)^(?:%s)[{ ].*\n" % b"|".join(re.escape(name.encode()) for name in WANTED))


def filtered(page: bytes) -> bytes:
    """The page as a server that honours the filter gives it."""
    return b"".join(WANTED_LINE.findall(page))


async def polls(ask: FakeAsk, number: int) -> list[list[str]]:
    """Paths that were asked, poll by poll."""
    recall, told = ADAPTER.start(), []
    for _ in range(number):
        ask.asked = []
        await ADAPTER.observe(ask, recall)
        told.append([path.partition("?")[0] for path in ask.asked])
    return told


def serving(name: str = "0.32.0-busy", **replies: Page) -> FakeAsk:
    """A server that honours the filter, with some replies changed: `metrics=`, `filtered=`, `health=`, `models=`."""
    ask = ask_of(CASES / name)
    paths = {"metrics": "/metrics", "filtered": "/metrics/", "health": "/health", "models": "/v1/models", "version": "/version"}
    page: bytes = ask.replies["/metrics"][1]  # type: ignore[index]
    ask.replies = {**ask.replies, "/metrics/": (200, filtered(page)), **{paths[key]: reply for key, reply in replies.items()}}
    return ask


# --- The filtered page --------------------------------------------------------------------------------------------------------------


def test_the_filter_asks_for_every_wanted_name() -> None:
    assert METRICS_FILTERED.required == tuple(("name[]", name) for name in WANTED)


async def test_the_whole_page_is_read_first_and_then_the_small_one() -> None:
    first, second, third = await polls(serving(), 3)
    assert first == ["/health", "/metrics", "/version", "/v1/models"]
    assert second == third == ["/health", "/metrics/", "/version", "/v1/models"]


async def test_the_small_page_tells_the_same() -> None:
    ask, recall = serving(), ADAPTER.start()
    whole, small = [await ADAPTER.observe(ask, recall) for _ in range(2)]
    assert [fields(pool) for pool in whole.pools] == [fields(pool) for pool in small.pools]
    assert whole.counters == small.counters
    assert whole.born == small.born


async def test_the_whole_page_is_read_again_now_and_then() -> None:
    told = await polls(serving(), 2 * RECHECK + 3)
    assert [number for number, asked in enumerate(told) if "/metrics" in asked] == [0, RECHECK + 1, 2 * RECHECK + 2]


def without(name: bytes) -> Callable[[bytes], bytes]:
    return lambda page: re.sub(rb"(?m)^%s[{ ].*\n" % re.escape(name), b"", filtered(page))


BROKEN: dict[str, Callable[[bytes], bytes]] = {
    "ignored": lambda page: page,
    "emptied": lambda page: b"",
    "answered with one series only": lambda page: b"".join(re.findall(rb"(?m)^vllm:generation_tokens_total.*\n", page)),
    "answered without the usage": without(b"vllm:kv_cache_usage_perc"),
    "answered without the process's start": without(b"process_start_time_seconds"),
    "cut off": lambda page: filtered(page)[:-20],
}


@pytest.mark.parametrize("how", BROKEN)
async def test_a_filter_that_is_broken_costs_one_try_and_the_page_is_read_in_full(how: str) -> None:
    ask = serving()
    page: bytes = ask.replies["/metrics"][1]  # type: ignore[index]
    ask.replies = {**ask.replies, "/metrics/": (200, BROKEN[how](page))}
    wanted = fields((await observed(serving())).pools[0])
    recall = ADAPTER.start()
    tries = []
    for number in range(RECHECK + 3):
        ask.asked = []
        observation = await ADAPTER.observe(ask, recall)
        assert fields(observation.pools[0]) == wanted
        assert "/metrics" in ask.asked
        tries += [number] if any(path.startswith("/metrics/?") for path in ask.asked) else []
    assert tries == [1, RECHECK + 1]


async def test_one_engine_of_two_missing_from_the_small_page_is_noticed() -> None:
    ask = serving("0.32.0-two-engines-preempting")
    page: bytes = ask.replies["/metrics"][1]  # type: ignore[index]
    ask.replies = {**ask.replies, "/metrics/": (200, re.sub(rb'(?m)^vllm:.*engine="1".*\n', b"", filtered(page)))}
    assert (await polls(ask, 2))[1] == ["/health", "/metrics/", "/metrics", "/version", "/v1/models"]


@pytest.mark.parametrize("status", [404, 405, 500])
async def test_a_server_without_the_slash_is_read_in_full(status: int) -> None:
    assert "/metrics" in (await polls(serving(filtered=(status, b"")), 2))[1]


async def test_a_small_page_that_does_not_come_is_not_asked_for_twice() -> None:
    ask, recall = serving(), ADAPTER.start()
    await ADAPTER.observe(ask, recall)
    ask.replies, ask.asked = {**ask.replies, "/metrics/": TIMED_OUT}, []
    observation = await ADAPTER.observe(ask, recall)
    assert "/metrics" not in ask.asked
    assert observation.pools[0].requests_running == TIMED_OUT


async def test_without_statistics_there_is_nothing_to_filter() -> None:
    assert all("/metrics/" not in asked for asked in await polls(serving("0.32.0-statistics-off"), 3))


async def test_a_redirect_of_old_versions_is_followed_to_the_same_server_only() -> None:
    page = ask_of(CASES / "definitions-0.4.1-v0").replies["/metrics"]
    ask = serving("definitions-0.4.1-v0", metrics=(307, b""), filtered=page)
    assert (await observed(ask)).pools[0].requests_running.value == 3  # type: ignore[union-attr]


# --- States -------------------------------------------------------------------------------------------------------------------------


async def test_a_dying_server_is_unreachable_whatever_its_metrics_repeat() -> None:
    ask = serving(health=(503, b""))
    observation = await observed(ask)
    assert observation.state is State.UNREACHABLE
    assert observation.pools == ()
    assert "died" in observation.detail
    assert ask.asked == ["/health"]


@pytest.mark.parametrize("reply", [REFUSED, TIMED_OUT, (500, b"Internal Server Error"), (502, b"<html>")])
async def test_a_server_that_does_not_answer_is_asked_nothing_else(reply: Page) -> None:
    ask = serving(health=reply)
    assert (await observed(ask)).state is State.UNREACHABLE
    assert ask.asked == ["/health"]


async def test_a_missing_key_hides_the_length_only_and_is_not_tried_at_every_poll() -> None:
    ask, recall = serving(models=(401, b'{"error":"Unauthorized"}')), ADAPTER.start()
    observation = await ADAPTER.observe(ask, recall)
    assert observation.state is State.READY
    assert [fault.source for fault in observation.faults] == ["/v1/models"]
    ask.asked = []
    await ADAPTER.observe(replace(ask, now=ask.now + 59), recall)
    assert "/v1/models" not in ask.asked
    await ADAPTER.observe(replace(ask, now=ask.now + 60), recall)
    assert "/v1/models" in ask.asked


async def test_statistics_that_are_off_name_the_remedy_and_make_no_zero() -> None:
    pool = (await observed(ask_of(CASES / "0.32.0-statistics-off-http-only"))).pools[0]
    for name in ("requests_running", "requests_waiting", "kv_usage_ratio", "kv_used_tokens", "preemptions_total", "generation_tokens_total"):
        reading = pool.reading(name)
        assert isinstance(reading, Unknown)
        assert "--disable-log-stats" in reading.detail, name
    assert not [name for name, value in fields(pool).items() if value == 0]


@pytest.mark.parametrize(
    ("health", "metrics", "models"),
    [
        ((200, b'{"status":"ok"}'), (200, b"# TYPE llamacpp:x gauge\nllamacpp:x 1\n"), (200, b'{"data":[{"id":"m","owned_by":"llamacpp"}]}')),
        ((200, b""), (200, b"sglang:num_running_reqs 1\n"), (200, b'{"data":[{"id":"m","owned_by":"sglang"}]}')),
        ((200, b"<html>"), (404, b""), (404, b"")),
    ],
)
async def test_another_engine_is_not_taken_for_vllm(health: Page, metrics: Page, models: Page) -> None:
    observation = await observed(serving(health=health, metrics=metrics, models=models))
    assert observation.state is State.NOT_RECOGNIZED
    assert observation.pools == ()


async def test_metrics_never_is_obeyed() -> None:
    ask = serving()
    ask.may_scrape = False
    observation = await observed(ask)
    assert not any(path.startswith("/metrics") for path in ask.asked)
    assert observation.pools[0].requests_running.reason is Reason.NO_SOURCE  # type: ignore[union-attr]


async def test_one_sleeping_engine_of_two_does_not_put_the_server_to_sleep() -> None:
    ask = ask_of(CASES / "0.32.0-two-engines-preempting")
    page: bytes = ask.replies["/metrics"][1]  # type: ignore[index]
    asleep = re.sub(rb'(engine_sleep_state\{engine="1",model_name="tiny",sleep_state="awake"\}) 1.0', rb"\1 0.0", page)
    ask.replies = {**ask.replies, "/metrics": (200, asleep)}
    observation = await observed(ask)
    assert observation.state is State.READY
    assert observation.pools[0].requests_running.value == 3  # type: ignore[union-attr]
    assert observation.pools[1].requests_running.reason is Reason.SLEEPING  # type: ignore[union-attr]
    assert set(observation.progress) == {"0"}


# --- What the core compares from poll to poll ---------------------------------------------------------------------------------------


async def progress_of(name: str, **changes: bytes) -> tuple[float, ...]:
    """The series of engine 0, with the values of some series replaced."""
    ask = ask_of(CASES / name)
    page: bytes = ask.replies["/metrics"][1]  # type: ignore[index]
    for series, value in changes.items():
        page, number = re.subn(rb"(?m)^(vllm:%s\{.*\}) .*$" % series.encode(), rb"\1 " + value, page)
        assert number == 1
    ask.replies = {**ask.replies, "/metrics": (200, page)}
    return (await observed(ask)).progress["0"]


@pytest.mark.parametrize(
    ("series", "value"),
    [
        ("generation_tokens_total", b"17426.0"),
        ("kv_cache_usage_perc", b"0.30434782608695654"),
        ("prompt_tokens_total", b"2725.0"),
        ("num_requests_running", b"2.0"),
    ],
)
async def test_every_wanted_series_that_moves_is_progress(series: str, value: bytes) -> None:
    """A long prefill moves nothing but the usage."""
    assert await progress_of("0.32.0-hung") != await progress_of("0.32.0-hung", **{series: value})


async def test_a_hung_engine_makes_no_progress() -> None:
    assert await progress_of("0.32.0-hung") == await progress_of("0.32.0-hung")


async def test_a_page_without_the_telling_series_makes_no_engine_stall() -> None:
    assert (await observed(ask_of(CASES / "0.32.0-statistics-off"))).progress == {}
    assert (await observed(ask_of(CASES / "made-0.32.0-several-api-servers-before-traffic"))).progress == {}


async def test_the_process_and_its_counters_are_named_for_each_engine() -> None:
    observation = await observed(ask_of(CASES / "0.32.0-two-engines-preempting"))
    assert observation.born == 1796050922.19
    assert observation.counters["vllm:generation_tokens_total/0"] == 8751
    assert observation.counters["vllm:generation_tokens_total/1"] == 8646


async def states(*seconds: float, page: bytes | None = None, stalled_after: float = 60.0) -> list[State]:
    """What the core makes of the hung server's replies (or of another page), polled at these moments."""
    ask, clock = ask_of(CASES / "0.32.0-hung"), FakeClock()
    bodies = {path: reply[1] for path, reply in ask.replies.items()}  # type: ignore[index]
    bodies["/metrics"] = page or bodies["/metrics"]
    sources = FakeSources(clock, lambda route: bodies["/metrics" if route.path == "/metrics/" else route.path])
    collector = TargetCollector(Watched("chat", ADAPTER, stalled_after=stalled_after), sources, {"vllm": ADAPTER}, clock=clock)
    seen = []
    for second in seconds:
        clock.now = NOON + second
        seen.append((await collector.poll()).state)
    return seen


async def test_the_core_takes_a_hung_engine_for_stalled_and_an_idle_one_not() -> None:
    assert await states(0, 20, 40, 59, 60) == [State.READY] * 4 + [State.STALLED]
    idle: bytes = ask_of(CASES / "0.32.0-before-load").replies["/metrics"][1]  # type: ignore[index]
    assert await states(0, 20, 40, 59, 60, 75, page=idle) == [State.READY] * 6


# --- Recognition --------------------------------------------------------------------------------------------------------------------


def replies(**bodies: tuple[int, bytes]) -> dict[str, Reply]:
    paths = {"health": "/health", "props": "/props", "version": "/version", "models": "/v1/models"}
    routes = {route.path: route for route in RECOGNITION_ROUTES}
    return {paths[name]: Reply(routes[paths[name]], status, {}, body, 1.0) for name, (status, body) in bodies.items()}


@pytest.mark.parametrize(
    ("bodies", "is_vllm"),
    [
        ({"health": (200, b""), "models": (200, b'{"data":[{"id":"tiny","owned_by":"vllm"}]}')}, True),
        ({"health": (200, b""), "version": (200, b'{"version":"0.32.0"}'), "models": (401, b'{"error":"Unauthorized"}')}, True),
        ({"health": (200, b""), "version": (200, b'{"version":"0.32.0"}')}, False),
        ({"health": (200, b""), "models": (200, b'{"data":[{"id":"m","owned_by":"sglang"}]}')}, False),
        ({"health": (200, b""), "version": (401, b"{}"), "models": (401, b'{"error":"Unauthorized"}')}, False),
        (
            {
                "health": (200, b""),
                "version": (200, b'{"version":"0.5.1"}'),
                "models": (200, b'{"object":"list","data":[{"id":"llama3","owned_by":"library"}]}'),
            },
            False,
        ),
        ({"version": (200, b'{"version":"0.32.0"}'), "models": (401, b'{"error":{"message":"Invalid API Key"}}')}, False),
    ],
)
def test_recognition(bodies: dict[str, Any], is_vllm: bool) -> None:
    assert ADAPTER.recognize(replies(**bodies)) is is_vllm


def test_every_route_is_a_plain_get_of_what_only_reads() -> None:
    assert {route.path for route in ADAPTER.routes} == {"/health", "/version", "/v1/models", "/metrics", "/metrics/"}
    assert all(not route.allowed for route in ADAPTER.routes)
    assert METRICS in ADAPTER.routes


async def test_the_server_s_models_are_asked_for_once_a_minute() -> None:
    assert {route.path: route.every.seconds for route in ADAPTER.routes if route.every.seconds} == {"/version": 60.0, "/v1/models": 60.0}


async def test_the_base_model_is_shown_not_an_adapter_of_it() -> None:
    adapter = b'{"id":"sql","parent":"base","max_model_len":null,"owned_by":"vllm"}'
    models = b'{"data":[%s,{"id":"/srv/x/base","parent":null,"max_model_len":4096,"owned_by":"vllm"}]}' % adapter
    pool = (await observed(serving(models=(200, models)))).pools[0]
    assert isinstance(pool.model, Known)
    assert pool.model.value == "base"
    assert pool.context_limit_tokens.value == 4096  # type: ignore[union-attr]
