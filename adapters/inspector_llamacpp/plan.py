"""What a llama.cpp server would set aside for its KV cache, and the layout that it would have. Pure.

The cache is made whole at the start: every stream has cells for its context, padded to 256, and each layer has keys and values for every cell. A layer with
a sliding window has cells for the window and one batch only. The arithmetic is that of the server's own log lines, to the byte.
"""

from __future__ import annotations

from dataclasses import dataclass

from inspector.contract import CacheShape, ModelFile, PlanSettings
from inspector.layout import Layout, Shared, Split
from inspector.reading import Reason, Unknown
from inspector_llamacpp.cache import Geometry, Layer, geometry, trained_tokens
from inspector_llamacpp.cache_table import TYPES
from inspector_llamacpp.evidence import padded

AUTO_SLOTS = 4
BATCH, UBATCH = 2048, 512
MOST_SLOTS = 256
LARGEST_CONTEXT = 2**31 - 256


@dataclass(frozen=True, slots=True)
class Cells:
    """How a server divides its cache: streams with cells of their own, and the cells of each for layers that keep all. `slots` sequences have states."""

    slots: int
    unified: bool
    streams: int
    cells: int
    ubatch: int
    window_full: bool

    def of_window(self, tokens: int, sequences: int) -> int:
        """Cells of a stream in layers with a window that so many sequences share."""
        return self.cells if self.window_full else padded(min(self.cells, tokens * sequences + self.ubatch))


def cache_shape(model: ModelFile, settings: PlanSettings) -> CacheShape | Unknown:
    """Bytes of one session. Its window cells are those that a slot of its own would have: the window and one batch, padded."""
    known = _known(model, settings)
    if isinstance(known, Unknown):
        return known
    form, cells, (full, window) = known
    return CacheShape(full, window, cells.of_window(form.window_tokens, 1) if window else 0, form.state_bytes)


def cache_bytes(model: ModelFile, settings: PlanSettings) -> int | Unknown:
    """The sum of the log's KV and RS buffers."""
    known = _known(model, settings)
    if isinstance(known, Unknown):
        return known
    form, cells, (full, window) = known
    window_cells = cells.of_window(form.window_tokens, cells.slots if cells.unified else 1)
    return cells.streams * (full * cells.cells + window * window_cells) + cells.slots * form.state_bytes


def plan_layout(model: ModelFile, settings: PlanSettings) -> Layout | Unknown:
    """Needs no more of the model than the context that it was trained on: a request is cut there whatever the cells."""
    trained = trained_tokens(model)
    if isinstance(trained, Unknown):
        return trained
    cells = _cells(settings, trained)
    if isinstance(cells, Unknown):
        return cells
    most = min(cells.cells, trained)
    return Shared(cells.slots, cells.cells, most) if cells.unified else Split(cells.slots, most)


def _known(model: ModelFile, settings: PlanSettings) -> tuple[Geometry, Cells, tuple[int, int]] | Unknown:
    form = geometry(model)
    if isinstance(form, Unknown):
        return form
    cells = _cells(settings, form.trained_tokens)
    if isinstance(cells, Unknown):
        return cells
    rows = _token_bytes(form, settings)
    return rows if isinstance(rows, Unknown) else (form, cells, rows)


def _cells(settings: PlanSettings, trained: int) -> Cells | Unknown:
    """Without a number of slots the server makes four over one cache, even where it is told to split it; with a number, each slot has cells of its own
    unless they are to share."""
    slots = AUTO_SLOTS if settings.slots is None else settings.slots
    context = trained if not settings.context_tokens else settings.context_tokens
    if not 1 <= slots <= MOST_SLOTS:
        return Unknown(Reason.INVALID, f"llama.cpp serves 1 to {MOST_SLOTS} slots")
    if not 1 <= context <= LARGEST_CONTEXT:
        return Unknown(Reason.INVALID, "the context is out of range")
    unified = settings.slots is None or bool(settings.unified)
    total = padded(context)
    cells = total if unified else padded(total // slots)
    if cells == 0:
        return Unknown(Reason.INVALID, "the context leaves no token for each slot")
    more = settings.more
    ubatch = min(more.get("ubatch_size", UBATCH), more.get("batch_size", BATCH))
    if ubatch < 1:
        return Unknown(Reason.INVALID, "a batch has at least one token")
    return Cells(slots, unified, 1 if unified else slots, cells, ubatch, bool(more.get("swa_full")))


def _token_bytes(form: Geometry, settings: PlanSettings) -> tuple[int, int] | Unknown:
    """Bytes of one token over all layers that keep all, and over those with a window."""
    key_type, value_type = settings.cache_type_k or "f16", settings.cache_type_v or "f16"
    for name in (key_type, value_type):
        if name not in TYPES:
            return Unknown(Reason.INVALID, "the cache type is none of " + ", ".join(TYPES))
    if form.latent and key_type != value_type:
        return Unknown(Reason.INVALID, "llama.cpp refuses a model with latent attention whose key and value cache types differ")
    if not all(_divides(layer, key_type, value_type) for layer in form.layers):
        return Unknown(Reason.INVALID, "llama.cpp refuses a cache type whose blocks do not divide the size of a head")
    sums = {False: 0, True: 0}
    widest = max([0, *(layer.values for layer in form.layers)])
    padded_values = settings.more.get("flash_attn") == 0
    for layer in form.layers:
        values = widest if padded_values and not form.latent else layer.values
        sums[layer.window] += _row(layer.keys, key_type) + _row(values, value_type)
    return sums[False], sums[True]


def _divides(layer: Layer, key_type: str, value_type: str) -> bool:
    return layer.key_head % TYPES[key_type][0] == 0 and layer.value_head % TYPES[value_type][0] == 0


def _row(elements: int, cache_type: str) -> int:
    block, size = TYPES[cache_type]
    return elements // block * size
