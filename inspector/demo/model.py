"""A tiny llama model with random weights, written as a GGUF file that llama.cpp loads in milliseconds.

The text it makes is noise, but plain letters: random bytes would trip the server's own checks of its output. It never ends a text by itself, so every
generation is exactly as long as it was asked to be. Everything that the server reports about slots, context and KV cache is real.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from inspector.demo import needs_extra

LAYERS = 2
WIDTH = 64
HEADS = 4
KV_HEADS = 2
FEED_FORWARD = 128
HEAD_SIZE = WIDTH // HEADS

KV_BYTES_PER_TOKEN = 2 * LAYERS * KV_HEADS * HEAD_SIZE * 2
"""Keys and values of one token in all layers, in the 16-bit floats of llama.cpp's default cache."""

SPECIAL = (b"<unk>", b"<s>", b"</s>")
BYTES = tuple(f"<0x{byte:02X}>".encode() for byte in range(256))
LETTERS = tuple(bytes([code]) for code in range(ord("a"), ord("z") + 1))
WORD_STARTS = tuple("▁".encode() + letter for letter in LETTERS)
VOCABULARY = SPECIAL + BYTES + WORD_STARTS + LETTERS
FIRST_LETTER = len(SPECIAL) + len(BYTES)

STEERING = 0
"""One coordinate is the same for every token; the output layer uses it to prefer letters to all other tokens."""


def write_tiny_model(path: Path, context_length: int = 8192) -> Path:
    """Write the model (about 0.5 MB) to `path` and return it. `context_length` is the trained context in tokens. The same arguments give the same file.

    Raises `DemoError` where `gguf` or `numpy` are not installed."""
    with needs_extra():
        import gguf  # noqa: PLC0415 (an extra: the inspector runs without it)
        import numpy  # noqa: PLC0415, F401
    # An unfinished file never stands under the name that a server may be waiting for.
    unfinished = path.with_name(path.name + ".part")
    writer = gguf.GGUFWriter(str(unfinished), "llama")
    _write_shape(writer, context_length)
    _write_vocabulary(writer, gguf.TokenType)
    for name, tensor in _tensors().items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    unfinished.replace(path)
    return path


def _write_shape(writer: Any, context_length: int) -> None:
    writer.add_name("inspector-demo")
    writer.add_context_length(context_length)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(HEAD_SIZE)
    writer.add_vocab_size(len(VOCABULARY))
    writer.add_file_type(0)


def _write_vocabulary(writer: Any, kinds: Any) -> None:
    letters = len(WORD_STARTS) + len(LETTERS)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(list(VOCABULARY))
    writer.add_token_scores([0.0] * FIRST_LETTER + [-float(rank) for rank in range(letters)])
    writer.add_token_types([kinds.UNKNOWN, kinds.CONTROL, kinds.CONTROL, *[kinds.BYTE] * len(BYTES), *[kinds.NORMAL] * letters])
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template("{% for message in messages %}{{ message['content'] }}{% endfor %}")


def _tensors() -> dict[str, Any]:
    """All weights by their GGUF names, 32-bit floats; rows are outputs."""
    import numpy as np  # noqa: PLC0415

    random = np.random.default_rng(0)

    def weights(rows: int, columns: int) -> Any:
        return (random.standard_normal((rows, columns)) * 0.05).astype(np.float32)

    norm = np.ones(WIDTH, np.float32)
    embedding, output = weights(len(VOCABULARY), WIDTH), weights(len(VOCABULARY), WIDTH)
    embedding[:, STEERING] = 1.0
    output[:, STEERING] = -2.0
    output[FIRST_LETTER:, STEERING] = 2.0
    tensors = {"token_embd.weight": embedding, "output_norm.weight": norm, "output.weight": output}
    for layer in range(LAYERS):
        block = f"blk.{layer}."
        tensors |= {
            block + "attn_norm.weight": norm,
            block + "attn_q.weight": weights(WIDTH, WIDTH),
            block + "attn_k.weight": weights(KV_HEADS * HEAD_SIZE, WIDTH),
            block + "attn_v.weight": weights(KV_HEADS * HEAD_SIZE, WIDTH),
            block + "attn_output.weight": weights(WIDTH, WIDTH),
            block + "ffn_norm.weight": norm,
            block + "ffn_gate.weight": weights(FEED_FORWARD, WIDTH),
            block + "ffn_up.weight": weights(FEED_FORWARD, WIDTH),
            block + "ffn_down.weight": weights(WIDTH, FEED_FORWARD),
        }
    return tensors
