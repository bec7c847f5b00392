"""What is asked of a llama.cpp server, and what is not: nothing that wakes a model, keeps it awake, loads it or evicts another."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest

from asking import REFUSED, TIMED_OUT, FakeAsk, launch_view, log_view
from fakes import FakeClock, FakeSources
from inspector import collector
from inspector.contract import Reply
from inspector.model import State
from inspector.reading import Reason, Unknown
from inspector_llamacpp import ADAPTER, causes
from inspector_llamacpp.routes import HEALTH, PROPS, ROUTES, V1_MODELS
from test_llamacpp_captures import observed, told

pytestmark = pytest.mark.anyio

BUILDS = Path(__file__).parent / "fixtures" / "llamacpp"
OK = (200, b'{"status":"ok"}')
LOADING = (503, b'{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}')
HTML = (200, b"<!doctype html><html><body></body></html>")


def body(build: str, name: str) -> tuple[int, bytes]:
    return 200, (BUILDS / build / name).read_bytes()


def server(build: str, when: str, **changes: Any) -> FakeAsk:
    replies = {
        "/health": OK,
        "/props": body(build, "props.json"),
        "/v1/models": body(build, "v1_models.json"),
        "/metrics": body(build, f"metrics-{when}.txt"),
        "/slots": body(build, f"slots-{when}.json"),
    }
    return FakeAsk(ADAPTER.routes, replies, **changes)


def with_reply(ask: FakeAsk, path: str, reply: Any) -> FakeAsk:
    ask.replies = {**ask.replies, path: reply}
    return ask


def edited(reply: tuple[int, bytes], **changes: Any) -> tuple[int, bytes]:
    return reply[0], json.dumps({**json.loads(reply[1]), **changes}).encode()


@pytest.mark.parametrize("build", ["b7551", "b9538", "b10068", "b10434", "b10566"])
@pytest.mark.parametrize("when", ["idle", "busy"])
async def test_a_build_not_proven_safe_is_not_asked_for_what_may_wake_it(build: str, when: str) -> None:
    """Both pages woke a sleeping model in builds before b10566, and this one has no number to tell by."""
    ask = server(build, when)
    pool = (await observed(ask)).pools[0]
    assert ask.asked == ["/health", "/props", "/v1/models"]
    assert told(pool.slots_busy)["reason"] == "would_wake"
    assert "b10566" in pool.requests_running.detail  # type: ignore[union-attr]


async def test_a_build_number_proves_that_metrics_are_safe() -> None:
    ask = server("b10566", "idle")
    with_reply(ask, "/props", edited(ask.replies["/props"], build_info="b10566-0123abcd"))
    assert told((await observed(ask)).pools[0].slots_busy) == 0
    assert ask.asked[-1] == "/metrics"
    with_reply(ask, "/props", edited(ask.replies["/props"], build_info="b10565-0123abcd"))
    ask.asked.clear()
    await observed(ask)
    assert "/metrics" not in ask.asked


async def test_slots_are_asked_only_of_a_server_at_work() -> None:
    """/slots keeps every build awake: it may be asked where a safe /metrics of the same poll shows that the server is awake anyway."""
    idle, busy = server("b11434", "idle"), server("b11434", "busy")
    await observed(idle)
    await observed(busy)
    assert "/slots" not in idle.asked
    assert busy.asked[-2:] == ["/metrics", "/slots"]


async def test_no_is_sleeping_means_a_build_that_cannot_sleep() -> None:
    """A server of early 2025: /props without the key, gauges of cached cells on /metrics, /slots off."""
    zeros = ("requests_processing", "requests_deferred", "kv_cache_usage_ratio", "kv_cache_tokens")
    pages = "".join(f"llamacpp:{name} 0\n" for name in zeros) + "llamacpp:n_busy_slots_per_decode -nan\n"
    ask = FakeAsk(ADAPTER.routes, {"/health": OK, "/props": old_props(3, 1024), "/metrics": (200, pages.encode()), "/slots": (501, b"{}")})
    pool = (await observed(ask)).pools[0]
    assert ask.asked == ["/health", "/props", "/v1/models", "/metrics", "/slots"]
    assert (told(pool.requests_running), told(pool.kv_usage_ratio), told(pool.kv_used_tokens), told(pool.kv_reclaimable_tokens)) == (0, 0, 0, 0)
    assert (told(pool.kv_unified), told(pool.kv_capacity_tokens)) == (False, 3072)


async def test_the_old_gauge_counts_cached_cells_and_is_an_upper_bound() -> None:
    def page(processing: int) -> tuple[int, bytes]:
        return 200, f"llamacpp:requests_processing {processing}\nllamacpp:kv_cache_usage_ratio 0.5\nllamacpp:kv_cache_tokens 1536\n".encode()

    async def told_for(processing: int) -> list[Any]:
        ask = FakeAsk(ADAPTER.routes, {"/health": OK, "/props": old_props(3, 1024), "/metrics": page(processing), "/slots": (501, b"{}")})
        pool = (await observed(ask)).pools[0]
        return [told(pool.kv_used_tokens), told(pool.kv_reclaimable_tokens), told(pool.kv_usage_ratio)]

    bounded = {"reason": "ambiguous", "bounds": [0, 1536]}
    assert await told_for(1) == [bounded, bounded, {"reason": "ambiguous", "bounds": [0, 0.5]}]
    assert await told_for(3) == [1536, 0, 0.5]  # all slots work: nothing is merely cached
    assert await told_for(0) == [0, 1536, 0.0]


async def test_a_build_that_must_know_sleep_but_does_not_say_is_asked_no_more() -> None:
    props = {k: v for k, v in json.loads(body("b11434", "props.json")[1]).items() if k != "is_sleeping"}
    ask = with_reply(server("b11434", "busy"), "/props", (200, json.dumps(props).encode()))
    await observed(ask)
    assert ask.asked == ["/health", "/props", "/v1/models"]


OTHER_PROCESS = {
    "build": {"build_info": "b1-0123abc"},
    "model": {"model_path": "/models/other/tiny.gguf"},
    "slots": {"total_slots": 2},
    "context": {"default_generation_settings": {"n_ctx": 512}},
    "keys": {"some_key_of_another_build": 1},
}
"""How /props of another process on the same port may differ."""


@pytest.mark.parametrize("change", OTHER_PROCESS.values(), ids=OTHER_PROCESS)
async def test_what_proved_one_process_harmless_proves_nothing_of_the_next(change: dict[str, Any]) -> None:
    """Another build is started on the port between two polls: the list that proved the former one may have been kept, and must not be believed."""
    recall = ADAPTER.start()
    ask = server("b11434", "idle")
    for _ in range(2):
        await ADAPTER.observe(ask, recall)
        assert ask.asked[-1] == "/metrics"
    with_reply(ask, "/props", edited(ask.replies["/props"], **change))
    ask.asked.clear()
    for _ in range(2):
        await ADAPTER.observe(ask, recall)
    assert "/metrics" not in ask.asked
    ask.now += 60  # the list is a new one
    await ADAPTER.observe(ask, recall)
    assert ask.asked[-1] == "/metrics"


@pytest.mark.parametrize("seconds", [5.0, -3600.0])
@pytest.mark.parametrize("change", OTHER_PROCESS.values(), ids=OTHER_PROCESS)
async def test_an_old_build_that_took_over_the_port_within_a_poll_is_not_woken(change: dict[str, Any], seconds: float) -> None:
    """Nothing else shows the change: no counter has moved yet, no process can be looked at, and the clock may have been set back meanwhile."""
    clock, ticks = FakeClock(), FakeClock()
    replies = dict(server("b11434", "idle").replies)
    sources = FakeSources(clock, lambda route: replies[route.path][1])  # type: ignore[index]
    polled = collector.TargetCollector(collector.Watched("chat", ADAPTER), sources, {}, clock=clock, monotonic=ticks)
    await polled.poll()
    assert [asked.path for asked in sources.asked][-1] == "/metrics"
    replies |= {"/props": edited(replies["/props"], **change), "/v1/models": body("b10434", "v1_models.json")}  # type: ignore[arg-type]
    sources.asked.clear()
    for _ in range(2):
        clock.advance(seconds)
        ticks.advance(5.0)
        assert (await polled.poll()).generation == 2
    assert not {"/metrics", "/slots"} & {asked.path for asked in sources.asked}


async def test_slots_say_that_metrics_timed_out_where_they_rest_on_them() -> None:
    """The operator is not told to change what is not the cause."""
    ask = with_reply(server("b11434", "busy"), "/metrics", TIMED_OUT)
    pool = (await observed(ask)).pools[0]
    assert "/slots" not in ask.asked
    assert told(pool.slots_busy)["reason"] == told(pool.kv_used_tokens)["reason"] == "timeout"


@pytest.mark.parametrize("settings", [{}, {"sleep_idle_seconds": -1}, {"sleep_idle_seconds": 0}])
async def test_a_process_without_a_sleep_timer_may_be_asked_all(settings: dict[str, Any]) -> None:
    ask = server("b10434", "after", launch=launch_view({"parallel": 4, **settings}))
    assert told((await observed(ask)).pools[0].kv_reclaimable_tokens) == 3612
    assert ask.asked[-2:] == ["/metrics", "/slots"]


@pytest.mark.parametrize(
    "launch",
    [
        launch_view({"sleep_idle_seconds": 300}),
        launch_view({"parallel": 4}, missing="the environment could not be read"),
        launch_view({"parallel": 4}, live=False),
        launch_view({"parallel": 8}),
    ],
    ids=["a timer", "not all read", "a file", "another process"],
)
async def test_other_launch_settings_prove_nothing(launch: Any) -> None:
    ask = server("b10434", "after", launch=launch)
    await observed(ask)
    assert ask.asked == ["/health", "/props", "/v1/models"]


async def test_never_scraping_still_reads_slots_where_that_is_harmless() -> None:
    ask = server("b10434", "busy", launch=launch_view({"parallel": 4}), may_scrape=False)
    pool = (await observed(ask)).pools[0]
    assert "/metrics" not in ask.asked
    assert (told(pool.kv_used_tokens), told(pool.requests_running), told(pool.requests_waiting)["reason"]) == (1777, 4, "no_source")


async def test_a_proof_lasts_for_the_generation() -> None:
    recall = ADAPTER.start()
    await ADAPTER.observe(server("b11434", "idle"), recall)
    ask = with_reply(server("b11434", "idle"), "/v1/models", TIMED_OUT)
    assert told((await ADAPTER.observe(ask, recall)).pools[0].slots_busy) == 0


async def test_behind_a_long_decode_the_server_is_ready_and_nothing_is_zero() -> None:
    ask = server("b10068", "idle", launch=launch_view({"parallel": 4}))
    with_reply(with_reply(ask, "/metrics", TIMED_OUT), "/slots", TIMED_OUT)
    observation = await observed(ask)
    pool = observation.pools[0]
    assert observation.state is State.READY
    assert {told(pool.reading(name))["reason"] for name in ("slots_busy", "requests_running", "kv_used_tokens", "kv_reclaimable_tokens")} == {"timeout"}
    assert told(pool.slots) == 4
    assert observation.progress == {}


@pytest.mark.parametrize("reply", [REFUSED, TIMED_OUT])
async def test_a_server_that_does_not_answer_is_unreachable(reply: Any) -> None:
    observation = await observed(FakeAsk(ADAPTER.routes, {"/health": reply}))
    assert (observation.state, observation.pools) == (State.UNREACHABLE, ())


@pytest.mark.parametrize("health", [LOADING, (503, b'{"status":"loading model"}')])
async def test_loading_stops_all_questions(health: tuple[int, bytes]) -> None:
    ask = with_reply(server("b11434", "busy"), "/health", health)
    assert (await observed(ask)).state is State.LOADING
    assert ask.asked == ["/health"]


async def test_a_503_because_all_slots_work_is_not_loading() -> None:
    """Kind of llama.cpp#5548: a few builds of February 2024."""
    ask = FakeAsk(ADAPTER.routes, {"/health": (503, b'{"status":"no slot available","slots_idle":0,"slots_processing":2}'), "/props": old_props(2, 768)})
    observation = await observed(ask)
    assert observation.state is State.READY
    pool = observation.pools[0]
    assert (told(pool.slots), told(pool.slots_busy), told(pool.context_limit_tokens)) == (2, 2, 768)
    assert "reason" in told(pool.kv_used_tokens)


async def test_states_of_2024_count_as_working_and_prompts_are_not_kept() -> None:
    """Kind of llama.cpp#10053: any state above zero works; the page carries prompts."""
    rows = [{"id": i, "n_ctx": 768, "state": s, "prompt": "SECRET", "next_token": {"n_decoded": 5}} for i, s in enumerate((0, 4, 1))]
    ask = FakeAsk(ADAPTER.routes, {"/health": OK, "/props": old_props(3, 768), "/metrics": (501, b"{}"), "/slots": (200, json.dumps(rows).encode())})
    observation = await observed(ask)
    pool = observation.pools[0]
    assert [told(slot.busy) for slot in pool.slots_detail] == [False, True, True]
    assert (told(pool.slots_busy), told(pool.kv_unified), told(pool.kv_capacity_tokens)) == (2, False, 2304)
    assert told(pool.kv_used_tokens) == {"reason": "not_reported", "bounds": [10, None]}
    assert told(pool.kv_reclaimable_tokens)["reason"] == "not_reported"
    assert "SECRET" not in repr(observation)


async def test_a_gateway_that_answers_html_is_not_recognized() -> None:
    """Kind of a report of September 2026: code 200 and a page for people everywhere."""
    ask = FakeAsk(ADAPTER.routes, dict.fromkeys(("/health", "/props", "/slots", "/metrics"), HTML))
    observation = await observed(ask)
    assert (observation.state, observation.pools) == (State.NOT_RECOGNIZED, ())
    assert ask.asked == ["/health", "/props"]


async def test_html_at_health_is_overlooked_where_props_are_llama_cpps() -> None:
    observation = await observed(with_reply(server("b11434", "idle"), "/health", HTML))
    assert (observation.state, told(observation.pools[0].slots)) == (State.READY, 4)


@pytest.mark.parametrize("reply", [(200, b""), (200, b"{"), HTML, (200, b"[]"), (200, b"{}"), (500, b"oops"), (404, b"{}"), TIMED_OUT])
async def test_props_that_cannot_be_read_are_unknown_not_down(reply: Any) -> None:
    ask = with_reply(server("b11434", "busy"), "/props", reply)
    observation = await observed(ask)
    assert observation.state is State.READY
    assert all(path in ("/health", "/props", "/v1/models") for path in ask.asked)
    assert {told(observation.pools[0].reading(name)).__class__ for name in ADAPTER.offers(None) - {"model"}} == {dict}
    assert observation.faults[0].source == "/props"


@pytest.mark.parametrize("reply", [(200, b""), (200, b"{}"), HTML, (200, b"[]"), (200, b"[1]"), (200, b'[{"id":0},{"id":0}]'), (500, b"")])
async def test_slots_that_cannot_be_read_make_no_sum(reply: Any) -> None:
    ask = with_reply(server("b11434", "busy"), "/slots", reply)
    observation = await observed(ask)
    assert told(observation.pools[0].kv_used_tokens)["reason"] == "invalid"
    assert told(observation.pools[0].requests_running) == 4


async def test_too_few_slots_make_no_sum() -> None:
    ask = server("b11434", "busy")
    three = json.loads(ask.replies["/slots"][1])[:3]  # type: ignore[index]
    pool = (await observed(with_reply(ask, "/slots", (200, json.dumps(three).encode())))).pools[0]
    assert (told(pool.slots), told(pool.kv_used_tokens)["reason"], told(pool.slots_busy)["reason"]) == (4, "invalid", "invalid")


async def test_a_request_that_came_between_the_two_pages_is_in_use() -> None:
    """/metrics still says that nothing runs, /slots already shows four at work: no zero may be made of the first, whether the second counts tokens or not."""
    ask = server("b10434", "idle", launch=launch_view({"parallel": 4}))
    assert told((await observed(with_reply(ask, "/slots", body("b10434", "slots-busy.json")))).pools[0].kv_used_tokens) == 1777
    rows = [{k: v for k, v in row.items() if k != "n_prompt_tokens"} for row in json.loads(body("b10434", "slots-busy.json")[1])]
    pool = (await observed(with_reply(ask, "/slots", (200, json.dumps(rows).encode())))).pools[0]
    assert (told(pool.slots_busy), told(pool.kv_used_tokens)["reason"]) == (4, "not_reported")


@pytest.mark.parametrize("build", ["b0-unknown", "b1-571d0d5", "b1000-0123abc", "", "11434", "b11434", None, 11434])
async def test_a_build_without_a_number_states_no_version(build: Any) -> None:
    ask = server("b10434", "idle")
    observation = await observed(with_reply(ask, "/props", edited(ask.replies["/props"], build_info=build)))
    assert told(observation.version)["reason"] == "not_reported"


@pytest.mark.parametrize("key", ["model_alias", "model_path"])
@pytest.mark.parametrize("path", ["/srv/SECRET/chat.gguf", "C:\\SECRET\\chat.gguf", "/srv/SECRET/chat.gguf/"])
async def test_a_model_is_shown_by_its_base_name(key: str, path: str) -> None:
    props = edited(body("b11434", "props.json"), **{"model_alias": "", key: path})
    seen = await observed(with_reply(server("b11434", "busy"), "/props", props))
    assert told(seen.pools[0].model) == "chat.gguf"
    assert "SECRET" not in repr(seen)


@pytest.mark.parametrize("path", ["/health", "/props", "/v1/models", "/metrics", "/slots"])
@pytest.mark.parametrize("page", ["SECRET", '"SECRET"', '["SECRET"]', '[{"id":"SECRET"}]', '{"prompt":"SECRET"}', '{"error":{"message":"SECRET"}}'])
async def test_a_page_of_another_kind_is_not_repeated(path: str, page: str) -> None:
    ask = with_reply(server("b10434", "after", launch=launch_view({"parallel": 4})), path, (200, page.encode()))
    seen = await observed(ask)
    assert path in ask.asked
    assert "SECRET" not in repr(seen)


async def test_metrics_that_are_html_measure_no_zero() -> None:
    ask = with_reply(server("b11434", "idle"), "/metrics", HTML)
    pool = (await observed(ask)).pools[0]
    assert told(pool.requests_running)["reason"] == "not_reported"
    assert "reason" in told(pool.kv_used_tokens)


async def test_a_key_is_asked_for_where_it_is_wanted() -> None:
    observation = await observed(with_reply(server("b11434", "busy"), "/props", (403, b"{}")))
    assert (observation.state, observation.pools) == (State.UNAUTHORIZED, ())
    assert "api_key_file" in observation.detail


async def test_disabled_endpoints_say_what_to_do_and_are_not_asked() -> None:
    ask = with_reply(server("b11434", "busy"), "/props", body("b11434", "props-no-slots-no-metrics.json"))
    pool = (await observed(ask)).pools[0]
    assert ask.asked == ["/health", "/props", "/v1/models"]
    assert pool.requests_running.detail == "start llama-server with --metrics"  # type: ignore[union-attr]
    assert "--no-slots" in pool.kv_reclaimable_tokens.detail  # type: ignore[union-attr]


async def test_a_sleeping_model_is_asked_nothing_more_even_where_waking_is_allowed() -> None:
    ask = FakeAsk(ADAPTER.routes, {"/health": OK, "/props": body("b10434", "sleeping-props.json")}, may_wake=True)
    assert (await observed(ask)).state is State.SLEEPING
    assert ask.asked == ["/health", "/props"]


async def test_counters_and_progress_come_from_metrics_of_this_poll() -> None:
    observation = await observed(server("b11434", "busy"))
    assert observation.counters == {
        "llamacpp:prompt_tokens_total": 816,
        "llamacpp:tokens_predicted_total": 0,
        "llamacpp:n_decode_total": 358,
        "llamacpp:n_tokens_max": 561,
    }
    assert observation.progress == {"0": (358, 561, 2233)}


def router(models: str, **changes: Any) -> FakeAsk:
    replies = {"/health": OK, "/props": body("b11434", "router-props-unloaded.json"), "/models": body("b11434", models)}
    return FakeAsk(ADAPTER.routes, replies, **changes)


def models_with(args: list[str], status: str = "loaded", **meta: Any) -> tuple[int, bytes]:
    row = {"id": "org/big", "status": {"value": status, "args": ["llama-server", *args]}, "meta": meta, "architecture": {}}
    return 200, json.dumps({"data": [row, {"id": 7}, None, {"id": "idle", "status": {"value": "unloaded"}}]}).encode()


async def test_every_question_to_a_routers_model_forbids_loading() -> None:
    ask = router("router-models-one-loaded.json", may_wake=True)
    await observed(ask)
    asked = [path for path in ask.asked if "model=" in path]
    assert asked
    assert all("autoload=false" in path for path in asked)
    for route in ROUTES:
        assert ("autoload", "false") in route.required or "model" not in route.allowed


async def test_a_routers_model_without_a_timer_is_read_whole() -> None:
    ask = router("router-models-one-loaded.json")
    with_reply(ask, "/models", models_with(["--port", "1", "--ctx-size", "4096", "--parallel", "4", "--kv-unified"], n_ctx=4096, n_ctx_train=8192))
    props = edited(body("b11434", "props.json"), default_generation_settings={"n_ctx": 4096})
    with_reply(ask, "/props?model=org%2Fbig", props)
    with_reply(ask, "/metrics?model=org%2Fbig", body("b11434", "metrics-busy.txt"))
    rows = [{**row, "n_ctx": 4096} for row in json.loads(body("b11434", "slots-busy.json")[1])]
    with_reply(ask, "/slots?model=org%2Fbig", (200, json.dumps(rows).encode()))
    pool = (await observed(ask)).pools[0]
    assert (pool.id, told(pool.model), told(pool.kv_unified), told(pool.kv_capacity_tokens)) == ("org/big", "big", True, 4096)
    assert (told(pool.kv_used_tokens), told(pool.context_guaranteed_tokens)) == (2233, 1024)
    assert told(pool.kv_usage_ratio) == pytest.approx(2233 / 4096)
    assert str(pool.kv_unified.origin) == "http:/models"  # type: ignore[union-attr]


async def test_a_routers_model_is_permitted_by_the_build_of_this_very_poll() -> None:
    """The router may be replaced by an older one whose list of models looks the same."""
    ask, recall = router("router-models-one-loaded.json"), ADAPTER.start()
    with_reply(ask, "/models", models_with(["--sleep-idle-seconds", "300"]))
    props, page = "/props?model=org%2Fbig", "/metrics?autoload=false&model=org%2Fbig"
    for build, asked in (("b10566-0123abcd", True), ("b10565-0123abcd", False), ("b10566-0123abcd", True)):
        with_reply(ask, props, edited(body("b11434", "router-props-model-loaded.json"), build_info=build))
        ask.asked.clear()
        await ADAPTER.observe(ask, recall)
        assert (page in ask.asked) is asked


async def test_architecture_proves_nothing_about_a_routers_model() -> None:
    """Routers of b10068 and b10434 show it too, and their models are woken by /metrics."""
    ask = router("router-models-one-loaded.json")
    with_reply(ask, "/props?model=tiny-b", body("b11434", "router-props-model-loaded.json"))
    await observed(ask)
    assert not any(path.startswith(("/metrics", "/slots")) for path in ask.asked)


async def test_a_model_that_is_loading_is_not_asked() -> None:
    ask = router("router-models-one-loaded.json")
    with_reply(ask, "/models", models_with([], status="loading"))
    observation = await observed(ask)
    assert ask.asked == ["/health", "/props", "/models"]
    assert told(observation.pools[0].slots)["reason"] == "loading"


async def test_a_model_that_crashed_is_told_as_a_fault() -> None:
    row = {"id": "m", "status": {"value": "unloaded", "failed": True, "exit_code": 1}}
    observation = await observed(with_reply(router("router-models-unloaded.json"), "/models", (200, json.dumps({"data": [row]}).encode())))
    assert (observation.state, observation.pools, observation.faults[0].source) == (State.READY, (), "/models")


async def test_paths_of_a_routers_arguments_are_not_kept() -> None:
    observation = await observed(
        with_reply(router("router-models-one-loaded.json"), "/models", models_with(["--model", "/home/SECRET.gguf", "--api-key", "SECRET"]))
    )
    assert "SECRET" not in repr(observation)


@pytest.mark.parametrize(
    ("ids", "told"),
    [
        (["/srv/SECRET/tiny.gguf"], ["tiny.gguf"]),
        (["C:\\SECRET\\tiny.gguf"], ["tiny.gguf"]),
        (["C:/tiny.gguf"], ["tiny.gguf"]),
        (["SECRET/tiny.gguf"], ["tiny.gguf"]),
        (["~/tiny"], ["tiny"]),
        (["../SECRET/tiny"], ["tiny"]),
        (["/srv/a/tiny.gguf", "/srv/b/tiny.gguf", "tiny.gguf"], ["tiny.gguf", "tiny.gguf-2", "tiny.gguf-3"]),
        (["/", "\\"], ["model", "model-2"]),
        (["org/big:Q4_K_M", "tiny-b"], ["org/big:Q4_K_M", "tiny-b"]),
    ],
)
@pytest.mark.parametrize("status", ["loading", "loaded", "sleeping", "unloaded"])
async def test_a_path_that_is_a_models_id_is_told_as_its_base_name_and_asked_for_as_it_is(ids: list[str], told: list[str], status: str) -> None:
    rows = [{"id": name, "status": {"value": status, "failed": status == "unloaded"}} for name in ids]
    ask = with_reply(router("router-models-unloaded.json"), "/models", (200, json.dumps({"data": rows}).encode()))
    observation = await observed(ask)
    assert sorted(pool.id for pool in observation.pools) == ([] if status == "unloaded" else told)
    assert "SECRET" not in repr(observation)
    assert "/srv" not in repr(observation)
    asked = {name for path in ask.asked for key, name in parse_qsl(path.partition("?")[2]) if key == "model"}
    assert asked == (set(ids) if status == "loaded" else set())


async def test_a_routers_zero_context_is_no_context() -> None:
    observation = await observed(router("router-models-unloaded.json"))
    assert observation.state is State.READY
    assert observation.pools == ()


@pytest.mark.parametrize("reply", [(200, b"{}"), (200, b'{"data":3}'), (500, b""), TIMED_OUT, (401, b"{}")])
async def test_a_router_that_does_not_list_its_models_has_a_fault(reply: Any) -> None:
    observation = await observed(with_reply(router("router-models-unloaded.json"), "/models", reply))
    assert (observation.state, observation.pools) == (State.READY, ())
    assert observation.faults[0].source == "/models"


def test_recognition_by_header_props_or_owner() -> None:
    def reply(route: Any, content: tuple[int, bytes], **headers: str) -> dict[str, Reply]:
        return {route.path: Reply(route, content[0], headers, content[1], 0.0)}

    for build in ("b7551", "b9538", "b10068", "b10434", "b10566", "b11434", "b11549"):
        assert ADAPTER.recognize(reply(PROPS, body(build, "props.json")))
        assert ADAPTER.recognize(reply(V1_MODELS, body(build, "v1_models.json")))
    assert ADAPTER.recognize(reply(HEALTH, OK, server="llama.cpp"))
    assert ADAPTER.recognize(reply(PROPS, body("b11434", "router-props-unloaded.json")))
    for other in (
        reply(HEALTH, OK, server="uvicorn"),
        reply(PROPS, HTML),
        reply(PROPS, (200, b'{"total_slots":1}')),
        reply(V1_MODELS, (200, b'{"data":[{"id":"m","owned_by":"vllm"}]}')),
        {},
    ):
        assert not ADAPTER.recognize(other)


def test_offered_fields_leave_out_what_this_engine_has_not() -> None:
    offered = ADAPTER.offers("b11434")
    assert not offered & {"preemptions_total", "requests_in_flight", "used_bytes"}


async def test_what_is_not_offered_is_not_offered_in_the_pool() -> None:
    pool = (await observed(server("b11434", "busy"))).pools[0]
    assert told(pool.preemptions_total)["reason"] == Reason.NOT_OFFERED
    assert told(pool.requests_in_flight)["reason"] == Reason.NOT_OFFERED


def old_props(slots: int, context: int) -> tuple[int, bytes]:
    """/props as builds of 2024 and early 2025 gave it."""
    return 200, json.dumps({"default_generation_settings": {"n_ctx": context, "model": "/models/m.gguf"}, "total_slots": slots}).encode()


@pytest.mark.parametrize("reason", [Reason.NO_SOURCE, Reason.STALE])
async def test_why_a_log_cannot_be_read_is_told_as_the_reader_tells_it(reason: Reason) -> None:
    problem = Unknown(reason, "the log file server.log cannot be read: Permission denied")
    pool = (await observed(server("b11434", "idle", log=problem))).pools[0]
    assert pool.kv_exhaustions_total == pool.kv_capacity_bytes == pool.kv_bytes_per_token == problem


async def test_where_no_log_is_configured_the_remedy_is_to_set_one() -> None:
    pool = (await observed(server("b11434", "idle", log=collector.NO_LOG))).pools[0]
    assert pool.kv_exhaustions_total == causes.NO_LOG
    assert pool.kv_capacity_bytes == pool.kv_bytes_per_token == causes.NO_LOG_OF_BYTES
    assert "logs" in causes.NO_LOG_OF_BYTES.detail


async def test_a_log_that_is_read_and_states_no_bytes_is_not_asked_for_again() -> None:
    view = log_view(ADAPTER.log_patterns, (BUILDS / "b11434" / "log-kv-unified-exhaust.txt").read_text().splitlines())
    pool = (await observed(server("b11434", "idle", log=view))).pools[0]
    assert pool.kv_capacity_bytes == pool.kv_bytes_per_token == causes.NO_BYTES
    assert "`logs`" not in causes.NO_BYTES.detail
