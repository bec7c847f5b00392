"""Bytes of MLX LM's caches from a config.json. Right values: seen on the engine's own cache objects, and figures of real models with their sources."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspector.budget import Fit, Shape, capacity
from inspector.contract import CacheShape, ModelFile, Plans, PlanSettings
from inspector.layout import MemoryBound
from inspector.reading import Reason, Unknown
from inspector_mlx import ADAPTER
from inspector_mlx.cache import Layers, Quantized, full_cells, most_full_cells, most_rotating_cells, rotating_cells, row_bytes, session_bytes

MODELS = json.loads(Path(__file__).with_name("fixtures").joinpath("kv_hf", "models.json").read_text())
SMALL = {"hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "torch_dtype": "bfloat16"}
LLAMA = {**SMALL, "model_type": "llama"}
WINDOWED = {**SMALL, "model_type": "gpt_oss", "sliding_window": 128}
GIB = 2**30


def file(config: Any, weights: int | None = 0) -> ModelFile:
    return ModelFile("config", "", config, weights)


def test_the_adapter_plans() -> None:
    assert isinstance(ADAPTER, Plans)


@pytest.mark.parametrize(
    ("updates", "cells"),
    [([1], 256), ([257], 512), ([300], 512), ([300, 300], 812), ([300, 1, 600], 1069), ([256, 1], 512), ([300, *[1] * 212], 512), ([300, *[1] * 213], 768)],
)
def test_a_full_cache_grows_by_steps_and_cuts_what_is_unused(updates: list[int], cells: int) -> None:
    assert full_cells(updates) == cells


@pytest.mark.parametrize(
    ("updates", "cells"),
    [
        ([1], 256),
        ([1] * 257, 512),
        ([1] * 1024, 1024),
        ([1] * 3000, 1024),
        ([2048], 2048),
        ([2048, 2048], 3071),
        ([2048, 2048, 1], 1024),
        ([300, 1], 556),
        ([*[1] * 10, 20], 30),
    ],
)
def test_a_rotating_cache_of_1024_tokens_keeps_a_chunk_whole_beside_its_window(updates: list[int], cells: int) -> None:
    assert rotating_cells(updates, 1024) == cells


def test_deepseek_v2_stores_expanded_heads() -> None:
    """Four times the latent row in this model, as its cache objects showed: 983,040 bytes against 245,760."""
    config = {**SMALL, "model_type": "deepseek_v2", "kv_lora_rank": 64, "qk_rope_head_dim": 16, "qk_nope_head_dim": 32, "v_head_dim": 32}
    expanded, latent = (ADAPTER.cache_shape(file({**config, "model_type": name}), PlanSettings()) for name in ("deepseek_v2", "deepseek_v3"))
    assert (expanded, latent) == (CacheShape(4 * 4 * 80 * 2), CacheShape(4 * 80 * 2))


@pytest.mark.parametrize(("bits", "group", "share"), [(8, 64, 0.53125), (8, 32, 0.5625), (4, 64, 0.28125), (4, 32, 0.3125)])
def test_a_quantized_cache_carries_scales_and_biases(bits: int, group: int, share: float) -> None:
    assert row_bytes(1024, 2, Quantized(bits, group)) == share * row_bytes(1024, 2)
    shape = ADAPTER.cache_shape(file(LLAMA), PlanSettings(more={"kv_bits": bits, "kv_group_size": group}))
    assert shape == CacheShape(int(4 * 256 * 2 * share))


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model["name"])
def test_real_models_take_the_bytes_of_their_sources(model: dict[str, Any]) -> None:
    assert ADAPTER.cache_shape(file(model["config"]), PlanSettings()) == CacheShape(**model["mlx"])


def test_gpt_oss_leaves_an_odd_last_layer_out_unless_its_layers_are_listed() -> None:
    """The engine was wrongly predicted here at first: its cache objects showed four caches for five layers."""
    listed = ["sliding_attention", "full_attention", "sliding_attention", "full_attention", "sliding_attention"]
    shapes = [ADAPTER.cache_shape(file({**WINDOWED, "num_hidden_layers": 5, **more}), PlanSettings()) for more in ({}, {"layer_types": listed})]
    assert shapes == [CacheShape(2 * 512, 2 * 512, 128), CacheShape(2 * 512, 3 * 512, 128)]


def test_a_state_layer_takes_the_same_at_every_length() -> None:
    layers = Layers(0, 0, 0, 1, 0, tail=3 * 128, state=1024)
    assert session_bytes(layers, 2, [1]) == session_bytes(layers, 2, [300, 1]) == 3 * 128 * 2 + 1024 * 4


@given(st.lists(st.integers(1, 600), min_size=1, max_size=8), st.integers(2, 1500))
def test_no_schedule_takes_more_than_is_planned(updates: list[int], window: int) -> None:
    tokens, chunk = sum(updates), max(updates)
    assert tokens <= full_cells(updates) <= most_full_cells(tokens)
    assert rotating_cells(updates, window) <= most_rotating_cells(tokens, window, chunk)


def test_nothing_is_set_aside() -> None:
    found = ADAPTER.cache_bytes(file(LLAMA), PlanSettings())
    assert isinstance(found, Unknown)
    assert found.reason is Reason.NOT_OFFERED


def test_sessions_are_bounded_by_the_memory_beside_the_weights() -> None:
    """A token takes 2,048 bytes; 1,000 of them 1,024 cells and a step more."""
    each = 1280 * 2048
    found = ADAPTER.plan_layout(file(LLAMA, GIB), PlanSettings(memory_bytes=GIB + 5 * each))
    assert isinstance(found, MemoryBound)
    assert (found.slots, found.budget_bytes) == (32, 5 * each)
    assert capacity(found, Shape(900, 100)) == Fit(5, "memory")
    assert capacity(found, Shape(900, 125)) == Fit(4, "memory")


def test_a_window_is_planned_with_the_chunk_that_prefill_keeps_beside_it() -> None:
    found = ADAPTER.plan_layout(file(WINDOWED), PlanSettings(memory_bytes=GIB, more={"prefill_step_size": 512}))
    assert isinstance(found, MemoryBound)
    assert found.bytes_of(10000) == 2 * (10240 + 256) * 512 + 2 * (127 + 512) * 512


def test_a_quantized_cache_runs_one_session_and_is_plain_at_first() -> None:
    found = ADAPTER.plan_layout(file(LLAMA), PlanSettings(slots=8, memory_bytes=GIB, more={"kv_bits": 4}))
    assert isinstance(found, MemoryBound)
    assert found.slots == 1
    assert found.bytes_of(1000) == 1280 * 2048, "below quantized_kv_start it saves nothing"
    assert found.bytes_of(9000) == (7168 + 256) * 2048, "a chunk may begin just before quantized_kv_start"
    assert found.bytes_of(100_000) == (100_096 + 256) * 576


def test_concurrency_is_the_larger_of_two_flags() -> None:
    found = ADAPTER.plan_layout(file(LLAMA), PlanSettings(memory_bytes=GIB, more={"decode_concurrency": 2}))
    assert isinstance(found, MemoryBound)
    assert found.slots == 8


UNKNOWN: list[tuple[dict[str, Any], PlanSettings, str]] = [
    ({**SMALL, "model_type": "llama4_text"}, PlanSettings(memory_bytes=GIB), "model type llama4_text"),
    ({**SMALL, "model_type": "gemma3n"}, PlanSettings(memory_bytes=GIB), "model type gemma3n"),
    ({**SMALL, "model_type": "deepseek_v32"}, PlanSettings(memory_bytes=GIB), "model type deepseek_v32"),
    (WINDOWED, PlanSettings(memory_bytes=GIB, more={"kv_bits": 8}), "sliding windows"),
    (LLAMA, PlanSettings(memory_bytes=GIB, more={"kv_bits": 3}), "3 bits"),
    (LLAMA, PlanSettings(memory_bytes=GIB, more={"kv_bits": 0}), "0 bits"),
    ({**LLAMA, "head_dim": 48}, PlanSettings(memory_bytes=GIB, more={"kv_bits": 4, "kv_group_size": 32}), "48"),
    (LLAMA, PlanSettings(memory_bytes=GIB, cache_type_k="q8_0"), "kv_bits"),
    ({**LLAMA, "torch_dtype": "int8"}, PlanSettings(memory_bytes=GIB), "int8"),
    ({"model_type": "qwen3", "torch_dtype": "bfloat16"}, PlanSettings(memory_bytes=GIB), "num_hidden_layers"),
    ({"model_type": "llava", "torch_dtype": "bfloat16", "text_config": LLAMA}, PlanSettings(memory_bytes=GIB), "model type llava"),
    ({**LLAMA, "layer_types": ["full_attention"]}, PlanSettings(memory_bytes=GIB), "layer_types"),
]


@pytest.mark.parametrize(("config", "asked", "named"), UNKNOWN)
def test_what_was_not_proved_or_cannot_be_read_is_unknown_by_name(config: dict[str, Any], asked: PlanSettings, named: str) -> None:
    for ask in (ADAPTER.cache_shape, ADAPTER.cache_bytes, ADAPTER.plan_layout):
        found = ask(file(config), asked)
        assert isinstance(found, Unknown)
        assert named in found.detail


def test_without_memory_or_weights_nothing_bounds_the_sessions() -> None:
    for model, asked in ((file(LLAMA), PlanSettings()), (file(LLAMA, None), PlanSettings(memory_bytes=GIB))):
        assert isinstance(ADAPTER.plan_layout(model, asked), Unknown)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8), lambda inner: st.lists(inner, max_size=4), max_leaves=6
)
fields = st.sampled_from([*SMALL, "sliding_window", "layer_types", "text_config", "kv_lora_rank", "linear_num_key_heads", "dtype", "sliding_window_pattern"])
types = st.sampled_from(["llama", "qwen2", "gemma3_text", "gpt_oss", "deepseek_v2", "qwen3_next"])


@given(types, st.dictionaries(fields, json_values, max_size=8), st.dictionaries(st.sampled_from(["kv_bits", "kv_group_size"]), st.integers(-1, 64)))
def test_no_config_raises(model_type: str, broken: dict[str, Any], more: dict[str, int]) -> None:
    config = {**SMALL, "model_type": model_type, "sliding_window": 128, **broken}
    for ask in (ADAPTER.cache_shape, ADAPTER.cache_bytes, ADAPTER.plan_layout):
        assert ask(file(config), PlanSettings(memory_bytes=GIB, more=more)) is not None
