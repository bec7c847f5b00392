"""vLLM's command lines: commands, spellings, shortened flags, sizes; and that no default is assumed."""

from __future__ import annotations

from typing import Any

import pytest

from asking import launch_view
from inspector.launch import server_argv, settings
from inspector.reading import Known, Reason, Unknown
from inspector_vllm import ADAPTER
from inspector_vllm.flags import LENGTH, SEQUENCES, setting
from test_vllm_cases import CASES, ask_of, observed

FLAGS = ADAPTER.flags


def read(*argv: str) -> dict[str, Any]:
    found = settings(argv, {}, FLAGS, path="pid 1", live=True, at=1.0).settings
    return {name: reading.value if isinstance(reading, Known) else reading.reason for name, reading in found.items()}


@pytest.mark.parametrize(
    ("argv", "arguments"),
    [
        (["vllm", "serve", "org/m", "--port", "1"], ["org/m", "--port", "1"]),
        (["/opt/venv/bin/python3.12", "/opt/venv/bin/vllm", "serve", "org/m"], ["org/m"]),
        (["python", "-m", "vllm.entrypoints.openai.api_server", "--model", "m"], ["--model", "m"]),
        (["python3", "-m", "vllm.entrypoints.cli.main", "serve", "m"], ["m"]),
        (["vllm", "bench", "serve"], None),
        (["python", "-m", "sglang.launch_server", "--model-path", "m"], None),
    ],
)
def test_commands(argv: list[str], arguments: list[str] | None) -> None:
    assert server_argv(argv, FLAGS) == arguments


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["--max-num-seqs=64"], {"max_num_seqs": 64}),
        (["--max_num_seqs", "64"], {"max_num_seqs": 64}),
        (["--max-num-se", "64"], {"max_num_seqs": 64}),
        (["--max-model-len", "8k"], {"max_model_len": 8000}),
        (["--max-model-len", "8K"], {"max_model_len": 8192}),
        (["--max-model-len", "25.6k"], {"max_model_len": 25600}),
        (["--max-model-len", "auto"], {"max_model_len": "auto"}),
        (["--max-model-len", "-1"], {"max_model_len": -1}),
        (
            ["-tp", "2", "-pp", "3", "-dp", "4", "-asc", "5"],
            {"tensor_parallel_size": 2, "pipeline_parallel_size": 3, "data_parallel_size": 4, "api_server_count": 5},
        ),
        (["--gpu-memory-utilization", "0.9"], {"gpu_memory_utilization": 0.9}),
        (["--kv-cache-dtype", "fp8"], {"kv_cache_dtype": "fp8"}),
        (["--disable-log-stats"], {"disable_log_stats": True}),
        (["--no-enable-prefix-caching"], {"enable_prefix_caching": False}),
        (["--block-size", "32", "--num-gpu-blocks-override", "24"], {"block_size": 32, "num_gpu_blocks_override": 24}),
        (["--api-key", "secret", "--model", "/srv/m", "--served-model-name", "a", "b"], {"api_key": True, "model": "m", "served_model_name": "a"}),
        (["org/small", "--port", "1"], {"model": "small", "port": 1}),
        (["/srv/models/small/", "--served-model-name", "a"], {"model": "small", "served_model_name": "a"}),
        (["org/small", "--model", "org/other"], {"model": "small"}),
        (["--chat-template", "x.jinja"], {}),
    ],
)
def test_settings(argv: list[str], expected: dict[str, Any]) -> None:
    assert read(*argv) == expected


def test_a_first_word_that_is_a_variable_may_be_any_flag() -> None:
    found = settings(["$VLLM_ARGS", "--port", "1"], {}, FLAGS, path="vllm.service", live=False, at=1.0)
    assert isinstance(found.get("model"), Unknown)
    assert isinstance(found.get("max_num_seqs"), Unknown)


def test_a_flag_that_is_shortened_too_far_settles_nothing() -> None:
    assert read("--max-num", "64")["max_num_seqs"] is Reason.AMBIGUOUS


def test_nothing_of_a_key_or_a_path_is_kept() -> None:
    found = settings(["--api-key", "secret", "--model", "/srv/models/m", "--chat-template", "/x"], {}, FLAGS, path="pid 1", live=True, at=1.0)
    assert "secret" not in repr(found)
    assert "/srv" not in repr(found)


@pytest.mark.parametrize("value", ["auto", -1])
def test_a_length_that_is_left_to_the_server_is_unknown(value: Any) -> None:
    told = setting(launch_view({"max_model_len": value}), LENGTH)
    assert isinstance(told, Unknown)
    assert told.reason is Reason.NO_SOURCE


def test_a_setting_left_out_is_no_default() -> None:
    assert isinstance(setting(launch_view({}), SEQUENCES), Unknown)


@pytest.mark.anyio
async def test_a_live_command_line_tells_slots_where_there_is_no_log() -> None:
    ask = ask_of(CASES / "0.32.0-busy-http-only")
    ask.launch = launch_view({"max_num_seqs": 4, "max_model_len": 2048})
    observation = await observed(ask)
    assert observation.pools[0].slots.value == 4  # type: ignore[union-attr]
    assert observation.pools[0].context_guaranteed_tokens.value == 640  # type: ignore[union-attr]
    assert observation.drift == ()


@pytest.mark.anyio
async def test_a_launch_file_counts_last_and_differences_are_drift() -> None:
    ask = ask_of(CASES / "0.32.0-busy")
    ask.launch_file = launch_view({"max_num_seqs": 16, "max_model_len": 4096}, live=False)
    observation = await observed(ask)
    assert observation.pools[0].slots.value == 4  # type: ignore[union-attr]
    assert [(drift.field, drift.other) for drift in observation.drift] == [("slots", "launch file"), ("context_limit_tokens", "launch file")]


@pytest.mark.anyio
async def test_more_sequences_than_blocks_guarantee_nothing() -> None:
    ask = ask_of(CASES / "0.32.0-busy-http-only")
    ask.launch = launch_view({"max_num_seqs": 256})
    assert isinstance((await observed(ask)).pools[0].context_guaranteed_tokens, Unknown)


@pytest.mark.anyio
async def test_the_served_name_comes_from_the_command_line_where_nothing_else_tells() -> None:
    ask = ask_of(CASES / "0.32.0-statistics-off-http-only")
    ask.replies = {path: reply for path, reply in ask.replies.items() if path != "/v1/models"}
    ask.launch_file = launch_view({"model": "small"}, live=False)
    assert (await observed(ask)).pools[0].model.value == "small"  # type: ignore[union-attr]
    ask.launch = launch_view({"model": "x", "served_model_name": "tiny"})
    assert (await observed(ask)).pools[0].model.value == "tiny"  # type: ignore[union-attr]
