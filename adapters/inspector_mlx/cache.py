"""KV cache of a session under MLX LM: cells and bytes of each cache class, as updates arrive. Pure.

A session's cache is one object for each layer, which grows with its tokens; nothing is set aside and nothing limits it. Each rule was held against
`cache.nbytes` of the engine's own objects (`bench/kv_accuracy`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

STEP = 256
"""Cells by which a cache grows."""
ENGINE = "MLX LM"
STATE_BYTES = 4
"""Recurrent states stay in 32 bits whatever the model's type."""

ELEMENT_BYTES: Mapping[str, int] = {"bfloat16": 2, "float16": 2, "float32": 4}


@dataclass(frozen=True, slots=True)
class Layers:
    """Caches of a model by class. `row`: elements of a token in one attention layer, keys and values of all heads. `tail`, `state`: elements that one state
    layer keeps, in the model's type and in 32 bits. `width`: elements of a head; 0 where the row is not one of equal heads."""

    full: int
    rotating: int
    window: int
    states: int
    row: int
    tail: int = 0
    state: int = 0
    width: int = 0


@dataclass(frozen=True, slots=True)
class Quantized:
    """Full caches in fewer bits: each group of elements has a scale and a bias in the model's type."""

    bits: int
    group: int


def session_bytes(layers: Layers, element: int, updates: Sequence[int], quantized: Quantized | None = None) -> int:
    """Bytes after updates of so many tokens each, of one session that runs alone."""
    row = row_bytes(layers.row, element, quantized)
    full = layers.full * full_cells(updates) * row
    rotating = layers.rotating * rotating_cells(updates, layers.window) * layers.row * element
    return full + rotating + state_bytes(layers, element)


def row_bytes(row: int, element: int, quantized: Quantized | None = None) -> int:
    """Of one token in one layer."""
    if quantized is None:
        return row * element
    return row * quantized.bits // 8 + 2 * (row // quantized.group) * element


def state_bytes(layers: Layers, element: int) -> int:
    """Of all state layers, whatever the session's length."""
    return layers.states * (layers.tail * element + layers.state * STATE_BYTES)


def full_cells(updates: Sequence[int]) -> int:
    """Cells of a cache that keeps everything: an update that does not fit cuts unused cells off, unless the tokens end on a step, and adds whole steps."""
    cells = tokens = 0
    for new in updates:
        if tokens + new > cells:
            kept = tokens if tokens % STEP else cells
            cells = kept + -(-new // STEP) * STEP
        tokens += new
    return cells


def rotating_cells(updates: Sequence[int], window: int) -> int:
    """Cells of a cache that keeps a window: a chunk of tokens is stored whole after the window's rest, single tokens grow it by steps up to the window."""
    cells = tokens = place = 0
    for new in updates:
        if new > 1:
            kept = cells if place < tokens else place  # Cells that no token has been in are cut off.
            cells = place = min(kept, window - 1) + new
        else:
            if tokens >= cells < window:
                cells += min(STEP, window - tokens)
                place = tokens
            if cells > window:
                cells = place = window
            place = 1 if place == window else place + 1
        tokens += new
    return cells


def most_full_cells(tokens: int) -> int:
    """Cells of a session of so many tokens, in whatever chunks they came; the second step is for rows of a batch, which grow all at once."""
    return -(-tokens // STEP) * STEP + STEP


def most_rotating_cells(tokens: int, window: int, chunk: int) -> int:
    """Likewise of a window: a chunk of prefill is kept whole beside it."""
    return min(most_full_cells(tokens), window - 1 + chunk)
