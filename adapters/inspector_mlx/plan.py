"""What a model's sessions would take under MLX LM, from its config.json and launch settings: see `inspector.contract.Plans`."""

from __future__ import annotations

from dataclasses import dataclass

from inspector.contract import CacheShape, ModelFile, PlanSettings
from inspector.huggingface import UnfitError, huggingface_config, not_proved
from inspector.layout import Layout, MemoryBound
from inspector.reading import Reason, Unknown
from inspector_mlx.cache import ELEMENT_BYTES, ENGINE, Layers, Quantized, most_full_cells, most_rotating_cells, row_bytes, state_bytes
from inspector_mlx.families import layers_of

DECODE_CONCURRENCY, PROMPT_CONCURRENCY, PREFILL_STEP, GROUP, QUANTIZED_START = 32, 8, 2048, 64, 5000
"""The server's defaults."""
PROVED_BITS, PROVED_GROUPS = (4, 8), (32, 64)
GROWS = Unknown(Reason.NOT_OFFERED, "MLX LM sets nothing aside: its KV cache grows with its sessions")


@dataclass(frozen=True, slots=True)
class SessionBytes:
    """The most bytes that a session of so many tokens holds while it runs, alone or in a batch of its like."""

    layers: Layers
    element: int
    chunk: int
    quantized: Quantized | None = None
    start: int = 0

    def __call__(self, tokens: int) -> int:
        layers = self.layers
        rotating = layers.rotating * most_rotating_cells(tokens, layers.window, self.chunk) * row_bytes(layers.row, self.element)
        return self._full(tokens) + rotating + state_bytes(layers, self.element)

    def _full(self, tokens: int) -> int:
        """A quantized cache is a plain one until it has `start` tokens, which come in whole chunks."""
        plain = self.layers.full * row_bytes(self.layers.row, self.element)
        if self.quantized is None:
            return plain * most_full_cells(tokens)
        small = self.layers.full * row_bytes(self.layers.row, self.element, self.quantized)
        return max(small * most_full_cells(tokens), plain * most_full_cells(min(tokens, self.start + self.chunk)))


def cache_shape(model: ModelFile, settings: PlanSettings) -> CacheShape | Unknown:
    """Bytes of the tokens themselves, without the cells that a cache has beyond them."""
    try:
        found = _read(model, settings)
    except UnfitError as error:
        return error.unknown
    layers, row = found.layers, row_bytes(found.layers.row, found.element)
    full = layers.full * row_bytes(layers.row, found.element, found.quantized)
    return CacheShape(full, layers.rotating * row, layers.window, state_bytes(layers, found.element))


def cache_bytes(model: ModelFile, settings: PlanSettings) -> int | Unknown:
    try:
        _read(model, settings)
    except UnfitError as error:
        return error.unknown
    return GROWS


def plan_layout(model: ModelFile, settings: PlanSettings) -> Layout | Unknown:
    """Sessions against the memory beside the weights. What prefill needs for a moment, and kept prompts, are not in it."""
    try:
        found = _read(model, settings)
        budget = _budget(model, settings)
        slots = settings.slots or max(
            _setting(settings, "decode_concurrency", DECODE_CONCURRENCY), _setting(settings, "prompt_concurrency", PROMPT_CONCURRENCY)
        )
    except UnfitError as error:
        return error.unknown
    return MemoryBound(1 if found.quantized else slots, found, budget)  # A quantized cache runs requests one by one.


def _read(model: ModelFile, settings: PlanSettings) -> SessionBytes:
    config = huggingface_config(model)
    layers = layers_of(config)
    element = ELEMENT_BYTES.get(config.dtype())
    if element is None:
        raise not_proved(ENGINE, f"weights of type {config.dtype()}")
    if settings.cache_type_k is not None or settings.cache_type_v is not None:
        raise UnfitError(Unknown(Reason.INVALID, "MLX LM has no cache types: give kv_bits"))
    quantized = _quantized(layers, settings)
    start = settings.more.get("quantized_kv_start", QUANTIZED_START)
    return SessionBytes(layers, element, _setting(settings, "prefill_step_size", PREFILL_STEP), quantized, start if quantized else 0)


def _quantized(layers: Layers, settings: PlanSettings) -> Quantized | None:
    if "kv_bits" not in settings.more:
        return None
    bits, group = settings.more["kv_bits"], _setting(settings, "kv_group_size", GROUP)
    if layers.rotating:
        raise UnfitError(Unknown(Reason.INVALID, "MLX LM cannot quantize the cache of a model with sliding windows"))
    if not layers.width:
        raise not_proved(ENGINE, "a latent attention in fewer bits")
    if bits not in PROVED_BITS or group not in PROVED_GROUPS:
        raise not_proved(ENGINE, f"{bits} bits in groups of {group}")
    if layers.width % group:
        raise UnfitError(Unknown(Reason.INVALID, f"heads of {layers.width} elements do not divide into groups of {group}"))
    return Quantized(bits, group)


def _budget(model: ModelFile, settings: PlanSettings) -> int:
    if settings.memory_bytes is None:
        raise UnfitError(Unknown(Reason.NO_SOURCE, "nothing limits MLX LM's KV cache but memory, and none is given"))
    if model.weights_bytes is None:
        raise UnfitError(Unknown(Reason.NO_SOURCE, "the size of the weights is not known"))
    return max(0, settings.memory_bytes - model.weights_bytes)


def _setting(settings: PlanSettings, name: str, default: int) -> int:
    value = settings.more.get(name, default)
    if value <= 0:
        raise UnfitError(Unknown(Reason.INVALID, f"{name} is not above zero"))
    return value
