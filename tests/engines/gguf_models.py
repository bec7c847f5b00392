"""Tiny GGUF models of many architectures: real metadata, all weights zero, no vocabulary. llama.cpp loads them and makes its KV cache; no more.

`Model` gives the metadata by key without the architecture's prefix, and `write` puts the tensors that the engine asks for beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

VOCABULARY = 64
FEED_FORWARD = 32

Shape = tuple[int, ...]
Tensors = Iterator[tuple[str, Shape]]
"""Names and sizes, the fastest dimension first, as GGUF counts them."""


@dataclass(frozen=True)
class Model:
    architecture: str
    values: Mapping[str, Any] = field(hash=False)

    def prefixed(self) -> dict[str, Any]:
        """Metadata keys as in the file."""
        return {f"{self.architecture}.{name}": value for name, value in self.values.items()}

    @property
    def layers(self) -> int:
        return int(self.values["block_count"])

    def heads(self, layer: int) -> int:
        """KV heads of a layer."""
        stated = self.values["attention.head_count_kv"]
        return int(stated[layer] if isinstance(stated, Sequence) else stated)


def attention(architecture: str, layers: int, heads: int, kv_heads: int | list[int], head: int, *, value: int = 0, **more: Any) -> Model:
    """A model of attention layers, `__` for a dot in further keys."""
    values = {
        "context_length": 65536,
        "block_count": layers,
        "embedding_length": heads * head,
        "feed_forward_length": FEED_FORWARD,
        "attention.head_count": heads,
        "attention.head_count_kv": kv_heads,
        "attention.key_length": head,
        "attention.value_length": value or head,
        "rope.dimension_count": head,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "attention.layer_norm_epsilon": 1e-5,
        "logit_scale": 1.0,
        "vocab_size": VOCABULARY,
    }
    return Model(architecture, {**values, **{name.replace("__", "."): stated for name, stated in more.items()}})


def latent(layers: int, heads: int, rank: int, rope: int) -> Model:
    """DeepSeek's latent attention: one compressed head, made wide again by each query head."""
    return attention(
        "deepseek2", layers, heads, 1, rank + rope, value=rank, embedding_length=64, rope__dimension_count=rope, attention__q_lora_rank=32,
        attention__kv_lora_rank=rank, attention__key_length_mla=2 * rope, attention__value_length_mla=rope, leading_dense_block_count=layers,
        expert_count=2, expert_used_count=1, expert_shared_count=1, expert_feed_forward_length=FEED_FORWARD, expert_weights_scale=1.0, expert_gating_func=2,
    )  # fmt: skip


def sharing(layers: int, shared: int, heads: int, kv_heads: int, head: int, window_head: int, windows: list[bool]) -> Model:
    """Gemma 4: the last layers use the keys and values of the last ones that have their own; heads of windowed layers are of another size."""
    return attention(
        "gemma4", layers, heads, kv_heads, head, attention__sliding_window=100, attention__sliding_window_pattern=windows, attention__shared_kv_layers=shared,
        attention__key_length_swa=window_head, attention__value_length_swa=window_head, embedding_length_per_layer_input=0,
        rope__dimension_count_swa=window_head,
    )  # fmt: skip


def recurrent(architecture: str, layers: int, width: int, state: int, kernel: int, groups: int) -> Model:
    """Mamba, first or second."""
    stated = {"context_length": 65536, "block_count": layers, "embedding_length": width, "feed_forward_length": 0, "attention.head_count": 0,
              "attention.layer_norm_rms_epsilon": 1e-5, "vocab_size": VOCABULARY, **states(2 * width, state, kernel, groups)}  # fmt: skip
    return Model(architecture, stated)


def states(inner: int, state: int, kernel: int, groups: int, rank: int = 4) -> dict[str, int]:
    return {"ssm.conv_kernel": kernel, "ssm.inner_size": inner, "ssm.state_size": state, "ssm.time_step_rank": rank, "ssm.group_count": groups}


def with_states(model: Model, inner: int, state: int, kernel: int, groups: int) -> Model:
    return Model(model.architecture, {**model.values, **states(inner, state, kernel, groups)})


def write(model: Model, path: Path) -> Path:
    """Write the model to `path`. Needs `gguf` and `numpy`."""
    import gguf  # noqa: PLC0415 (an extra)
    import numpy as np  # noqa: PLC0415

    writer = gguf.GGUFWriter(str(path), model.architecture)
    writer.add_string("tokenizer.ggml.model", "no_vocab")
    for key, value in model.prefixed().items():
        _add(writer, key, value)
    for name, shape in _tensors(model):
        writer.add_tensor(name, np.zeros(tuple(reversed(shape)), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add(writer: Any, key: str, value: Any) -> None:
    if isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, Sequence):
        writer.add_array(key, list(value))
    else:
        writer.add_uint32(key, value)


# --- Tensors -------------------------------------------------------------------------------------------------------------------------


def _tensors(model: Model) -> Tensors:
    width = model.values["embedding_length"]
    yield "token_embd.weight", (width, VOCABULARY)
    yield ("token_embd_norm.weight" if model.architecture == "lfm2" else "output_norm.weight"), (width,)
    if model.architecture == "gemma4":
        yield "rope_freqs.weight", (model.values["attention.key_length"] // 2,)
    for layer in range(model.layers):
        for name, shape in _LAYERS[model.architecture](model, layer):
            yield f"blk.{layer}.{name}", shape


def _attention(model: Model, layer: int) -> Tensors:
    width, query = model.values["embedding_length"], model.values["attention.head_count"] * model.values["attention.key_length"]
    heads = model.heads(layer)
    yield "attn_norm.weight", (width,)
    yield "attn_q.weight", (width, query)
    yield "attn_k.weight", (width, heads * model.values["attention.key_length"])
    yield "attn_v.weight", (width, heads * model.values["attention.value_length"])
    yield "attn_output.weight", (query, width)


def _feed_forward(model: Model, norm: str = "ffn_norm.weight") -> Tensors:
    width = model.values["embedding_length"]
    yield norm, (width,)
    yield "ffn_gate.weight", (width, FEED_FORWARD)
    yield "ffn_up.weight", (width, FEED_FORWARD)
    yield "ffn_down.weight", (FEED_FORWARD, width)


def _llama(model: Model, layer: int) -> Tensors:
    yield from _attention(model, layer)
    yield from _feed_forward(model)


def _head_norms(model: Model) -> Tensors:
    yield "attn_q_norm.weight", (model.values["attention.key_length"],)
    yield "attn_k_norm.weight", (model.values["attention.key_length"],)


def _gemma2(model: Model, layer: int) -> Tensors:
    yield from _llama(model, layer)
    yield "post_attention_norm.weight", (model.values["embedding_length"],)
    yield "post_ffw_norm.weight", (model.values["embedding_length"],)


def _gemma3(model: Model, layer: int) -> Tensors:
    yield from _gemma2(model, layer)
    yield from _head_norms(model)


def _gemma4(model: Model, layer: int) -> Tensors:
    """Like the third, each layer with its own size of heads."""
    windowed = model.values["attention.sliding_window_pattern"][layer]
    head = model.values["attention.key_length_swa" if windowed else "attention.key_length"]
    yield from _gemma3(Model("gemma4", {**model.values, "attention.key_length": head, "attention.value_length": head}), layer)


def _cohere2(model: Model, layer: int) -> Tensors:
    yield from (row for row in _llama(model, layer) if row[0] != "ffn_norm.weight")


def _deepseek2(model: Model, _layer: int) -> Tensors:
    v = model.values
    width, heads, rank, query = v["embedding_length"], v["attention.head_count"], v["attention.kv_lora_rank"], v["attention.q_lora_rank"]
    rope, key, value = v["rope.dimension_count"], v["attention.key_length_mla"], v["attention.value_length_mla"]
    yield "attn_norm.weight", (width,)
    yield "attn_q_a_norm.weight", (query,)
    yield "attn_kv_a_norm.weight", (rank,)
    yield "attn_q_a.weight", (width, query)
    yield "attn_q_b.weight", (query, heads * key)
    yield "attn_kv_a_mqa.weight", (width, rank + rope)
    yield "attn_k_b.weight", (key - rope, rank, heads)
    yield "attn_v_b.weight", (rank, value, heads)
    yield "attn_output.weight", (heads * value, width)
    yield from _feed_forward(model)


def _selective(model: Model, *, norms: bool) -> Tensors:
    """A Mamba layer."""
    v = model.values
    width, inner, state, rank = v["embedding_length"], v["ssm.inner_size"], v["ssm.state_size"], v["ssm.time_step_rank"]
    yield "attn_norm.weight", (width,)
    yield "ssm_in.weight", (width, 2 * inner)
    yield "ssm_conv1d.weight", (v["ssm.conv_kernel"], inner)
    yield "ssm_conv1d.bias", (inner,)
    yield "ssm_x.weight", (inner, rank + 2 * state)
    yield "ssm_dt.weight", (rank, inner)
    yield "ssm_dt.bias", (inner,)
    yield "ssm_a", (state, inner)
    yield "ssm_d", (inner,)
    yield "ssm_out.weight", (inner, width)
    if norms:
        yield from (("ssm_dt_norm.weight", (rank,)), ("ssm_b_norm.weight", (state,)), ("ssm_c_norm.weight", (state,)))


def _grouped(model: Model) -> Tensors:
    """A Mamba 2 layer."""
    v = model.values
    width, inner, state, rank, groups = v["embedding_length"], v["ssm.inner_size"], v["ssm.state_size"], v["ssm.time_step_rank"], v["ssm.group_count"]
    convolved = inner + 2 * groups * state
    yield "attn_norm.weight", (width,)
    yield "ssm_in.weight", (width, inner + convolved + rank)
    yield "ssm_conv1d.weight", (v["ssm.conv_kernel"], convolved)
    yield "ssm_conv1d.bias", (convolved,)
    yield "ssm_dt.bias", (rank,)
    yield "ssm_a", (1, rank)
    yield "ssm_d", (1, rank)
    yield "ssm_norm.weight", (inner // groups, groups)
    yield "ssm_out.weight", (inner, width)


def _mamba(model: Model, _layer: int) -> Tensors:
    yield from _selective(model, norms=False)


def _mamba2(model: Model, _layer: int) -> Tensors:
    yield from _grouped(model)


def _jamba(model: Model, layer: int) -> Tensors:
    yield from _attention(model, layer) if model.heads(layer) else _selective(model, norms=True)
    yield from _feed_forward(model)


def _falcon_h1(model: Model, layer: int) -> Tensors:
    yield from dict([*_grouped(model), *_attention(model, layer)]).items()
    yield from _feed_forward(model, norm="ffn_norm")


def _lfm2(model: Model, layer: int) -> Tensors:
    width, kernel = model.values["embedding_length"], model.values["shortconv.l_cache"]
    if model.heads(layer):
        yield from _attention(model, layer)
        yield from _head_norms(model)
    else:
        yield "attn_norm.weight", (width,)
        yield "shortconv.conv.weight", (kernel, width)
        yield "shortconv.in_proj.weight", (width, 3 * width)
        yield "shortconv.out_proj.weight", (width, width)
    yield from _feed_forward(model)


def _nemotron_h(model: Model, layer: int) -> Tensors:
    width, forward = model.values["embedding_length"], model.values["feed_forward_length"][layer]
    if forward:
        yield "attn_norm.weight", (width,)
        yield "ffn_up.weight", (width, forward)
        yield "ffn_down.weight", (forward, width)
    else:
        yield from _attention(model, layer) if model.heads(layer) else _grouped(model)


_LAYERS = {
    "llama": _llama,
    "qwen2": _llama,
    "gemma2": _gemma2,
    "gemma3": _gemma3,
    "gemma4": _gemma4,
    "cohere2": _cohere2,
    "deepseek2": _deepseek2,
    "mamba": _mamba,
    "mamba2": _mamba2,
    "jamba": _jamba,
    "falcon-h1": _falcon_h1,
    "lfm2": _lfm2,
    "nemotron_h": _nemotron_h,
}
