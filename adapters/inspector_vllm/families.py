"""Which model types vLLM was asked about, and how their config.json becomes layers. A type that is not in `FAMILIES` is unknown, by name.

Defaults are those of the engine's own configuration classes, and only where published files leave a field out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from inspector.huggingface import HuggingFaceConfig, UnfitError, not_proved
from inspector.reading import Reason, Unknown
from inspector_vllm.cache import ENGINE, Layers

SLIDING, FULL, LINEAR = "sliding_attention", "full_attention", "linear_attention"
OUTER: Mapping[str, str] = {"gemma3_text": "gemma3"}
"""Bigger models whose text model is of a type below: the engine builds it from the same class. That was read in its source, not run."""


def layers_of(config: HuggingFaceConfig) -> Layers:
    """The layers of a model; raises `UnfitError` for a type that was not proved, or a field that is missing or broken."""
    family, outer = FAMILIES.get(config.model_type), config.outer_type
    if family is None or outer not in (config.model_type, OUTER.get(config.model_type)):
        raise not_proved(ENGINE, f"model type {config.model_type if family is None else outer}")
    return family(config)


# --- Kinds of models -----------------------------------------------------------------------------------------------------------------


def _all_full(config: HuggingFaceConfig) -> Layers:
    """Every layer keeps all tokens; where the file asks for windows all the same, nothing was proved."""
    if _kinds(config, {FULL}) is None and config.has("sliding_window") and config.text.get("use_sliding_window") is not False:
        raise not_proved(ENGINE, f"model type {config.model_type} with sliding_window")
    return _attention(config, config.layers(), 0)


def _one_window(config: HuggingFaceConfig) -> Layers:
    """All layers keep the same window, or all keep everything where it is null. An absent field is neither: the engine's default has changed."""
    if "sliding_window" not in config.text:
        raise UnfitError(Unknown(Reason.NOT_REPORTED, "config.json does not state sliding_window"))
    _kinds(config, {FULL, SLIDING}, alike=True)
    windowed = config.layers() if config.has("sliding_window") else 0
    return _attention(config, config.layers() - windowed, windowed)


def _alternating(config: HuggingFaceConfig) -> Layers:
    """Window, full, window, full."""
    return _patterned(config, 2)


def _gemma3(config: HuggingFaceConfig) -> Layers:
    return _patterned(config, config.number("sliding_window_pattern", 6), heads=4, head_dim=256)


def _latent(config: HuggingFaceConfig) -> Layers:
    """One compressed row for all heads (MLA), and no second tensor."""
    if config.has("index_topk"):
        raise not_proved(ENGINE, "sparse attention with an indexer")
    return Layers(full=config.layers(), windowed=0, window=0, states=0, row=config.number("kv_lora_rank") + config.number("qk_rope_head_dim"), heads=0)


def _qwen3_next(config: HuggingFaceConfig) -> Layers:
    """Every fourth layer attends; the others keep a convolution's tail and one matrix for each value head."""
    number = config.layers()
    listed = _kinds(config, {FULL, LINEAR})
    full = number // config.number("full_attention_interval", 4) if listed is None else listed.count(FULL)
    attention = _attention(config, full, 0)
    if not full:
        raise not_proved(ENGINE, "a model without attention")
    keys = config.number("linear_num_key_heads") * config.number("linear_key_head_dim")
    values = config.number("linear_num_value_heads") * config.number("linear_value_head_dim")
    tail = (config.number("linear_conv_kernel_dim") - 1) * (2 * keys + values)
    state = tail + values * config.number("linear_key_head_dim")
    return Layers(full, 0, 0, number - full, attention.row, attention.heads, state)


FAMILIES: Mapping[str, Callable[[HuggingFaceConfig], Layers]] = {
    "llama": _all_full,
    "qwen2": _all_full,
    "qwen3": _all_full,
    "qwen3_moe": _all_full,
    "glm4": _all_full,
    "smollm3": _all_full,
    "mistral": _one_window,
    "mixtral": _one_window,
    "phi3": _one_window,
    "gemma2": _alternating,
    "gpt_oss": _alternating,
    "gemma3_text": _gemma3,
    "deepseek_v2": _latent,
    "deepseek_v3": _latent,
    "qwen3_next": _qwen3_next,
}


# --- Parts ---------------------------------------------------------------------------------------------------------------------------


def _patterned(config: HuggingFaceConfig, period: int, heads: int | None = None, head_dim: int | None = None) -> Layers:
    """Windows, and all tokens in every `period`-th layer, unless the file lists its layers."""
    number = config.layers()
    listed = _kinds(config, {FULL, SLIDING})
    full = number // period if listed is None else listed.count(FULL)
    return _attention(config, full, number - full, heads, head_dim)


def _attention(config: HuggingFaceConfig, full: int, windowed: int, heads: int | None = None, head_dim: int | None = None) -> Layers:
    width = config.head_dim() if head_dim is None or config.has("head_dim") else head_dim
    kv_heads = config.number("num_key_value_heads", heads)
    return Layers(full, windowed, config.number("sliding_window") if windowed else 0, 0, row=2 * kv_heads * width, heads=kv_heads)


def _kinds(config: HuggingFaceConfig, known: set[str], *, alike: bool = False) -> Sequence[str] | None:
    """The listed kinds of the layers, None where the file lists none."""
    listed = config.layer_types()
    if listed is None:
        return None
    strange = next((kind for kind in listed if kind not in known), None)
    if strange is not None or (alike and len(set(listed)) > 1):
        raise not_proved(ENGINE, f"model type {config.model_type} with these layer_types")
    return listed
