"""What each layer of a model keeps in llama.cpp's KV cache, from its GGUF metadata. Pure.

Elements here are numbers of one token's keys or values; how many bytes they take, the cache's type says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from inspector.contract import ModelFile
from inspector.reading import Reason, Unknown
from inspector_llamacpp.cache_table import ARCHITECTURES, EXTRA_CACHES, Architecture, Recurrent, State, Unstated, Window
from inspector_llamacpp.metadata import MOST_LAYERS, Metadata, UnprovedError

STATE_BYTES = 4
"""States are 32-bit floats whatever the cache's type."""


@dataclass(frozen=True, slots=True)
class Layer:
    """Elements of one token in one layer, and of one head; `window`: only the newest tokens are kept."""

    keys: int
    values: int
    key_head: int
    value_head: int
    window: bool = False


@dataclass(frozen=True, slots=True)
class Geometry:
    """A model's layers that keep tokens, its window in tokens (0: none), bytes of one sequence's states, and the context that it was trained on."""

    layers: tuple[Layer, ...]
    window_tokens: int
    state_bytes: int
    trained_tokens: int
    latent: bool


def geometry(model: ModelFile) -> Geometry | Unknown:
    """Of a GGUF file; unknown, by the architecture's name, where nothing was proved."""
    try:
        return _geometry(Metadata(model), _row(model))
    except UnprovedError as error:
        return error.unknown


def trained_tokens(model: ModelFile) -> int | Unknown:
    """The context that the model was trained on."""
    try:
        return Metadata(model).positive("context_length")
    except UnprovedError as error:
        return error.unknown


def _row(model: ModelFile) -> Architecture:
    if model.kind != "gguf":
        raise UnprovedError(Reason.NO_SOURCE, "llama.cpp serves GGUF files; name one")
    if model.architecture in EXTRA_CACHES:
        raise UnprovedError(Reason.NOT_OFFERED, f"the architecture {model.architecture} keeps caches beside its keys and values, of a size that is not proved")
    row = ARCHITECTURES.get(model.architecture)
    if row is None:
        name = model.architecture if model.architecture.isprintable() and len(model.architecture) <= 64 else "of this file"
        raise UnprovedError(Reason.NOT_OFFERED, f"what the architecture {name} keeps for a token is not proved against the engine")
    return row


def _geometry(data: Metadata, row: Architecture) -> Geometry:
    count = _layers(data, row)
    blocks = data.positive("block_count")
    heads = data.each("attention.head_count", blocks, default=(0,) * blocks)
    kv_heads = data.each("attention.head_count_kv", blocks, default=heads)
    recurrent, attends = _kinds(data, row, kv_heads, count)
    tokens, windowed = _window(data, row, count)
    latent = min(data.whole("attention.key_length_mla", 0), data.whole("attention.value_length_mla", 0)) > 0
    key, value = (_head(data, f"attention.{part}_length", heads[0]) for part in ("key", "value"))
    key_window = data.whole("attention.key_length_swa", key)
    value_window = data.whole("attention.value_length_swa", value)
    layers = []
    own = count - data.whole("attention.shared_kv_layers", 0) if row.shares else count
    for at in range(own):
        if attends[at]:
            k, v = (key_window, value_window) if windowed[at] else (key, value)
            layers.append(Layer(k * kv_heads[at], 0 if latent else v * kv_heads[at], k, 0 if latent else v, windowed[at]))
    if row.indexer:
        width = data.positive("attention.indexer.key_length")
        layers += [Layer(width, 0, width, 0)] * count
    if any(layer.keys == 0 for layer in layers):
        raise UnprovedError(Reason.INVALID, f"the model's file gives a layer of {data.architecture} no keys although it attends")
    state = sum(recurrent) * _state_elements(data, row.state, heads[0]) * STATE_BYTES if any(recurrent) else 0
    return Geometry(tuple(layers), tokens if any(layer.window for layer in layers) else 0, state, data.positive("context_length"), latent)


def _layers(data: Metadata, row: Architecture) -> int:
    """Layers of the model itself, without those of a draft model that is built in."""
    count = data.positive("block_count")
    draft = data.whole("nextn_predict_layers", 0)
    if count > MOST_LAYERS or draft >= count:
        raise UnprovedError(Reason.INVALID, f"{data.architecture}.block_count in the model's file is out of range")
    if draft and not row.skips_draft:
        raise UnprovedError(Reason.AMBIGUOUS, f"whether the layers of the draft model inside {data.architecture} have a cache is not proved")
    return count - draft


def _head(data: Metadata, name: str, heads: int) -> int:
    """Elements of one head. Without heads in the first layer the engine knows none."""
    return data.whole(name, data.positive("embedding_length") // heads) if heads else 0


def _kinds(data: Metadata, row: Architecture, kv_heads: Sequence[int], count: int) -> tuple[list[bool], list[bool]]:
    """For each layer, whether it has a state, and whether it keeps tokens."""
    heads = kv_heads[:count]
    match row.recurrent:
        case Recurrent.NONE:
            return [False] * count, [True] * count
        case Recurrent.ALL:
            return [True] * count, [False] * count
        case Recurrent.BESIDE:
            return [True] * count, [True] * count
        case Recurrent.HEADLESS:
            return [n == 0 for n in heads], [n > 0 for n in heads]
        case Recurrent.HEADLESS_PLAIN:
            plain = [n == 0 for n in data.each("feed_forward_length", data.positive("block_count"))]
            return [p and n == 0 for p, n in zip(plain, heads, strict=False)], [p and n > 0 for p, n in zip(plain, heads, strict=False)]
        case Recurrent.INTERVAL:
            listed = data.listed("attention.recurrent_layers", data.positive("block_count"))
            interval = data.positive("full_attention_interval", 4)
            states = [(at + 1) % interval != 0 for at in range(count)] if listed is None else list(listed[:count])
            return states, [not state for state in states]


def _state_elements(data: Metadata, state: State, heads: int) -> int:
    """Of one layer and one sequence."""
    if state is State.SHORT:
        return data.positive("embedding_length") * (data.positive("shortconv.l_cache") - 1)
    inputs = data.positive("ssm.conv_kernel") - 1
    if state is State.DELTA:
        head = data.positive("kda.head_dim")
        return 3 * inputs * heads * head + head * head * heads
    inner, size = data.positive("ssm.inner_size"), data.positive("ssm.state_size")
    groups = data.whole("ssm.group_count", 0) if state is State.GROUPED else 0
    return inputs * (inner + 2 * groups * size) + size * inner


def _window(data: Metadata, row: Architecture, count: int) -> tuple[int, tuple[bool, ...]]:
    """The window in tokens, and the layers that keep no more."""
    nowhere = (False,) * count
    window = row.window
    if window is None and not row.ignores_window and data.whole("attention.sliding_window", 0):
        raise UnprovedError(Reason.AMBIGUOUS, f"whether {data.architecture} uses the sliding window that the model's file states is not proved")
    if window is None or (window.layers is not None and window.layers != count):
        return 0, nowhere
    stated = data.whole("attention.sliding_window") if data.has("attention.sliding_window") else None
    if stated is None and window.unstated is Unstated.REFUSES:
        raise UnprovedError(Reason.NOT_REPORTED, f"the model's file does not state {data.architecture}.attention.sliding_window")
    if (stated is None and window.unstated is Unstated.FULL) or stated == 0:
        return 0, nowhere
    tokens = window.tokens if window.fixed or stated is None else stated
    if tokens is None:
        return 0, nowhere
    return tokens, _windowed(data, window, count)


def _windowed(data: Metadata, window: Window, count: int) -> tuple[bool, ...]:
    name = "attention.sliding_window_pattern"
    listed = data.listed(name, data.positive("block_count"))
    if window.listed:
        if listed is None:
            raise UnprovedError(Reason.NOT_REPORTED, f"the model's file does not list the layers of {data.architecture} that have a window")
        return listed[:count]
    period = window.period if listed is not None or not data.has(name) else data.whole(name)
    full = 0 if window.dense_first else period - 1
    layers = tuple(period == 0 or at % period != full for at in range(count))
    if listed is not None and listed[:count] != layers:
        # Builds differ in whether they follow a list or their own period.
        raise UnprovedError(Reason.AMBIGUOUS, f"the model's file lists windows in other layers than {data.architecture} has by itself")
    if not any(layers):
        raise UnprovedError(Reason.INVALID, f"{data.architecture}.{name} in the model's file leaves no layer a window")
    return layers
