"""What the MLX LM adapter asks, and what it makes of replies, launch settings, process and log of each version."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from asking import NO_LAUNCH, NOON, REFUSED, TIMED_OUT, FakeAsk, log_view, stated
from inspector import collector
from inspector.contract import LaunchView, Observation, ProcessView, Reply
from inspector.launch import settings
from inspector.launch.command import server_argv
from inspector.model import POOL_FIELDS, State
from inspector.reading import NOT_OFFERED, Kind, Known, Origin, Reading, Reason, Unknown
from inspector_mlx import ADAPTER, causes
from inspector_mlx.payloads import Health, health
from inspector_mlx.routes import HEALTH

pytestmark = pytest.mark.anyio

CAPTURES = Path(__file__).parent / "fixtures" / "mlx"
ALIVE = (200, b'{"status": "ok"}')
DEAD = (503, b'{"status": "unavailable"}')
NOT_FOUND = (404, b"Not Found")
STAMP = "2026-11-30 14:53:34,000"


def ask(answer: Any = ALIVE, models: Any = NOT_FOUND, **sources: Any) -> FakeAsk:
    return FakeAsk(ADAPTER.routes, {"/health": answer, "/v1/models": models}, **sources)


def launched(line: str, *, live: bool = True) -> LaunchView:
    argv = server_argv(shlex.split(line), ADAPTER.flags)
    assert argv is not None, line
    return settings(argv, {}, ADAPTER.flags, path="pid 77" if live else "mlx.plist", live=live, at=NOON)


def process(version: str | None = None, connections: int = 0, model_type: str | None = None) -> ProcessView:
    origin = Origin(Kind.SYSTEM, "pid 77", NOON)
    package = Unknown(Reason.NO_SOURCE, "not installed") if version is None else Known(version, origin)
    kind = Unknown(Reason.NO_SOURCE, "no config.json") if model_type is None else Known(model_type, origin)
    return ProcessView(77, Known(connections, origin), package, kind, Known(4096, origin))


async def observed(fake: FakeAsk) -> Observation:
    return await ADAPTER.observe(fake, ADAPTER.start())


async def read(field: str, fake: FakeAsk) -> Any:
    """A reading's value, or its reason."""
    (pool,) = (await observed(fake)).pools
    reading: Reading[Any] = pool.reading(field)
    return reading.value if isinstance(reading, Known) else reading.reason


# --- States --------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        (ALIVE, State.READY),
        (DEAD, State.UNREACHABLE),
        (REFUSED, State.UNREACHABLE),
        (TIMED_OUT, State.UNREACHABLE),
        ((502, b"<html>"), State.UNREACHABLE),
        ((401, b"{}"), State.UNAUTHORIZED),
        ((404, b"<html>"), State.NOT_RECOGNIZED),
        ((200, b"OK"), State.NOT_RECOGNIZED),
        ((200, b'{"status": "sleeping"}'), State.NOT_RECOGNIZED),
        ((200, b"[]"), State.NOT_RECOGNIZED),
        (Unknown(Reason.INVALID, "too large"), State.NOT_RECOGNIZED),
    ],
)
async def test_state_by_health(answer: Any, state: State) -> None:
    observation = await observed(ask(answer))
    assert observation.state is state
    assert bool(observation.pools) is (state is State.READY)


async def test_a_dead_generation_thread_says_what_to_do() -> None:
    observation = await observed(ask(DEAD, launch=launched("mlx_lm.server --model /m/x --decode-concurrency 2 --prompt-concurrency 1")))
    assert observation.state is State.UNREACHABLE
    assert "started again" in observation.detail


@pytest.mark.parametrize(
    ("version", "told"),
    [("0.31.3", "0.32.0 and newer do"), ("0.32.0", ""), ("0.32.2", ""), (None, "the version is not")],
)
async def test_a_good_health_means_less_before_0_32(version: str | None, told: str) -> None:
    observation = await observed(ask(process=process(version)))
    assert observation.state is State.READY
    assert told in observation.detail
    assert bool(observation.detail) is bool(told)


async def test_before_0_32_only_the_log_tells_that_the_generation_thread_died() -> None:
    log = log_view(ADAPTER.log_patterns, [f"{STAMP} - INFO - Starting httpd at 127.0.0.1 on port 8080...", "Exception in thread Thread-1 (_generate):"])
    assert (await observed(ask(log=log, process=process("0.31.3")))).state is State.UNREACHABLE
    restarted = log_view(ADAPTER.log_patterns, ["Exception in thread Thread-1 (_generate):", f"{STAMP} - INFO - Starting httpd at 127.0.0.1 on port 8080..."])
    assert (await observed(ask(log=restarted, process=process("0.31.3")))).state is State.READY


async def test_another_engine_with_the_same_health_is_not_taken_for_ours() -> None:
    for server, said in (("llama.cpp", Health.FOREIGN), ("uvicorn", Health.FOREIGN), ("BaseHTTP/0.6 Python/3.11.7", Health.ALIVE), ("nginx", Health.ALIVE)):
        assert health(Reply(HEALTH, 200, {"server": server}, b'{"status": "ok"}', NOON)) is said


# --- Slots ---------------------------------------------------------------------------------------------------------------------------

SLOTS: list[tuple[str, str | None, Any]] = [
    # The larger of the two, whatever the smaller says.
    ("--decode-concurrency 2 --prompt-concurrency 1", None, 2),
    ("--decode-concurrency 1 --prompt-concurrency 4", None, 4),
    ("--decode-concurrency=2", None, 8),
    ("--prompt-concurrency 1", None, 32),
    ("--decode 4 --prompt-con 2", None, 4),
    ("--decode-concurrency 2 --decode-concurrency 16 --prompt-concurrency 1", None, 16),
    # Nothing is batched.
    ("--draft-model /m/small", "0.31.3", 1),
    ("--kv-bits 8", "0.32.2", 1),
    ("--kv-bits 8 --decode-concurrency 64", None, 1),
    # Defaults by version.
    ("", "0.32.2", 32),
    ("", "0.30.6", 32),
    ("", "0.30.5", 32),
    ("", "0.28.4", 32),
    ("", "0.28.3", 1),
    ("", "0.24.1", 1),
    ("", None, Reason.NO_SOURCE),
    # A flag that was taken dates the server.
    ("--prompt-cache-size 4", None, 32),
    ("--max-tokens 64", None, Reason.NO_SOURCE),
    # Broken values.
    ("--decode-concurrency many --prompt-concurrency 1", None, Reason.INVALID),
    ("--decode-concurrency 0 --prompt-concurrency 0", None, Reason.INVALID),
    # A version that lacks one of the two took this beginning for the other.
    ("--prompt 3 --decode-concurrency 2", None, Reason.AMBIGUOUS),
    ("--kv 8", "0.32.2", Reason.AMBIGUOUS),
]


@pytest.mark.parametrize(("line", "version", "slots"), SLOTS)
async def test_slots(line: str, version: str | None, slots: Any) -> None:
    assert await read("slots", ask(launch=launched(f"mlx_lm.server --model /m/x {line}"), process=process(version))) == slots


async def test_the_source_names_the_flag_that_decides() -> None:
    (pool,) = (await observed(ask(launch=launched("mlx_lm.server --decode-concurrency 2")))).pools
    assert isinstance(pool.slots, Known)
    assert (pool.slots.origin.kind, pool.slots.origin.path) == (Kind.LAUNCH, "pid 77, default of prompt_concurrency")


async def test_a_log_line_dates_the_server() -> None:
    log = log_view(ADAPTER.log_patterns, [f"{STAMP} - INFO - Prompt Cache: 0 sequences, 0.00 GB"])
    assert await read("slots", ask(launch=launched("mlx_lm.server --model /m/x"), log=log)) == 32


async def test_a_llama_4_is_bounded_because_its_cache_cannot_be_batched() -> None:
    (pool,) = (await observed(ask(launch=launched("mlx_lm.server --model m/Llama-4-Scout-4bit"), process=process("0.32.2")))).pools
    assert isinstance(pool.slots, Unknown)
    assert (pool.slots.reason, pool.slots.bounds) == (Reason.AMBIGUOUS, (1, 32))


TYPES = [("Llama-4-Scout", "llama4", 1), ("my-fine-tune", "llama4", 1), ("llama-4-but-small", "llama", 32), ("x", "deepseek_v41", 1)]


@pytest.mark.parametrize(("name", "model_type", "slots"), TYPES)
async def test_the_models_type_settles_whether_it_is_batched(name: str, model_type: str, slots: int) -> None:
    assert await read("slots", ask(launch=launched(f"mlx_lm.server --model m/{name}"), process=process("0.32.2", model_type=model_type))) == slots


async def test_the_models_own_length_is_shown_and_is_no_limit() -> None:
    fake = ask(process=process("0.32.2"))
    assert await read("model_context_tokens", fake) == 4096
    assert await read("context_limit_tokens", fake) == Reason.NOT_OFFERED


async def test_the_running_process_outranks_the_operator_who_outranks_a_file() -> None:
    argv = launched("mlx_lm.server --model /m/a --decode-concurrency 2 --prompt-concurrency 1")
    file = launched("mlx_lm.server --model /m/b --decode-concurrency 16", live=False)
    observation = await observed(ask(launch=argv, launch_file=file, stated=stated(slots=4)))
    assert observation.pools[0].slots.value == 2  # type: ignore[union-attr]
    assert {(d.field, d.used, d.other) for d in observation.drift} == {
        ("slots", "launch", "operator"),
        ("slots", "launch", "launch file"),
        ("model", "launch", "launch file"),
    }
    observation = await observed(ask(launch_file=file, stated=stated(slots=4)))
    assert observation.pools[0].slots.value == 4  # type: ignore[union-attr]


async def test_a_stated_version_counts_where_the_package_is_not_seen() -> None:
    assert await read("slots", ask(launch=launched("mlx_lm.server"), stated=stated(version="0.31.3"))) == 32
    observation = await observed(ask(process=process("0.32.2"), stated=stated(version="0.31.3")))
    assert observation.version == Known("0.32.2", Origin(Kind.SYSTEM, "pid 77", NOON))
    assert [d.field for d in observation.drift] == ["version"]


# --- Model ---------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("capture", "model"),
    [
        ("models-hfcache", "tiny-mlx"),
        ("models-generation-dead", Reason.NOT_REPORTED),  # only the cache: the model that was named does not exist
        ("models-no-default-model", Reason.NOT_REPORTED),
        ("models-nohfcache-empty-body", Reason.NOT_REPORTED),
    ],
)
async def test_only_a_path_in_the_list_of_models_names_the_loaded_one(capture: str, model: Any) -> None:
    body = (CAPTURES / f"{capture}.json").read_bytes()
    assert await read("model", ask(models=(200, body))) == model


async def test_the_list_of_models_is_not_asked_where_the_process_names_its_model() -> None:
    fake = ask(launch=launched("mlx_lm.server --model mlx-community/Qwen3-8B-4bit"))
    assert await read("model", fake) == "Qwen3-8B-4bit"
    assert fake.asked == ["/health"]
    without = ask(launch=launched("mlx_lm.server --port 8080"))
    assert await read("model", without) == Reason.NOT_REPORTED
    assert without.asked == ["/health"]


async def test_the_list_of_models_is_asked_every_five_minutes_at_most() -> None:
    (models,) = [route for route in ADAPTER.routes if route.path == "/v1/models"]
    assert models.every.seconds is not None
    assert models.every.seconds >= 300


@pytest.mark.parametrize(
    "body", [b"", b"null", b"{}", b'{"data": 1}', b'{"data": [1]}', b'{"data": [{"id": 5}]}', b'{"data": [{"id": "/"}]}', b'{"data": [{"id": "/a/b']
)
async def test_a_broken_list_names_no_model(body: bytes) -> None:
    assert isinstance(await read("model", ask(models=(200, body))), Reason)


async def test_no_path_is_shown() -> None:
    models = (200, b'{"object": "list", "data": [{"id": "/home/secret-owner/x/tiny", "object": "model", "created": 1}]}')
    for fake in (ask(models=models), ask(launch=launched("mlx_lm.server --model /home/secret-owner/tiny --adapter-path /home/secret-owner/a"))):
        assert "secret-owner" not in repr(await observed(fake))
        assert await read("model", fake) == "tiny"


# --- Requests in flight, retained KV -------------------------------------------------------------------------------------------------


async def test_requests_in_flight_are_the_connections_to_the_port() -> None:
    assert await read("requests_in_flight", ask(process=process(connections=3))) == 3
    assert await read("requests_in_flight", ask(process=process(connections=0))) == 0
    assert await read("requests_in_flight", ask(process=NO_LAUNCH)) == Reason.NO_SOURCE


def logged(*lines: str, age: float = 5.0) -> FakeAsk:
    view = log_view(ADAPTER.log_patterns, lines, at=NOON + 3600 - age)
    return ask(log=view)


@pytest.mark.parametrize(
    ("line", "size"),
    [
        ("INFO - Prompt Cache: 3 sequences, 0.08 GB", 80_000_000),
        ("INFO - Prompt Cache: 10 sequences, 23.61 GB", 23_610_000_000),
        ("INFO - KV Caches: 2 seq, 0.29 GB, latest user cache 512 tokens", 290_000_000),
        ("INFO - Prompt Cache: 0 sequences, 0.00 GB", 0),
        ("INFO - Prompt Cache: 1 sequences, 0.00 GB", Reason.AMBIGUOUS),
        ("INFO - - assistant: 3 sequences, 0.08 GB", Reason.NOT_REPORTED),
        ("DEBUG - INFO - Prompt Cache: 3 sequences, 0.08 GB", Reason.NOT_REPORTED),
        ("INFO - Prompt Cache: 3 sequences, nan GB", Reason.NOT_REPORTED),
    ],
)
async def test_retained_kv_is_what_the_log_says(line: str, size: Any) -> None:
    assert await read("kv_reclaimable_bytes", logged(f"{STAMP} - {line}")) == size


async def test_less_than_the_log_can_say_has_bounds_and_is_not_zero() -> None:
    (pool,) = (await observed(logged(f"{STAMP} - INFO - Prompt Cache: 1 sequences, 0.00 GB"))).pools
    assert isinstance(pool.kv_reclaimable_bytes, Unknown)
    assert pool.kv_reclaimable_bytes.bounds == (0, 5_000_000)


async def test_an_old_line_tells_nothing_of_now() -> None:
    assert await read("kv_reclaimable_bytes", logged(f"{STAMP} - INFO - Prompt Cache: 3 sequences, 0.08 GB", age=61)) == Reason.STALE


async def test_the_line_of_a_former_process_is_not_this_ones() -> None:
    lines = (f"{STAMP} - INFO - Prompt Cache: 3 sequences, 0.08 GB", f"{STAMP} - INFO - Starting httpd at 127.0.0.1 on port 8080...")
    assert await read("kv_reclaimable_bytes", logged(*lines)) == Reason.NOT_REPORTED


@pytest.mark.parametrize(
    ("log", "size"),
    [
        ("log-INFO-nonzero-GB.txt", 280_000_000),
        ("log-INFO-batched-default-nohfcache.txt", Reason.AMBIGUOUS),
        ("log-DEBUG-promptcachebytes60MB-overshoot.txt", 30_000_000),
        ("log-WARNING-no-model.txt", Reason.NOT_REPORTED),
    ],
)
async def test_retained_kv_of_captured_logs(log: str, size: Any) -> None:
    """The figures are those of the last such line, found with grep."""
    assert await read("kv_reclaimable_bytes", logged(*(CAPTURES / log).read_text().splitlines(), age=0)) == size


async def test_why_a_log_cannot_be_read_is_told_as_the_reader_tells_it() -> None:
    problem = Unknown(Reason.NO_SOURCE, "the log file mlx.log cannot be read: Permission denied")
    for said, told in ((problem, problem), (collector.NO_LOG, causes.NO_LOG)):
        (pool,) = (await observed(ask(log=said))).pools
        assert pool.kv_reclaimable_bytes == told


async def test_what_mlx_does_not_offer_is_not_offered() -> None:
    (pool,) = (await observed(ask(launch=launched("mlx_lm.server --model /m/x"), process=process("0.32.2", 3)))).pools
    for field in POOL_FIELDS:
        assert (pool.reading(field) == NOT_OFFERED) is (field not in ADAPTER.offers("0.32.2")), field
    assert pool.layouts == ()
