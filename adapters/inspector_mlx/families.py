"""Which model types of MLX LM were asked about, and which cache class each of their layers has. A type that is not in `FAMILIES` is unknown, by name.

Defaults are those of the engine's own model files, and only where published files leave a field out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from inspector.huggingface import HuggingFaceConfig, not_proved
from inspector_mlx.cache import ENGINE, Layers

SLIDING, FULL, LINEAR = "sliding_attention", "full_attention", "linear_attention"
OUTER: Mapping[str, str] = {"gemma3_text": "gemma3"}
"""Bigger models whose text model is of a type below."""


def layers_of(config: HuggingFaceConfig) -> Layers:
    """The caches of a model; raises `UnfitError` for a type that was not proved, or a field that is missing or broken."""
    family, outer = FAMILIES.get(config.model_type), config.outer_type
    if family is None or outer not in (config.model_type, OUTER.get(config.model_type)):
        raise not_proved(ENGINE, f"model type {config.model_type if family is None else outer}")
    return family(config)


# --- Kinds of models -----------------------------------------------------------------------------------------------------------------


def _full(config: HuggingFaceConfig) -> Layers:
    """These model files make no window, whatever their config says."""
    return _attention(config, config.layers(), 0)


def _hidden_over_heads(config: HuggingFaceConfig) -> Layers:
    """Likewise, of files that do not look at head_dim."""
    width = config.number("hidden_size") // config.number("num_attention_heads")
    heads = config.number("num_key_value_heads")
    return Layers(config.layers(), 0, 0, 0, row=2 * heads * width, width=width)


def _llama(config: HuggingFaceConfig) -> Layers:
    """Windows only where the file lists its layers."""
    listed = _kinds(config, {FULL, SLIDING})
    rotating = 0 if listed is None else listed.count(SLIDING)
    heads = None if config.has("num_key_value_heads") else config.number("num_attention_heads")
    return _attention(config, config.layers() - rotating, rotating, heads)


def _gpt_oss(config: HuggingFaceConfig) -> Layers:
    """Window and full by turns; of an odd number of layers that are not listed, the engine leaves the last one out."""
    listed = _kinds(config, {FULL, SLIDING})
    full = config.layers() // 2 if listed is None else listed.count(FULL)
    return _attention(config, full, full if listed is None else config.layers() - full)


def _gemma3(config: HuggingFaceConfig) -> Layers:
    """The list of layers is not looked at, only the pattern. Inside a bigger model other defaults hold."""
    alone = config.outer_type == config.model_type
    full = config.layers() // config.number("sliding_window_pattern", 6)
    heads = config.number("num_key_value_heads", 1 if alone else 4)
    width = config.number("head_dim", 256)
    rotating = config.layers() - full
    return Layers(full, rotating, config.number("sliding_window", 512) if rotating else 0, 0, row=2 * heads * width, width=width)


def _latent(config: HuggingFaceConfig) -> Layers:
    """One compressed row for all heads."""
    row = config.number("kv_lora_rank") + config.number("qk_rope_head_dim")
    return Layers(config.layers(), 0, 0, 0, row=row)


def _expanded(config: HuggingFaceConfig) -> Layers:
    """DeepSeek V2's file stores the heads as they come out of the compressed row, which takes several times as much."""
    each = config.number("qk_nope_head_dim") + config.number("qk_rope_head_dim") + config.number("v_head_dim")
    return Layers(config.layers(), 0, 0, 0, row=config.number("num_attention_heads") * each)


def _qwen3_next(config: HuggingFaceConfig) -> Layers:
    """Every fourth layer attends; the others keep a convolution's tail and one matrix for each value head."""
    number = config.layers()
    full = number // config.number("full_attention_interval", 4)
    listed = _kinds(config, {FULL, LINEAR})
    if listed is not None and listed.count(FULL) != full:
        raise not_proved(ENGINE, f"model type {config.model_type} with these layer_types")
    keys = config.number("linear_num_key_heads") * config.number("linear_key_head_dim")
    values = config.number("linear_num_value_heads") * config.number("linear_value_head_dim")
    tail = (config.number("linear_conv_kernel_dim") - 1) * (2 * keys + values)
    attention = _attention(config, full, 0)
    return Layers(full, 0, 0, number - full, attention.row, tail, values * config.number("linear_key_head_dim"), attention.width)


FAMILIES: Mapping[str, Callable[[HuggingFaceConfig], Layers]] = {
    "llama": _llama,
    "mistral": _llama,
    "qwen2": _hidden_over_heads,
    "mixtral": _hidden_over_heads,
    "phi3": _hidden_over_heads,
    "qwen3": _full,
    "qwen3_moe": _full,
    "gemma2": _full,
    "glm4": _full,
    "smollm3": _full,
    "gemma3_text": _gemma3,
    "gpt_oss": _gpt_oss,
    "deepseek_v2": _expanded,
    "deepseek_v3": _latent,
    "qwen3_next": _qwen3_next,
}


# --- Parts ---------------------------------------------------------------------------------------------------------------------------


def _attention(config: HuggingFaceConfig, full: int, rotating: int, heads: int | None = None) -> Layers:
    kv_heads = config.number("num_key_value_heads", heads)
    window = config.number("sliding_window") if rotating else 0
    return Layers(full, rotating, window, 0, row=2 * kv_heads * config.head_dim(), width=config.head_dim())


def _kinds(config: HuggingFaceConfig, known: set[str]) -> Sequence[str] | None:
    listed = config.layer_types()
    if listed is not None and not set(listed) <= known:
        raise not_proved(ENGINE, f"model type {config.model_type} with these layer_types")
    return listed
