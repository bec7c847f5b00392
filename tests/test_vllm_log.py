"""vLLM's log lines in the shapes of every version, as the follower gets them: wrapped, coloured, between prompts and keys that must not leave."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from asking import NOON, FakeAsk, log_view, stated
from inspector.contract import LogView
from inspector.follow import FileSource, Follower
from inspector.model import State
from inspector.reading import Known, Reading, Reason, Unknown
from inspector_vllm import ADAPTER, log
from test_vllm_cases import CASES, ask_of, fields, observed

pytestmark = pytest.mark.anyio

LOGS = Path(__file__).parent / "fixtures" / "vllm" / "0.32.0"
BLOCKS_LINE = "INFO 02-20 00:01:02 kv_cache_utils.py:522] # GPU blocks: 127626"
RATES = "Avg prompt throughput: 16.0 tokens/s, Avg generation throughput: 94.5 tokens/s"
PYTHON_INFO = b'# TYPE python_info gauge\npython_info{implementation="CPython"} 1.0\n'


def view(*lines: str, at: float = NOON) -> LogView:
    """`at`: when the first line was written."""
    return log_view(log.PATTERNS, lines, at + 3600)


async def pools(*lines: str, at: float = NOON, **changes: Any) -> list[dict[str, Any]]:
    """Fields of the pools of a server that keeps no statistics, so that only its log tells."""
    ask = FakeAsk(ADAPTER.routes, {"/health": (200, b""), "/metrics": (200, PYTHON_INFO)}, log=view(*lines, at=at), **changes)
    return [fields(pool) for pool in (await observed(ask)).pools]


def value(reading: Reading[Any]) -> Any:
    return reading.value if isinstance(reading, Known) else reading.reason


SIZES = [
    (BLOCKS_LINE, "blocks", 127626),
    ("INFO 08-20 10:18:39 gpu_executor.py:102] # GPU blocks: 24188, # CPU blocks: 7281", "blocks", 24188),
    ("INFO 02-20 10:18:39 [executor_base.py:111] # cuda blocks: 24188, # CPU blocks: 7281", "blocks", 24188),
    ("INFO 02-19 23:56:55 kv_cache_utils.py:524] GPU KV cache size: 2,042,016 tokens", "tokens", 2042016),
    ("(EngineCore_0 pid=7) INFO 08-19 23:56:55 [kv_cache_utils.py:849] GPU KV cache size: 2,042,016 tokens", "tokens", 2042016),
    (
        "(EngineCore pid=7) INFO 11-30 14:52:51 [k.py:2327] CPU KV cache size: 3,072 tokens, Maximum concurrency for 2,048 tokens per request: 1.50x",
        "tokens",
        3072,
    ),
    (
        "(EngineCore pid=7) INFO 11-30 14:52:51 [x.py:1] XPU + host KV cache size: 3,072 tokens, Maximum concurrency for 2,048 tokens per request: 1.50x",
        "tokens",
        3072,
    ),
    ("GPU KV cache size: 512 tokens", "tokens", 512),
]


@pytest.mark.parametrize(("line", "kind", "number"), SIZES)
def test_size_lines(line: str, kind: str, number: int) -> None:
    told = log.kv_log(view(line), "0")
    assert value(told.blocks if kind == "blocks" else told.size_tokens) == number


@pytest.mark.parametrize(
    ("line", "context"),
    [
        ("INFO 02-20 00:01:02 kv_cache_utils.py:525] Maximum concurrency for 2048 tokens per request: 997.08x", 2048),
        ("INFO 02-19 23:56:55 [kv_cache_utils.py:527] Maximum concurrency for 131,072 tokens per request: 9.70x", 131072),
        (SIZES[5][0], 2048),
        ("(APIServer pid=1) INFO 11-30 14:51:49 [model.py:2152] Using max model len 2048", 2048),
        ("(EngineCore pid=1) INFO 01-01 00:00:00 [x.py:1] Auto-fit max_model_len: reduced from 262144 to 65536 to fit", 65536),
        (
            "INFO 06-20 10:18:00 llm_engine.py:98] Initializing an LLM engine (v0.4.2) with config: model='/m/x', dtype=torch.float16, max_seq_len=8192, tp=1",
            8192,
        ),
        ("INFO 06-20 10:18:00 [llm_engine.py:98] Initializing a V0 LLM engine (v0.8.5) with config: model='/m/x', max_seq_len=8192, tp=1", 8192),
        ("INFO 06-20 10:18:00 [core.py:98] Initializing a V1 LLM engine (v0.12.0) with config: model='/m/x', max_seq_len=8192, tp=1", 8192),
        ("INFO 06-20 10:18:00 [x.py:9] non-default args: {'model': '/m/x', 'max_model_len': 4096}", 4096),
    ],
)
def test_the_longest_request(line: str, context: int) -> None:
    assert value(log.context(view(line))) == context


def test_what_the_engine_settled_on_counts_before_what_it_was_asked_for() -> None:
    lines = (
        "INFO 06-20 10:18:00 [x.py:9] non-default args: {'max_model_len': 262144}",
        "INFO 06-20 10:18:01 [x.py:9] Using max model len 262144",
        "INFO 06-20 10:18:02 [x.py:9] Auto-fit max_model_len: reduced from 262144 to 65536",
    )
    assert value(log.context(view(*lines))) == 65536


ARGUMENTS = [
    "INFO 06-20 10:18:00 a.py:178] args: Namespace(api_key='CASE-KEY', model='/CASE-PATH/org/small', max_num_seqs=8, block_size=16, x=None)",
    "INFO 04-20 10:18:00 [api_server.py:178] args: Namespace(subparser='serve', api_key='CASE-KEY', model='/CASE-PATH/small', max_num_seqs=8, block_size=16)",
    "INFO 06-01 09:20:16 [u.py:8] non-default args: {'api_key': ['CASE-KEY'], 'model': '/CASE-PATH/small/', 'block_size': 16, 'max_num_seqs': 8}",
    "INFO 06-01 09:20:16 [u.py:8] non-default args: {'model': '/CASE-PATH/x', 'served_model_name': ['small'], 'max_num_seqs': 8, 'block_size': 16}",
]


@pytest.mark.parametrize("line", ARGUMENTS)
def test_arguments_give_figures_and_base_names_and_nothing_else(line: str) -> None:
    told = view(line)
    assert value(log.argument(told, "max_num_seqs")) == 8
    assert value(log.argument(told, "block_size")) == 16
    assert value(log.model(told)) == "small"
    assert "CASE" not in repr(told)


def test_an_argument_left_out_is_no_default() -> None:
    told = view(
        "INFO 06-20 10:18:00 api_server.py:178] args: Namespace(max_num_seqs=None, max_model_len=None)",
        "INFO 06-20 10:18:00 [u.py:1] non-default args: {'port': 1}",
    )
    assert isinstance(log.argument(told, "max_num_seqs"), Unknown)
    assert isinstance(log.context(told), Unknown)


@pytest.mark.parametrize(
    "message",
    [
        "non-default args: {'max_num_seqs': 99}",
        "GPU KV cache size: 99 tokens, Maximum concurrency for 99 tokens per request: 1.00x",
        "INFO 01-01 00:00:00 [x.py:1] non-default args: {'max_num_seqs': 99}",
        "(EngineCore pid=9) INFO 01-01 00:00:00 [x.py:1] GPU KV cache size: 99 tokens",
        "INFO 01-01 00:00:00 [x.py:1] vLLM API server version 9.9.9",
        f"INFO 01-01 00:00:00 [x.py:1] {RATES}, Running: 99 reqs, Waiting: 99 reqs, GPU KV cache usage: 99.0%",
    ],
)
def test_a_prompt_in_the_log_cannot_pass_for_a_line_of_the_server(message: str) -> None:
    told = view(f"INFO 08-20 10:18:39 logger.py:36] Received request cmpl-1: prompt: '{message}', params: SamplingParams(n=1)")
    assert told.lines == {}


@pytest.mark.parametrize(
    "line",
    [
        'INFO:     127.0.0.1:55650 - "GET /metrics HTTP/1.1" 200 OK',
        '(APIServer pid=1) INFO:     127.0.0.1:55650 - "GET /v1/models HTTP/1.1" 200 OK',
    ],
)
def test_lines_about_our_own_polls_are_passed_over(line: str) -> None:
    assert view(line).lines == {}


PERIODIC = {
    "V0": f"INFO 08-20 10:18:39 m.py:396] {RATES}, Running: 3 reqs, Swapped: 1 reqs, Pending: 2 reqs, GPU KV cache usage: 52.2%, CPU KV cache usage: 0.0%.",
    "V1 0.7": f"INFO 02-20 10:18:39 loggers.py:78] {RATES}, Running: 3 reqs, Waiting: 2 reqs, GPU KV cache usage: 52.2%, Prefix cache hit rate: 0.0%",
    "0.8.5": f"INFO 07-28 06:40:59 [l.py:118] Engine 000: {RATES}, Running: 3 reqs, Waiting: 2 reqs, GPU KV cache usage: 52.2%, Prefix cache hit rate: 0.0%",
    "0.32": f"(APIServer pid=24239) INFO 11-30 15:07:25 [loggers.py:335] Engine 000: {RATES}, Running: 3 reqs, Waiting: 2 reqs, Deferred: 1 reqs, "
    "KV fetch: 1 waiting to start, 0 in progress, 2 completed waiting, CPU KV cache usage: 52.2%, Prefix cache hit rate: 0.0%",
}


@pytest.mark.parametrize("version", PERIODIC)
async def test_the_periodic_line_stands_in_where_metrics_are_not_to_be_had(version: str) -> None:
    (pool,) = await pools(PERIODIC[version])
    assert (pool["requests_running"], pool["requests_waiting"], pool["kv_usage_ratio"]) == (3, 2, pytest.approx(0.522))
    assert pool["kv_used_tokens"] == {"reason": "not_reported"}
    assert pool["generation_tokens_total"] == {"reason": "endpoint_disabled"}


async def test_a_periodic_line_of_the_past_tells_nothing() -> None:
    (pool,) = await pools(PERIODIC["0.32"], at=NOON - log.PERIOD - 1)
    assert pool["requests_running"] == {"reason": "endpoint_disabled"}


async def test_metrics_count_before_the_periodic_line() -> None:
    ask = ask_of(CASES / "0.32.0-busy")
    ask.log = view(PERIODIC["0.32"])
    assert (await observed(ask)).pools[0].requests_running.value == 4  # type: ignore[union-attr]


async def test_engines_are_told_apart_by_their_lines() -> None:
    lines = (LOGS / "log-two-engines.txt").read_text().splitlines()
    first, second = await pools(*lines)
    assert (first["requests_running"], second["requests_running"]) == (0, 0)
    busy = [line for line in lines if "15:07:35" in line and "Avg prompt" in line]
    first, second = await pools(*busy)
    assert (first["requests_running"], first["kv_usage_ratio"]) == (2, pytest.approx(0.913))
    assert (second["requests_running"], second["kv_usage_ratio"]) == (3, 1.0)


def test_an_aggregated_line_is_no_engine_s() -> None:
    line = PERIODIC["0.32"].replace("Engine 000: ", "2 Engines Aggregated: ")
    assert view(line).rows("periodic") == {}


@pytest.mark.parametrize(
    ("name", "block", "expected"),
    [
        ("log-24-blocks.txt", None, {"slots": 4, "context_limit_tokens": 2048, "kv_capacity_tokens": 3072, "model": "tiny"}),
        ("log-api-key.txt", None, {"slots": 4, "context_limit_tokens": 2048, "kv_capacity_tokens": 3072, "model": "tiny"}),
        ("log-start.txt", None, {"slots": 4, "context_limit_tokens": 2048, "kv_capacity_tokens": 2097152, "model": "tiny"}),
    ],
)
async def test_captured_logs_alone(name: str, block: None, expected: dict[str, Any]) -> None:
    (pool,) = await pools(*(LOGS / name).read_text().splitlines())
    assert {field: pool[field] for field in expected} == expected


async def test_with_the_block_size_the_null_block_is_taken_off_the_log_s_figure() -> None:
    lines = ["INFO 06-20 10:18:00 [u.py:1] non-default args: {'block_size': 16}", "INFO 06-20 10:18:09 [k.py:1] GPU KV cache size: 16,000 tokens"]
    (pool,) = await pools(*lines)
    assert pool["kv_capacity_tokens"] == 15984


@pytest.mark.parametrize(
    ("lines", "capacity"),
    [
        # vllm-project/vllm#13596: one server before and after the change from blocks to tokens. The block size follows from the first pair.
        ((BLOCKS_LINE, "INFO 02-20 00:01:02 k.py:525] Maximum concurrency for 2048 tokens per request: 997.08x"), (None, 127625 * 16)),
        (("INFO 02-19 23:56:55 k.py:524] GPU KV cache size: 2,042,016 tokens",), 2042016),
        # so small a figure fits many block sizes
        ((BLOCKS_LINE, "INFO 02-20 00:01:02 k.py:525] Maximum concurrency for 20480000 tokens per request: 0.01x"), None),
    ],
)
async def test_old_logs_alone(lines: tuple[str, ...], capacity: int | tuple[int | None, int] | None) -> None:
    (pool,) = await pools(*lines)
    told = pool["kv_capacity_tokens"]
    assert told == (
        capacity if isinstance(capacity, int) else {"reason": "ambiguous", "bounds": list(capacity)} if capacity else {"reason": "endpoint_disabled"}
    )


async def test_a_preemption_warning_bounds_a_counter_that_is_not_there() -> None:
    ask = ask_of(CASES / "made-0.4.2-log-preemptions")
    assert (await observed(ask)).pools[0].preemptions_total.bounds == (51, None)  # type: ignore[union-attr]
    ask.replies = {**ask.replies, "/metrics": (200, ask.replies["/metrics"][1] + b'vllm:num_preemptions_total{model_name="org/small"} 60.0\n')}  # type: ignore[index]
    assert (await observed(ask)).pools[0].preemptions_total.value == 60  # type: ignore[union-attr]


async def test_the_operator_s_facts_fill_what_nothing_else_tells() -> None:
    facts = stated(slots=2, context_limit_tokens=8192, kv_capacity_tokens=40000)
    (pool,) = await pools(stated=facts)
    assert (pool["slots"], pool["context_limit_tokens"], pool["kv_capacity_tokens"]) == (2, 8192, 40000)


async def test_an_operator_s_figure_that_the_server_contradicts_is_drift() -> None:
    ask = ask_of(CASES / "0.32.0-busy")
    ask.stated = stated(slots=5, kv_capacity_tokens=3072)
    observation = await observed(ask)
    assert [(drift.field, drift.used, drift.other) for drift in observation.drift] == [("slots", "log", "operator"), ("kv_capacity_tokens", "http", "operator")]
    assert observation.pools[0].slots.value == 4  # type: ignore[union-attr]


async def test_a_log_of_another_version_is_drift() -> None:
    ask = ask_of(CASES / "0.32.0-busy-http-only")
    ask.log = view("INFO 06-20 10:18:00 [u.py:1] vLLM API server version 0.12.0")
    assert [drift.field for drift in (await observed(ask)).drift] == ["version"]


# --- Through the follower -----------------------------------------------------------------------------------------------------------

BANNER = "(APIServer pid=20973) INFO 11-30 14:51:49 [api_utils.py:347]  ▄▄ ▄█ █     █     █ ▀▄▀ █  version 0.32.0\n"
ARGS = "(APIServer pid=20973) INFO 11-30 14:51:49 [api_utils.py:286] non-default args: {'max_num_seqs': 4}\n"


async def followed(path: Path) -> LogView:
    async with Follower(FileSource(path), log.PATTERNS, clock=lambda: NOON) as follower:
        await follower.catch_up()
        seen = follower.view(born=None, after=None)
    assert isinstance(seen, LogView)
    return seen


def wrappers() -> dict[str, Any]:
    stamp = "2026-11-30T14:51:49.123456789Z"
    return {
        "plain": lambda line: line,
        "coloured": lambda line: f"\x1b[0;36m(APIServer pid=20973)\x1b[0;0m {line.partition(') ')[2]}",
        "docker json": lambda line: json.dumps({"log": line, "stream": "stderr", "time": stamp}) + "\n",
        "container": lambda line: f"{stamp} stderr F {line}",
        "compose": lambda line: f"vllm-1  | {line}",
        "built-in json": lambda line: (
            json.dumps({"asctime": "11-30 14:51:49", "levelname": "INFO", "message": line.rstrip().partition("] ")[2], "process": 7}) + "\n"
        ),
    }


@pytest.mark.parametrize("wrapper", wrappers())
async def test_lines_are_found_behind_colours_and_wrappers(wrapper: str, tmp_path: Path) -> None:
    path = tmp_path / "vllm.log"
    path.write_text("".join(wrappers()[wrapper](line) for line in (BANNER, ARGS)))
    seen = await followed(path)
    assert value(log.version(seen)) == "0.32.0"
    assert value(log.argument(seen, "max_num_seqs")) == 4


@pytest.mark.parametrize(
    "start",
    [
        BANNER,
        "INFO 06-20 10:18:00 api_server.py:177] vLLM API server version 0.4.2\n",
        "(APIServer pid=1) INFO 11-30 14:51:49 [api_utils.py:347] vLLM server version 0.32.0, serving model /m/tiny\n",
    ],
)
async def test_a_new_start_forgets_the_lines_before(start: str, tmp_path: Path) -> None:
    path = tmp_path / "vllm.log"
    path.write_text(BANNER + ARGS + start)
    assert isinstance(log.argument(await followed(path), "max_num_seqs"), Unknown)


async def test_the_captured_start_is_one_start(tmp_path: Path) -> None:
    path = tmp_path / "vllm.log"
    path.write_bytes((LOGS / "log-24-blocks.txt").read_bytes())
    seen = await followed(path)
    assert value(log.version(seen)) == "0.32.0"
    assert value(log.argument(seen, "max_num_seqs")) == 4
    assert value(log.kv_log(seen, "0").size_tokens) == 3072


async def test_figures_out_of_range_are_no_facts() -> None:
    assert log.kv_log(view("GPU KV cache size: 99999,999,999,999,999,99 tokens"), "0").size_tokens.reason is Reason.INVALID  # type: ignore[union-attr]
    assert isinstance(log.kv_log(view(f"GPU KV cache size: {'9' * 40} tokens"), "0").size_tokens, Unknown)
    assert isinstance(log.kv_log(view("GPU KV cache size: 0 tokens"), "0").size_tokens, Unknown)
    assert isinstance(log.kv_log(view("Maximum concurrency for 8 tokens per request: 1.2.3x"), "0").concurrency, Unknown)


async def test_a_sleeping_server_keeps_what_its_log_says() -> None:
    observation = await observed(replace(ask_of(CASES / "0.32.0-paused")))
    assert observation.state is State.SLEEPING
    assert observation.pools[0].slots.value == 4  # type: ignore[union-attr]
