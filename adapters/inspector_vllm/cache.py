"""KV cache of a model under vLLM's V1 engine: layers, block groups, bytes of a block, blocks of a session. Pure.

Layers that keep all tokens, layers that keep a window and layers that keep one state are cut into groups of equally many layers; every group takes blocks of
its own from one pool, so a block is as big as one group's page. Each rule was held against the engine's own configuration object (`bench/kv_accuracy`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from inspector.huggingface import UnfitError, not_proved
from inspector.reading import Reason, Unknown

NULL_BLOCKS = 1
"""Block 0 never serves a request."""
ENGINE = "vLLM"

ELEMENT_BYTES: Mapping[str, int] = {"bfloat16": 2, "float16": 2, "float32": 4, "fp8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1}
MODEL_BYTES: Mapping[str, int] = {"bfloat16": 2, "float16": 2, "float32": 2}
"""By the weights' type: with `--dtype auto` the engine runs 32-bit models in 16 bits."""


@dataclass(frozen=True, slots=True)
class Layers:
    """The text model's layers by what they keep. `row` counts elements of a token in one attention layer, of all `heads` together; `heads` 0: one latent
    row, of which every tensor-parallel rank keeps a copy. `state` counts elements of one state layer."""

    full: int
    windowed: int
    window: int
    states: int
    row: int
    heads: int
    state: int = 0


@dataclass(frozen=True, slots=True)
class Group:
    """Layers that share a table of blocks. `most`: blocks that a request holds at most; None where they grow with its tokens. `fixed`: it holds them all from
    its first token on, as a state does."""

    layers: int
    most: int | None = None
    fixed: bool = False


@dataclass(frozen=True, slots=True)
class Blocks:
    """Blocks that a session takes of all groups together."""

    block_tokens: int
    groups: tuple[Group, ...]

    def __call__(self, tokens: int) -> int:
        """At the end of a session that stored so many tokens."""
        grown = ceil(tokens, self.block_tokens)
        return sum(_held(group, grown) for group in self.groups)

    def counted(self, context: int) -> int:
        """What the engine counts for a request of full length: for a short context, a window's spare block comes on top of what it can ever hold."""
        return sum(ceil(context, self.block_tokens) if group.most is None else group.most for group in self.groups)


@dataclass(frozen=True, slots=True)
class Cache:
    """`block_bytes` on one tensor-parallel rank, for all layers of a group; `page_bytes` for one layer."""

    blocks_of: Blocks
    block_bytes: int
    page_bytes: int

    @property
    def is_uniform(self) -> bool:
        """Every block holds tokens of one request, and a request's blocks grow with its tokens."""
        return [group.most for group in self.blocks_of.groups] == [None]


@dataclass(frozen=True, slots=True)
class Running:
    """How the engine runs. `in_flight`: tokens of the batches that may be under way at once; None where that is not known, which matters for windows only.
    `state_blocks`: 2 with prefix caching, else 1."""

    block_tokens: int
    cache_bytes: int
    model_bytes: int
    ranks: int
    state_blocks: int
    in_flight: int | None
    context: int | None


def cache(layers: Layers, running: Running) -> Cache:
    """Groups and block of a model; raises `UnfitError` for what was not proved."""
    row = _row_of_a_rank(layers, running.ranks)
    block_tokens = running.block_tokens
    if layers.states:
        if running.ranks > 1:
            raise not_proved(ENGINE, "state layers under tensor parallelism")
        # The engine lengthens its blocks until a page of tokens is as big as a state.
        block_tokens *= ceil(layers.state * running.model_bytes, row * running.cache_bytes * block_tokens)
    page = row * running.cache_bytes * block_tokens
    groups = _groups(layers, running, block_tokens)
    return Cache(Blocks(block_tokens, groups), page * max(group.layers for group in groups), page)


def ceil(number: int, size: int) -> int:
    return -(-number // size)


def _held(group: Group, grown: int) -> int:
    if group.most is None:
        return grown
    return group.most if group.fixed else min(grown, group.most)


def _row_of_a_rank(layers: Layers, ranks: int) -> int:
    """Heads go round the ranks, and are copied where there are more ranks than heads."""
    heads = layers.heads
    if not heads:
        return layers.row
    if heads % ranks and ranks % heads:
        raise UnfitError(Unknown(Reason.INVALID, f"{heads} KV heads cannot be spread over {ranks} ranks"))
    return layers.row // heads * max(1, heads // ranks)


def _groups(layers: Layers, running: Running, block_tokens: int) -> tuple[Group, ...]:
    kinds = [
        (layers.full, None, False),
        (layers.windowed, _most_of_a_window(layers.window, running, block_tokens) if layers.windowed else None, False),
        (layers.states, running.state_blocks, True),
    ]
    kinds = [kind for kind in kinds if kind[0]]
    least, most = min(kind[0] for kind in kinds), max(kind[0] for kind in kinds)
    size = most if most < 1.5 * least else least
    found: list[Group] = []
    for number, held, fixed in kinds:
        parts = ceil(number, size)
        found += [Group(ceil(number - part, parts), held, fixed) for part in range(parts)]
    return tuple(found)


def _most_of_a_window(window: int, running: Running, block_tokens: int) -> int:
    """The window, what is under way, and one block because a window need not begin where a block does."""
    if running.in_flight is None:
        detail = "a model with sliding windows needs max_num_batched_tokens: blocks outside a window stay until the batches under way are done"
        raise UnfitError(Unknown(Reason.NO_SOURCE, detail))
    tokens = window - 1 + running.in_flight
    return ceil(tokens if running.context is None else min(tokens, running.context), block_tokens) + 1
