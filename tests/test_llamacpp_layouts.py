"""How the KV cache is laid out: the truth is what each real server wrote into its log; without the log the bounds hold it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from asking import FakeAsk, launch_view, log_view, stated
from inspector.layout import Shared, Split, capacity_tokens, guaranteed_tokens
from inspector.model import Pool
from inspector_llamacpp import ADAPTER
from test_llamacpp_captures import observed, told

pytestmark = pytest.mark.anyio

BUILDS = Path(__file__).parent / "fixtures" / "llamacpp"
HEALTH = (200, b'{"status":"ok"}')

# name: argv settings, slots, context of a slot, unified, tokens that requests can hold, tokens that each surely has
STARTS: dict[str, tuple[dict[str, Any], int, int, bool, int, int]] = {
    "np4-split": ({"parallel": 4, "ctx_size": 2048, "kv_unified": False}, 4, 512, False, 2048, 512),
    "np4-default": ({"parallel": 4, "ctx_size": 2048}, 4, 512, False, 2048, 512),
    "np4-unified": ({"parallel": 4, "ctx_size": 2048, "kv_unified": True}, 4, 2048, True, 2048, 512),
    "npauto": ({"ctx_size": 2048}, 4, 2048, True, 2048, 512),
    "npauto-c0": ({"ctx_size": 0}, 4, 8192, True, 8192, 2048),
    "np1": ({"parallel": 1, "ctx_size": 2048}, 1, 2048, False, 2048, 2048),
    "np3-c1000": ({"parallel": 3, "ctx_size": 1000}, 3, 512, False, 1536, 512),
    "over-train-np1": ({"parallel": 1, "ctx_size": 16384}, 1, 8192, False, 8192, 8192),
    "perslot": ({"parallel": 4, "kv_unified": True, "kv_unified_per_slot": 512}, 4, 512, True, 2048, 512),
}
CASES = [(build, name) for build in ("b10068", "b10434", "b11434") for name in STARTS if (BUILDS / build / f"props-{name}.json").exists()]


def ask_of(build: str, name: str, *, log: bool = False, argv: bool = False) -> FakeAsk:
    folder = BUILDS / build
    ask = FakeAsk(ADAPTER.routes, {"/health": HEALTH, "/props": (200, (folder / f"props-{name}.json").read_bytes())})
    if log:
        ask.log = log_view(ADAPTER.log_patterns, (folder / f"startup-{name}.txt").read_text().splitlines())
    if argv:
        ask.launch = launch_view({**STARTS[name][0], "sleep_idle_seconds": 60})
    return ask


async def pool_of(ask: FakeAsk) -> Pool:
    return (await observed(ask)).pools[0]


@pytest.mark.parametrize(("build", "name"), CASES)
@pytest.mark.parametrize("source", ["log", "argv"])
async def test_with_log_or_argv_the_layout_is_exact(build: str, name: str, source: str) -> None:
    """The truth is the slots line and `cells * streams` of the size line of this start."""
    _, slots, context, unified, capacity, guaranteed = STARTS[name]
    pool = await pool_of(ask_of(build, name, **{source: True}))
    assert (told(pool.slots), told(pool.context_limit_tokens)) == (slots, context)
    assert (told(pool.kv_capacity_tokens), told(pool.context_guaranteed_tokens)) == (capacity, guaranteed)
    assert told(pool.kv_unified) is unified
    assert len(pool.layouts) == 1


@pytest.mark.parametrize(("build", "name"), CASES)
async def test_http_alone_gives_bounds_that_hold_the_truth(build: str, name: str) -> None:
    _, slots, context, _, capacity, guaranteed = STARTS[name]
    pool = await pool_of(ask_of(build, name))
    if slots == 1:
        assert told(pool.kv_capacity_tokens) == context
        return
    assert told(pool.kv_capacity_tokens) == {"reason": "ambiguous", "bounds": [context, slots * context]}
    assert context <= capacity <= slots * context
    assert told(pool.context_guaranteed_tokens) == {"reason": "ambiguous", "bounds": [context // slots, context]}
    assert context // slots <= guaranteed <= context


@pytest.mark.parametrize(("build", "name"), CASES)
async def test_bytes_of_the_cache_are_those_of_the_size_line(build: str, name: str) -> None:
    """This model holds 256 bytes a token: 2 layers, 2 KV heads of 16, K and V, 2 bytes each. The figure in the log is rounded to 0.01 MiB."""
    pool = await pool_of(ask_of(build, name, log=True))
    cells = 16384 if name == "over-train-np1" else STARTS[name][4]
    assert told(pool.kv_capacity_bytes) == pytest.approx(cells * 256, abs=0.0051 * 2**20)
    assert told(pool.kv_bytes_per_token) == pytest.approx(256, abs=0.0051 * 2**20 / cells)


async def test_a_shared_pool_above_the_trained_context_keeps_its_size() -> None:
    """-np 2 -c 16384 -kvu on a model trained on 8192: the request is capped, the pool is not."""
    lines = ["srv    load_model: the slot context (16384) exceeds the training context of the model (8192) - capping", slots_line(2, 8192, "true")]
    pool = await pool_of(of_log(lines))
    assert pool.layouts == (Shared(2, 16384, 8192),)
    assert told(pool.kv_capacity_tokens) == 16384
    assert told(pool.context_limit_tokens) == 8192


async def test_a_cap_for_each_slot_does_not_shrink_the_pool() -> None:
    """Lines of b11549 for -np 2 -c 2048 -kvu --kv-unified-per-slot 512: only 1024 tokens of the pool can be used."""
    pool = await pool_of(of_log(["srv    load_model: capping per-slot context (2048) to --kv-unified-per-slot (512)", slots_line(2, 512, "true")]))
    assert pool.layouts == (Shared(2, 2048, 512),)
    assert told(pool.kv_capacity_tokens) == 1024


async def test_a_pool_that_was_capped_twice_keeps_its_first_figure() -> None:
    """The second line speaks of what the first has left."""
    lines = [
        "srv    load_model: capping per-slot context (16384) to --kv-unified-per-slot (12000)",
        "srv    load_model: the slot context (12000) exceeds the training context of the model (8192) - capping",
        slots_line(4, 8192, "true"),
    ]
    assert (await pool_of(of_log(lines))).layouts == (Shared(4, 16384, 8192),)


async def test_a_pool_that_only_the_log_knows() -> None:
    """Kind of lemonade-sdk/lemonade#3276: no HTTP facts, one line of a unified server of six slots; ten retries and no kill."""
    retries = [
        f"srv        decode: failed to find free space in the KV cache, retrying with smaller batch size, off = 0, n_batch = {2**n}, ret = 1" for n in range(10)
    ]
    pool = await pool_of(of_log([slots_line(6, 60000, "true"), *retries]))
    assert (told(pool.slots), told(pool.context_limit_tokens), told(pool.kv_unified)) == (6, 60000, True)
    assert (told(pool.kv_capacity_tokens), told(pool.context_guaranteed_tokens), told(pool.kv_exhaustions_total)) == (60000, 10000, 0)


async def test_old_lines_without_a_comma_leave_the_shape_open() -> None:
    """Kind of llama.cpp#16278, September 2025."""
    lines = ["srv          init: initializing slots, n_slots = 8", *(f"slot         init: id  {i} | task -1 | new slot n_ctx_slot = 4096" for i in range(8))]
    pool = await pool_of(of_log(lines))
    assert (told(pool.slots), told(pool.context_limit_tokens)) == (8, 4096)
    assert told(pool.kv_capacity_tokens) == {"reason": "ambiguous", "bounds": [4096, 32768]}


async def test_lines_of_2024() -> None:
    lines = [
        'INFO [                    main] build info | tid="1" timestamp=1716000000 build=2900 commit="abc"',
        'INFO [                    init] initializing slots | tid="1" timestamp=1716000001 n_slots=2',
        'INFO [                    init] new slot | tid="1" timestamp=1716000001 id_slot=0 n_ctx_slot=1024',
        'INFO [                    init] new slot | tid="1" timestamp=1716000001 id_slot=1 n_ctx_slot=1024',
    ]
    pool = await pool_of(of_log(lines))
    assert (told(pool.slots), told(pool.context_limit_tokens)) == (2, 1024)


async def test_sums_over_slots_raise_the_least_pool_and_no_more() -> None:
    """Four slots of 1024 held 3612 tokens at once (b11434, after the load): no shared pool of 1024 can do that."""
    ask = capture("b11434", "slots-after.json")
    pool = await pool_of(ask)
    assert told(pool.kv_capacity_tokens) == {"reason": "ambiguous", "bounds": [3612, 4096]}


async def test_working_slots_may_share_their_cells_so_only_the_largest_counts() -> None:
    """Four busy slots of 558, 558, 558 and 559 tokens (b11434): completions of one prompt would hold its cells together."""
    pool = await pool_of(capture("b11434", "slots-busy.json"))
    assert told(pool.kv_capacity_tokens) == {"reason": "ambiguous", "bounds": [1024, 4096]}


async def test_what_was_held_at_once_is_remembered_for_the_generation() -> None:
    recall = ADAPTER.start()
    await ADAPTER.observe(capture("b11434", "slots-after.json"), recall)
    later = (await ADAPTER.observe(capture("b11434", "slots-idle.json"), recall)).pools[0]
    fresh = (await ADAPTER.observe(capture("b11434", "slots-idle.json"), ADAPTER.start())).pools[0]
    assert told(later.kv_capacity_tokens)["bounds"] == [3612, 4096]
    assert told(fresh.kv_capacity_tokens)["bounds"] == [1024, 4096]


async def test_the_operator_settles_the_shape() -> None:
    ask = ask_of("b11434", "np4-unified")
    ask.stated = stated(kv_unified=False)
    assert (await pool_of(ask)).layouts == (Split(4, 2048),)
    ask.stated = stated(kv_unified=True, kv_capacity_tokens=2048)
    assert (await pool_of(ask)).layouts == (Shared(4, 2048, 2048),)
    ask.stated = stated(kv_unified=True)
    assert told((await pool_of(ask)).kv_capacity_tokens) == {"reason": "ambiguous", "bounds": [2048, 8192]}


async def test_a_statement_of_a_wrong_kind_is_no_fact() -> None:
    ask = ask_of("b11434", "np4-unified")
    ask.stated = stated(kv_unified=1, kv_capacity_tokens="2048")
    pool = await pool_of(ask)
    assert told(pool.kv_unified)["reason"] == "ambiguous"
    assert told(pool.kv_capacity_tokens)["bounds"] == [2048, 8192]


async def test_a_log_of_another_server_is_believed_about_nothing() -> None:
    """HTTP says 4 slots of 512, the log 2 slots of 8192 that share: the drift is shown, and its `kv_unified`, bytes and kills are not taken."""
    ask = ask_of("b11434", "np4-split")
    ask.log = log_view(ADAPTER.log_patterns, [slots_line(2, 8192, "true"), "srv send_error: task id = 3, error: Context size has been exceeded."])
    observation = await observed(ask)
    pool = observation.pools[0]
    assert {(d.field, d.used, d.other) for d in observation.drift} == {("slots", "http", "log"), ("context_limit_tokens", "http", "log")}
    assert (told(pool.slots), told(pool.kv_unified)["reason"], told(pool.kv_exhaustions_total)["reason"]) == (4, "ambiguous", "no_source")


async def test_a_launch_file_that_is_not_what_runs_is_believed_about_nothing() -> None:
    ask = ask_of("b11434", "np4-split")
    ask.launch_file = launch_view({"parallel": 8, "ctx_size": 65536, "kv_unified": True}, live=False)
    observation = await observed(ask)
    assert [(d.field, d.used, d.other) for d in observation.drift] == [("slots", "http", "launch file")]
    assert told(observation.pools[0].kv_unified)["reason"] == "ambiguous"


def trained(ask: FakeAsk, build: str = "b11434") -> FakeAsk:
    """With the server's own word of the context that its model was trained on: 8192, as the starts above have it."""
    ask.replies = {**ask.replies, "/v1/models": (200, (BUILDS / build / "v1_models.json").read_bytes())}
    return ask


SHARES = {"parallel": 4, "kv_unified": True}

# name: start, what the file states beside four slots that share, the most context that a slot can have by it
NOT_WHAT_RUNS: dict[str, tuple[str, dict[str, Any], int]] = {
    "a larger pool than runs": ("np4-unified", {"ctx_size": 4096}, 4096),
    "larger than the model was trained on": ("np4-unified", {"ctx_size": 16384}, 8192),
    "larger, and a share above what a slot has": ("np4-unified", {"ctx_size": 8192, "kv_unified_per_slot": 4096}, 4096),
    "a share that nobody asked for": ("perslot", {"ctx_size": 2048}, 2048),
    "a smaller pool": ("np4-unified", {"ctx_size": 1024}, 1024),
}

# name: start, what the file states, the pool by it
WHAT_RUNS: dict[str, tuple[str, dict[str, Any], int]] = {
    "as stated": ("np4-unified", {"ctx_size": 2048}, 2048),
    "rounded up": ("np4-unified", {"ctx_size": 2000}, 2048),
    "capped at the trained context": ("npauto-c0", {"ctx_size": 16384}, 16384),
    "capped at its share": ("perslot", {"ctx_size": 2048, "kv_unified_per_slot": 512}, 2048),
    "capped at its share, of a larger pool": ("perslot", {"ctx_size": 4096, "kv_unified_per_slot": 512}, 4096),
}


@pytest.mark.parametrize("name", NOT_WHAT_RUNS)
@pytest.mark.parametrize("live", [False, True])
async def test_a_shared_pool_of_another_size_than_runs_is_drift_where_no_cap_explains_it(name: str, live: bool) -> None:
    start, settings, most = NOT_WHAT_RUNS[name]
    ask = trained(ask_of("b11434", start))
    view = launch_view(SHARES | settings, live=live)
    ask.launch, ask.launch_file = (view, ask.launch_file) if live else (ask.launch, view)
    observation = await observed(ask)
    assert [(d.field, d.used, d.other) for d in observation.drift] == [("context_limit_tokens", "http", view.origin.kind + ("" if live else " file"))]
    assert f"{view.path} says {most}" in observation.drift[0].detail
    assert told(observation.pools[0].kv_unified)["reason"] == "ambiguous"


@pytest.mark.parametrize("name", WHAT_RUNS)
@pytest.mark.parametrize("live", [False, True])
async def test_a_shared_pool_that_was_capped_is_believed(name: str, live: bool) -> None:
    start, settings, pool = WHAT_RUNS[name]
    ask = trained(ask_of("b11434", start))
    view = launch_view(SHARES | settings, live=live)
    ask.launch, ask.launch_file = (view, ask.launch_file) if live else (ask.launch, view)
    observation = await observed(ask)
    assert observation.drift == ()
    (layout,) = observation.pools[0].layouts
    assert isinstance(layout, Shared)
    assert layout.pool_tokens == pool


async def test_where_a_cap_may_explain_a_smaller_pool_nothing_is_called_drift() -> None:
    """The trained context is not known, or the share of a slot is not settled: the size of the pool is left open."""
    unknown = ask_of("b11434", "np4-unified")
    unknown.launch_file = launch_view(SHARES | {"ctx_size": 4096}, live=False)
    unsettled = trained(ask_of("b11434", "np4-unified"))
    unsettled.launch_file = launch_view(SHARES | {"ctx_size": 4096}, live=False, missing="an environment file was not read")
    for ask in (unknown, unsettled):
        observation = await observed(ask)
        assert observation.drift == ()
        assert told(observation.pools[0].kv_unified) is True
        assert told(observation.pools[0].kv_capacity_tokens) == {"reason": "ambiguous", "bounds": [2048, 8192]}


async def test_the_command_line_that_runs_is_believed_before_the_operator_and_both_before_a_file() -> None:
    """Four slots of 2048, shared by what runs and split by the others: HTTP looks the same."""
    file, start = {"parallel": 4, "ctx_size": 8192, "kv_unified": False}, STARTS["np4-unified"][0]
    ask = trained(ask_of("b11434", "np4-unified"))
    ask.launch, ask.launch_file, ask.stated = launch_view(start), launch_view(file, live=False), stated(kv_unified=False)
    observation = await observed(ask)
    assert observation.pools[0].layouts == (Shared(4, 2048, 2048),)
    assert [(d.field, d.used, d.other) for d in observation.drift] == [("kv_unified", "launch", "operator"), ("kv_unified", "launch", "launch file")]
    ask.launch, ask.stated = launch_view({}, missing="its environment may not be read"), stated(kv_unified=True)
    observation = await observed(ask)
    assert told(observation.pools[0].kv_unified) is True
    assert [(d.field, d.used, d.other) for d in observation.drift] == [("kv_unified", "operator", "launch file")]


async def test_types_of_the_cache_that_differ_between_process_and_file_are_drift() -> None:
    """f16 is what stands in for a type that is left out."""
    start = STARTS["np4-unified"][0]
    for live, file, fields in (
        ({"cache_type_k": "q8_0"}, {"cache_type_k": "q4_0"}, ["cache_type_k"]),
        ({}, {"cache_type_k": "q8_0", "cache_type_v": "q8_0"}, ["cache_type_k", "cache_type_v"]),
        ({"cache_type_v": "q8_0"}, {}, ["cache_type_v"]),
        ({"cache_type_k": "f16"}, {}, []),
        ({"cache_type_k": "q8_0"}, {"cache_type_k": "q8_0"}, []),
    ):
        ask = trained(ask_of("b11434", "np4-unified"))
        ask.launch, ask.launch_file = launch_view(start | live), launch_view(start | file, live=False)
        observation = await observed(ask)
        assert [d.field for d in observation.drift] == fields
        assert {(d.used, d.other) for d in observation.drift} <= {("launch", "launch file")}
    unread = trained(ask_of("b11434", "np4-unified"))
    unread.launch, unread.launch_file = launch_view({**start, "cache_type_k": "q8_0"}), launch_view(start, live=False, missing="a file was not read")
    assert (await observed(unread)).drift == ()


async def test_log_and_argv_that_disagree_about_the_shape_are_shown() -> None:
    ask = ask_of("b11434", "np4-unified", log=True)
    ask.launch = launch_view({"parallel": 4, "ctx_size": 8192})
    observation = await observed(ask)
    assert [(d.field, d.used, d.other) for d in observation.drift] == [("kv_unified", "log", "launch")]
    assert told(observation.pools[0].kv_unified) is True


async def test_an_unread_environment_file_settles_nothing() -> None:
    """Kind of llama.cpp#27380: the settings lie in a file that was not read, so a flag that is not there is no default."""
    ask = FakeAsk(ADAPTER.routes, {"/health": HEALTH})
    ask.launch_file = launch_view({}, live=False, missing="the environment file was not read")
    pool = await pool_of(ask)
    for name in ("slots", "context_limit_tokens", "kv_capacity_tokens", "kv_unified"):
        assert "reason" in told(pool.reading(name)), name
    ask = ask_of("b11434", "np4-split")
    ask.launch_file = launch_view({}, live=False, missing="the environment file was not read")
    assert told((await pool_of(ask)).kv_unified)["reason"] == "ambiguous"


async def test_a_launch_file_alone_states_the_cache_and_bounds_the_context() -> None:
    ask = FakeAsk(ADAPTER.routes, {"/health": HEALTH})
    ask.launch_file = launch_view({"parallel": 2, "ctx_size": 65536}, live=False)
    pool = await pool_of(ask)
    assert (told(pool.slots), told(pool.kv_capacity_tokens), told(pool.kv_unified)) == (2, 65536, False)
    assert told(pool.context_limit_tokens) == {"reason": "ambiguous", "bounds": [None, 32768]}


async def test_without_np_an_explicit_split_is_left_open() -> None:
    """b11549 shares the cache all the same when -np is left out; other builds may not."""
    ask = ask_of("b11434", "npauto")
    ask.launch = launch_view({"ctx_size": 2048, "kv_unified": False})
    assert told((await pool_of(ask)).kv_unified)["reason"] == "ambiguous"


def test_the_layouts_that_bound_an_unknown_one_span_all_pools() -> None:
    for slots, context in ((4, 512), (2, 8192)):
        for pool in range(context, slots * context + 1, context // 2):
            truth = Shared(slots, pool, context)
            assert context <= (capacity_tokens(truth) or 0) <= slots * context
            assert context // slots <= (guaranteed_tokens(truth) or 0) <= context


def slots_line(slots: int, context: int, unified: str) -> str:
    return f"0.00.912.100 I srv  load_model: initializing, n_slots = {slots}, n_ctx_slot = {context}, kv_unified = '{unified}'"


def of_log(lines: list[str]) -> FakeAsk:
    return FakeAsk(ADAPTER.routes, {"/health": HEALTH}, log=log_view(ADAPTER.log_patterns, lines))


def capture(build: str, slots: str) -> FakeAsk:
    folder = BUILDS / build
    replies = {"/health": HEALTH, "/props": (200, (folder / "props.json").read_bytes()), "/slots": (200, (folder / slots).read_bytes())}
    return FakeAsk(ADAPTER.routes, replies, may_wake=True)
