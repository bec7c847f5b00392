"""Blocks of vLLM's KV cache from a config.json. Right values: the engine's own words, and figures of real models with their sources."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspector.budget import Fit, Shape, capacity
from inspector.contract import CacheShape, ModelFile, Plans, PlanSettings
from inspector.layout import Paged, capacity_tokens
from inspector.reading import Kind, Known, Origin, Reason, Unknown
from inspector_vllm import ADAPTER
from inspector_vllm.cache import Blocks
from inspector_vllm.cache_info import CacheInfo
from inspector_vllm.capacity import cache
from inspector_vllm.log import kv_log

MODELS = json.loads(Path(__file__).with_name("fixtures").joinpath("kv_hf", "models.json").read_text())
GIB = 2**30
NO_LOG = kv_log(Unknown(Reason.NO_SOURCE, "no log is followed"), "0")
SMALL = {"hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "torch_dtype": "bfloat16"}
GEMMA = {**SMALL, "model_type": "gemma3_text", "num_key_value_heads": 1, "head_dim": 64, "sliding_window": 256, "sliding_window_pattern": 6}
LATENT = {"kv_lora_rank": 512, "qk_rope_head_dim": 64}
LINEAR = {
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16, "linear_conv_kernel_dim": 4,
}  # fmt: skip


def file(config: Any, weights: int | None = None) -> ModelFile:
    return ModelFile("config", "", config, weights)


def settings(length: int | None = 2048, cache_type: str | None = None, **more: int) -> PlanSettings:
    in_process = {"max_num_batched_tokens": 4096, "max_concurrent_batches": 1, "kv_cache_memory_bytes": GIB, "block_size": 128}
    return PlanSettings(length, 4, cache_type_k=cache_type, more=in_process | more)


def layout(config: dict[str, Any], asked: PlanSettings) -> Paged:
    found = ADAPTER.plan_layout(file(config), asked)
    assert isinstance(found, Paged), found
    return found


def test_the_adapter_plans() -> None:
    assert isinstance(ADAPTER, Plans)


SAID_BY_THE_ENGINE = [
    # config, settings, bytes of a block, blocks in 1 GiB, groups, blocks that it counts for a full-length request, its tokens
    ({**SMALL, "model_type": "llama"}, settings(), 131072, 8192, 1, 16, 1048576),
    ({**SMALL, "model_type": "llama"}, settings(1000), 131072, 8192, 1, 8, 1024000),
    ({**SMALL, "model_type": "mistral", "sliding_window": 256}, settings(), 131072, 8192, 1, 17, 986895),
    ({**GEMMA, "num_hidden_layers": 6}, settings(), 32768, 32768, 6, 101, 664444),
    ({**GEMMA, "num_hidden_layers": 8}, settings(), 32768, 32768, 8, 135, 497102),
    ({**GEMMA, "num_hidden_layers": 8}, settings(8192), 32768, 32768, 8, 309, 868723),
    ({**SMALL, "model_type": "llama"}, settings(cache_type="fp8"), 65536, 16384, 1, 16, 2097152),
    ({**SMALL, "model_type": "llama"}, settings(block_size=32), 32768, 32768, 1, 64, 1048576),
    ({**SMALL, **LATENT, "model_type": "deepseek_v2", "num_hidden_layers": 3}, settings(block_size=16), 55296, 19418, 1, 128, 310688),
    ({**SMALL, **LINEAR, "model_type": "qwen3_next", "head_dim": 64}, settings(), 65536, 16384, 4, 22, 1525201),
    ({**SMALL, **LINEAR, "model_type": "qwen3_next"}, settings(), 32768, 32768, 4, 22, 3050402),
]  # fmt: skip


@pytest.mark.parametrize(("config", "asked", "block_bytes", "blocks", "groups", "counted", "tokens"), SAID_BY_THE_ENGINE)
def test_blocks_are_those_of_the_engine(
    config: dict[str, Any], asked: PlanSettings, block_bytes: int, blocks: int, groups: int, counted: int, tokens: int
) -> None:
    found = layout(config, asked)
    assert (found.blocks, found.groups, found.reserved_blocks) == (blocks, groups, 1)
    assert ADAPTER.cache_bytes(file(config), asked) == blocks * block_bytes
    assert asked.context_tokens is not None
    if isinstance(found.blocks_of, Blocks):
        assert found.blocks_of.counted(asked.context_tokens) == counted
    else:
        assert (found.blocks_of, -(-asked.context_tokens // found.block_tokens)) == (None, counted)
    assert int(blocks / counted * asked.context_tokens) == tokens


@pytest.mark.parametrize(("config", "asked", "block_bytes", "blocks", "groups", "counted", "tokens"), SAID_BY_THE_ENGINE)
def test_what_a_running_server_shows_bounds_the_sessions_that_its_blocks_hold(
    config: dict[str, Any], asked: PlanSettings, block_bytes: int, blocks: int, groups: int, counted: int, tokens: int
) -> None:
    """Its labels tell the blocks of the longest request, not the groups: the plan of the same model, which knows them, lies between."""
    exact, length = layout(config, asked), asked.context_tokens
    assert length is not None
    origin = Origin(Kind.HTTP, "/metrics", 1.0)
    slots, context = Known(10**6, origin), Known(length, origin)
    told = CacheInfo(Known(blocks, origin), Known(exact.block_tokens, origin), Known(tokens, origin), Known(blocks / counted, origin))
    live = cache(told, NO_LOG, Unknown(Reason.NO_SOURCE, ""), Unknown(Reason.NO_SOURCE, "")).layouts(slots, context)
    assert len(live) == (1 if exact.blocks_of is None else 2)
    for stored in {1, 100, length // 3, length - 2, length - 1}:
        shape = Shape(1, stored)
        fits = [capacity(each, shape) for each in live]
        true = capacity(replace(exact, slots=slots.value), shape)
        assert true is not None
        least, most = min(fit.sessions for fit in fits if fit), max(fit.sessions for fit in fits if fit)
        assert least <= true.sessions <= most
        assert len(live) == 2 or least == most
        if stored == length - 1 and len(live) == 2:
            assert least == (blocks - 1) // counted, "as many as of the longest"
    assert all(fit == Fit(0, "context") for fit in (capacity(each, Shape(1, length)) for each in live))


def test_labels_that_fit_no_whole_number_of_blocks_bound_nothing() -> None:
    origin = Origin(Kind.HTTP, "/metrics", 1.0)
    told = CacheInfo(Known(1000, origin), Known(16, origin), Known(7000, origin), Known(3.7, origin))
    live = cache(told, NO_LOG, Unknown(Reason.NO_SOURCE, ""), Unknown(Reason.NO_SOURCE, "")).layouts(Known(4, origin), Known(2048, origin))
    assert [capacity(each, Shape(100, 100)) for each in live] == [None]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model["name"])
def test_real_models_take_the_bytes_of_their_sources(model: dict[str, Any]) -> None:
    right = dict(model["vllm"])
    block_tokens = right.pop("block_tokens")
    asked = PlanSettings(4096, 1, more={"block_size": 16, "kv_cache_memory_bytes": 2**40, "max_num_batched_tokens": 2048})
    assert ADAPTER.cache_shape(file(model["config"]), asked) == CacheShape(**right)
    assert layout(model["config"], asked).block_tokens == block_tokens


def test_windows_need_fewer_blocks_only_beyond_window_and_batch() -> None:
    found = layout({**GEMMA, "num_hidden_layers": 6}, settings(8192, max_num_batched_tokens=512))
    assert found.blocks_of is not None
    assert found.blocks_of(767) == 6 * 6, "all layers keep all of a short session"
    assert found.blocks_of(8191) == 64 + 5 * (6 + 1), "255 + 512 tokens are 6 blocks, and one may be begun"


def test_a_window_ends_one_token_before_itself_and_two_batches_may_be_under_way() -> None:
    config = {**GEMMA, "sliding_window": 129}
    memory = {"kv_cache_memory_bytes": GIB, "block_size": 128, "max_num_batched_tokens": 512}
    alone = layout(config, PlanSettings(8192, 4, more=memory | {"max_concurrent_batches": 1}))
    server = layout(config, PlanSettings(8192, 4, more=memory))
    assert alone.blocks_of is not None
    assert server.blocks_of is not None
    assert alone.blocks_of(8192) == 5 + 1, "128 + 512 tokens; four layers without a full one are one group"
    assert server.blocks_of(8192) == 9 + 1


@pytest.mark.parametrize(("number", "groups", "pages"), [(5, 3, 2), (9, 2, 5)])
def test_groups_are_as_big_as_the_smaller_kind_unless_the_kinds_are_nearly_alike(number: int, groups: int, pages: int) -> None:
    """Three windows and two full layers are groups of two; five and four are groups of five, for a group may be padded."""
    config = {**SMALL, "model_type": "gemma2", "sliding_window": 200, "num_hidden_layers": number}
    found = layout(config, settings())
    assert (found.groups, found.blocks) == (groups, GIB // (pages * 32768))


def test_a_pool_that_has_only_the_null_block_is_refused() -> None:
    for blocks in (0, 1):
        assert isinstance(ADAPTER.plan_layout(file({**SMALL, "model_type": "llama"}), settings(num_gpu_blocks_override=blocks)), Unknown)
    assert layout({**SMALL, "model_type": "llama"}, settings(num_gpu_blocks_override=2)).blocks == 2


def test_a_session_of_a_hybrid_model_holds_its_states_from_the_first_token() -> None:
    config = {**SMALL, **LINEAR, "model_type": "qwen3_next"}
    with_prefixes, without = layout(config, settings()), layout(config, settings(enable_prefix_caching=0))
    assert with_prefixes.blocks_of is not None
    assert without.blocks_of is not None
    assert (with_prefixes.blocks_of(1), without.blocks_of(1)) == (3 * 2 + 1, 3 * 1 + 1)


def test_the_budget_of_a_hybrid_model_counts_blocks_of_all_groups() -> None:
    config = {**GEMMA, "num_hidden_layers": 6}
    fits = capacity(layout(config, settings(num_gpu_blocks_override=3 * 96 + 1)), Shape(1000, 1048))
    assert fits == Fit(3, "kv"), "2047 stored tokens are 16 blocks in each of 6 groups"
    assert capacity(layout(config, settings(num_gpu_blocks_override=3 * 96)), Shape(1000, 1048)) == Fit(2, "kv")
    assert capacity_tokens(layout(config, settings())) is None


def test_heads_are_shared_out_over_ranks_and_never_less_than_one() -> None:
    config = {**SMALL, "model_type": "llama"}
    each = [ADAPTER.cache_shape(file(config), settings(tensor_parallel_size=ranks)) for ranks in (1, 2, 4)]
    assert each == [CacheShape(1024), CacheShape(512), CacheShape(512)]
    broken = ADAPTER.cache_shape(file({**config, "num_key_value_heads": 3}), settings(tensor_parallel_size=2))
    assert isinstance(broken, Unknown)
    latent = {**SMALL, **LATENT, "model_type": "deepseek_v3"}
    assert ADAPTER.cache_shape(file(latent), settings(tensor_parallel_size=4)) == CacheShape(4 * 576 * 2)


UNKNOWN = [
    ({**SMALL, "model_type": "deepseek_v32"}, {}, "model type deepseek_v32"),
    ({**SMALL, "model_type": "gemma3n_text"}, {}, "model type gemma3n_text"),
    ({**SMALL, "model_type": "llama", "sliding_window": 100}, {}, "model type llama with sliding_window"),
    ({**SMALL, "model_type": "qwen2", "sliding_window": 100, "use_sliding_window": True}, {}, "model type qwen2 with sliding_window"),
    ({**SMALL, "model_type": "mistral"}, {}, "sliding_window"),
    ({**SMALL, "model_type": "llama", "torch_dtype": "float8_e4m3fn"}, {}, "float8_e4m3fn"),
    ({**SMALL, "model_type": "llama"}, {"cache_type": "nvfp4"}, "nvfp4"),
    ({**SMALL, **LINEAR, "model_type": "qwen3_next"}, {"tensor_parallel_size": 2}, "tensor parallelism"),
    ({**SMALL, "model_type": "llama", "layer_types": ["full_attention", "other", "x", "y"]}, {}, "layer_types"),
    ({"model_type": "llama", "torch_dtype": "bfloat16"}, {}, "num_hidden_layers"),
    ({"model_type": "llava", "torch_dtype": "bfloat16", "text_config": {**SMALL, "model_type": "llama"}}, {}, "model type llava"),
    ({**SMALL, "model_type": "llama", "quantization_config": {"kv_cache_scheme": {"num_bits": 8}}}, {}, "cache type of its own"),
    ({**SMALL, "model_type": "llama", "num_key_value_heads": True}, {}, "num_key_value_heads"),
]  # fmt: skip


@pytest.mark.parametrize(("config", "more", "named"), UNKNOWN)
def test_what_was_not_proved_or_cannot_be_read_is_unknown_by_name(config: dict[str, Any], more: dict[str, Any], named: str) -> None:
    for ask in (ADAPTER.cache_shape, ADAPTER.cache_bytes, ADAPTER.plan_layout):
        found = ask(file(config), settings(**more))
        assert isinstance(found, Unknown)
        assert named in found.detail


def test_settings_that_decide_are_asked_for() -> None:
    latent = {**SMALL, **LATENT, "model_type": "deepseek_v3"}
    no_block = ADAPTER.plan_layout(file(latent), PlanSettings(2048, 4, more={"kv_cache_memory_bytes": GIB}))
    no_batch = ADAPTER.plan_layout(file({**GEMMA, "num_hidden_layers": 6}), PlanSettings(2048, 4, more={"kv_cache_memory_bytes": GIB}))
    no_memory = ADAPTER.plan_layout(file({**SMALL, "model_type": "llama"}), PlanSettings(2048, 4))
    for found, named in ((no_block, "block_size"), (no_batch, "max_num_batched_tokens"), (no_memory, "memory")):
        assert isinstance(found, Unknown)
        assert named in found.detail


def test_memory_is_what_the_weights_leave() -> None:
    config = {**SMALL, "model_type": "llama"}
    asked = PlanSettings(2048, 4, memory_bytes=GIB + 4096, more={"block_size": 128})
    assert ADAPTER.cache_bytes(file(config, 4096), asked) == GIB
    assert isinstance(ADAPTER.cache_bytes(file(config, None), asked), Unknown)
    full = ADAPTER.plan_layout(file(config, GIB), asked)
    assert isinstance(full, Unknown)
    assert full.reason is Reason.INVALID


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8), lambda inner: st.lists(inner, max_size=4), max_leaves=6
)
fields = st.sampled_from(
    [*SMALL, *LINEAR, "sliding_window", "layer_types", "text_config", "kv_lora_rank", "qk_rope_head_dim", "dtype", "sliding_window_pattern"]
)
types = st.sampled_from(["llama", "mistral", "gemma3_text", "gpt_oss", "deepseek_v2", "qwen3_next"])


@given(types, st.dictionaries(fields, json_values, max_size=8), st.integers(-1, 4096))
def test_no_config_raises(model_type: str, broken: dict[str, Any], block: int) -> None:
    config = {**SMALL, **LINEAR, "model_type": model_type, "sliding_window": 128, **broken}
    for ask in (ADAPTER.cache_shape, ADAPTER.cache_bytes, ADAPTER.plan_layout):
        assert ask(file(config), settings(block_size=block)) is not None


@pytest.mark.parametrize(
    "values", [{}, {"text_config": []}, {"model_type": 3}, {"model_type": "x" * 1000}, {"model_type": "llama", "num_hidden_layers": 10**9}]
)
def test_configs_of_nothing_are_unknown(values: Any) -> None:
    assert isinstance(ADAPTER.plan_layout(file(values), settings()), Unknown)
    assert isinstance(ADAPTER.plan_layout(ModelFile("gguf", "llama", values), settings()), Unknown)
