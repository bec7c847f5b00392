"""What vLLM would set aside for a model's KV cache, from its config.json and launch settings: see `inspector.contract.Plans`."""

from __future__ import annotations

from collections.abc import Mapping

from inspector.contract import CacheShape, ModelFile, PlanSettings
from inspector.huggingface import HuggingFaceConfig, UnfitError, huggingface_config, not_proved
from inspector.layout import Layout, Paged
from inspector.reading import Reason, Unknown
from inspector_vllm.cache import ELEMENT_BYTES, ENGINE, MODEL_BYTES, NULL_BLOCKS, Cache, Layers, Running, cache
from inspector_vllm.families import layers_of

BLOCK_TOKENS = 16
"""On a GPU; a CPU build takes 128."""
BATCHES = 2
"""Batches under way at once: a server schedules the next one while one runs."""

CACHE_QUANTIZED = ("kv_cache_scheme", "kv_cache_quant_algo")
"""In a checkpoint's quantization_config: it decides the type of an automatic cache."""


def cache_shape(model: ModelFile, settings: PlanSettings) -> CacheShape | Unknown:
    """Bytes of a session's own tokens on one rank; states as they are padded to blocks."""
    try:
        layers, running = read(model, settings, needs_windows=False)
        row = cache(Layers(1, 0, 0, 0, layers.row, layers.heads), running).page_bytes // running.block_tokens
        states = layers.states * running.state_blocks * cache(layers, running).page_bytes if layers.states else 0
    except UnfitError as error:
        return error.unknown
    return CacheShape(layers.full * row, layers.windowed * row, layers.window if layers.windowed else 0, states)


def cache_bytes(model: ModelFile, settings: PlanSettings) -> int | Unknown:
    """Whole blocks on one rank."""
    try:
        layers, running = read(model, settings, needs_windows=False)
        found = cache(layers, running)
        return _blocks(model, settings, found) * found.block_bytes
    except UnfitError as error:
        return error.unknown


def plan_layout(model: ModelFile, settings: PlanSettings) -> Layout | Unknown:
    """Blocks of a server with these settings."""
    try:
        found = cache(*read(model, settings, needs_windows=True))
        blocks = _blocks(model, settings, found)
    except UnfitError as error:
        return error.unknown
    groups, size = found.blocks_of.groups, found.blocks_of.block_tokens
    each = None if found.is_uniform else found.blocks_of
    return Paged(blocks, size, NULL_BLOCKS, settings.slots, settings.context_tokens, len(groups), each)


def read(model: ModelFile, settings: PlanSettings, *, needs_windows: bool) -> tuple[Layers, Running]:
    """The model's layers, and how the engine would run it; raises `UnfitError` for what is missing, broken or not proved."""
    config = huggingface_config(model)
    layers = layers_of(config)
    weights = _model_bytes(config)
    return layers, Running(
        block_tokens=_block_tokens(layers, settings),
        cache_bytes=_cache_bytes(settings, weights),
        model_bytes=weights,
        ranks=_setting(settings, "tensor_parallel_size", 1),
        state_blocks=1 if settings.more.get("enable_prefix_caching") == 0 else 2,
        in_flight=_in_flight(settings) if needs_windows else 1,
        context=settings.context_tokens,
    )


def _model_bytes(config: HuggingFaceConfig) -> int:
    quantization = config.whole.get("quantization_config")
    named = quantization if isinstance(quantization, Mapping) else {}
    if any(named.get(name) is not None for name in CACHE_QUANTIZED) or config.whole.get("compression_config") is not None:
        raise not_proved(ENGINE, "a checkpoint that brings a cache type of its own")
    found = MODEL_BYTES.get(config.dtype())
    if found is None:
        raise not_proved(ENGINE, f"weights of type {config.dtype()}")
    return found


def _cache_bytes(settings: PlanSettings, weights: int) -> int:
    key, value = settings.cache_type_k, settings.cache_type_v
    if value is not None and value != key:
        raise UnfitError(Unknown(Reason.INVALID, "vLLM keeps keys and values in the same type: give the same for both"))
    if key is None or key == "auto":
        return weights
    found = ELEMENT_BYTES.get(key)
    if found is None:
        raise not_proved(ENGINE, f"cache type {key[:40]}")
    return found


def _block_tokens(layers: Layers, settings: PlanSettings) -> int:
    if not layers.heads and "block_size" not in settings.more:
        raise UnfitError(Unknown(Reason.NO_SOURCE, "the block size of a latent cache depends on the GPU's kernels: give block_size"))
    return _setting(settings, "block_size", BLOCK_TOKENS)


def _in_flight(settings: PlanSettings) -> int | None:
    if "max_num_batched_tokens" not in settings.more:
        return None
    return _setting(settings, "max_num_batched_tokens", 1) * _setting(settings, "max_concurrent_batches", BATCHES)


def _blocks(model: ModelFile, settings: PlanSettings, found: Cache) -> int:
    """As overridden, or as many as fit into the bytes that are set aside for them or left beside the weights."""
    if "num_gpu_blocks_override" in settings.more:
        memory = _setting(settings, "num_gpu_blocks_override", 1) * found.block_bytes
    elif "kv_cache_memory_bytes" in settings.more:
        memory = _setting(settings, "kv_cache_memory_bytes", 1)
    elif settings.memory_bytes is None:
        raise UnfitError(Unknown(Reason.NO_SOURCE, "how much memory the KV cache gets is not given"))
    elif model.weights_bytes is None:
        raise UnfitError(Unknown(Reason.NO_SOURCE, "the size of the weights is not known: give kv_cache_memory_bytes"))
    else:
        memory = settings.memory_bytes - model.weights_bytes
    blocks = memory // found.block_bytes
    if blocks <= NULL_BLOCKS:
        raise UnfitError(Unknown(Reason.INVALID, "the memory does not hold one block that a request could use"))
    return blocks


def _setting(settings: PlanSettings, name: str, default: int) -> int:
    value = settings.more.get(name, default)
    if value <= 0:
        raise UnfitError(Unknown(Reason.INVALID, f"{name} is not above zero"))
    return value
