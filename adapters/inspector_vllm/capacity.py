"""From blocks to tokens: how many the KV cache holds, and how many are in use. Pure.

Blocks become tokens only where every block holds `block_size` tokens of one request: in V0 always, in V1 with one full-attention group. There, one request
of the full length L takes ceil(L / block_size) blocks; with sliding windows or state layers it takes another number. V1 keeps one block to itself (the null
block), which neither the labels nor the log take off.
"""

from __future__ import annotations

from dataclasses import dataclass

from inspector.layout import Layout, Paged, guaranteed_tokens
from inspector.reading import Known, Reading, Reason, Unknown, derive, first_known, from_unknown
from inspector_vllm import causes
from inspector_vllm.cache_info import CacheInfo
from inspector_vllm.log import KvLog

SEVERAL = 2
"""Groups, where how many there are is not shown."""


@dataclass(frozen=True, slots=True)
class Longest:
    """The blocks that one request of full length takes of all groups together: a shorter one takes no more."""

    blocks: int
    tokens: int

    def __call__(self, tokens: int) -> int:
        return self.blocks * -(-tokens // self.tokens)


def _at_least(tokens: int) -> int:
    """What a request surely takes, whatever its windows and states are."""
    return min(1, tokens)


@dataclass(frozen=True, slots=True)
class Cache:
    """One engine's KV cache after all sources were heard. `tokens` is what requests can use; `is_uniform` None: not known; `longest`: where it is told."""

    blocks: Reading[int]
    block_tokens: Reading[int]
    reserved: int
    is_uniform: bool | None
    tokens: Reading[int]
    longest: Longest | None = None

    def layouts(self, slots: Reading[int], context: Reading[int]) -> tuple[Layout, ...]:
        """Where it is not known whether there are several groups, both alternatives; where it is not known what a session takes, the most and the least."""
        if isinstance(self.blocks, Unknown) or isinstance(self.block_tokens, Unknown) or self.blocks.value <= self.reserved:
            return ()
        paged = (self.blocks.value, self.block_tokens.value, self.reserved, _value(slots), _value(context))
        if self.is_uniform is False and self.longest is not None:
            return tuple(Paged(*paged, SEVERAL, blocks_of) for blocks_of in (self.longest, _at_least))
        groups = {True: (1,), False: (SEVERAL,), None: (1, SEVERAL)}[self.is_uniform]
        return tuple(Paged(*paged, number) for number in groups)


def cache(info: CacheInfo, log: KvLog, block_setting: Reading[int], stated: Reading[int]) -> Cache:
    """`block_setting`: the block size by a launch setting, for a server that shows none. `stated`: the operator's capacity."""
    block_tokens = first_known(info.block_tokens, block_setting, _block_by_log(log))
    blocks = first_known(info.blocks, log.blocks, _blocks_by_log(log, info))
    reserved = 0 if info.is_v0 or log.is_v0 else 1
    if isinstance(blocks, Unknown) or isinstance(block_tokens, Unknown):
        tokens = _by_log_alone(info, log, block_tokens)
        return Cache(blocks, block_tokens, reserved, None, first_known(tokens, stated, _why_unsized(info)))
    uniform, bounds = _shape(info, log, blocks.value, block_tokens.value, reserved)
    if uniform:
        tokens = derive(lambda n, size: (n - reserved) * size, blocks, block_tokens)
        if isinstance(tokens, Known) and tokens.value <= 0:
            tokens = Unknown(Reason.INVALID, "the server shows no block that a request could use")
        return Cache(blocks, block_tokens, reserved, True, tokens)
    unsure = Unknown(Reason.AMBIGUOUS, causes.GROUPS_UNKNOWN if uniform is None else causes.HYBRID, bounds=bounds)
    return Cache(blocks, block_tokens, reserved, uniform, first_known(stated, unsure) if isinstance(stated, Known) else unsure, _longest(info, blocks.value))


def used_tokens(known: Cache, usage: Reading[float], *, rounded: bool) -> Reading[int]:
    """Tokens of the blocks that running requests hold; the last block of each is mostly not full.

    V1 divides by the usable blocks since 0.10.2 and by all of them before, then counting its own block as used. Only one of the two gives a whole number,
    except where both give the same."""
    if isinstance(usage, Unknown):
        return usage
    if rounded:
        return causes.ROUNDED_USE
    if known.is_uniform is not True or isinstance(known.blocks, Unknown) or isinstance(known.block_tokens, Unknown):
        return from_unknown(known.tokens) if isinstance(known.tokens, Unknown) else causes.NO_BLOCK_SIZE
    held = _held_blocks(usage.value, known.blocks.value, known.reserved)
    return causes.UNEVEN_USE if held is None else derive(lambda _, __, size: held * size, usage, known.blocks, known.block_tokens)


def guaranteed(known: Cache, slots: Reading[int], context: Reading[int]) -> Reading[int]:
    """What each of `slots` requests surely has when all run."""
    if isinstance(slots, Unknown):
        return from_unknown(slots)
    if isinstance(context, Unknown):
        return from_unknown(context)
    layouts = known.layouts(slots, context)
    each = guaranteed_tokens(layouts[0]) if len(layouts) == 1 else None
    if each is None:
        return from_unknown(known.tokens) if isinstance(known.tokens, Unknown) else causes.NO_BLOCK_SIZE
    return derive(lambda *_: each, slots, context, known.blocks) if each > 0 else causes.CROWDED


def _why_unsized(info: CacheInfo) -> Unknown:
    """What is wrong with the server's own figures; where they are merely not there, what would help."""
    for reading in (info.blocks, info.block_tokens):
        if isinstance(reading, Unknown) and reading.reason is not Reason.NOT_REPORTED:
            return reading
    return causes.NO_BLOCKS


def _value(reading: Reading[int]) -> int | None:
    return reading.value if isinstance(reading, Known) else None


def _held_blocks(usage: float, blocks: int, reserved: int) -> int | None:
    tolerance = 0.25 / blocks  # a wrong divisor misses a whole number by at least 1 / blocks
    for divisor, own in dict.fromkeys(((blocks - reserved, 0), (blocks, reserved))):
        held = round(usage * divisor)
        if abs(usage * divisor - held) < tolerance and held >= own:
            return held - own
    return None


def _shape(info: CacheInfo, log: KvLog, blocks: int, size: int, reserved: int) -> tuple[bool | None, tuple[float | None, float | None]]:
    """Whether all blocks hold tokens alike (None: not known), and between which figures the capacity lies if they do not."""
    most = (blocks - reserved) * size
    if info.is_v0 or log.is_v0:
        return True, (most, most)
    if isinstance(info.size_tokens, Known) and isinstance(info.concurrency, Known):
        tokens, concurrency = info.size_tokens.value, info.concurrency.value
        return _is_full_attention(blocks, size, concurrency, tokens), _bounds(blocks, reserved, most, tokens)
    if isinstance(log.size_tokens, Unknown):
        return None, (None, most)
    tokens = log.size_tokens.value
    length = _value(log.context)
    # Until 0.20 the log's figure is blocks times block size, divided by the groups; since 0.21 it is that of requests of full length.
    alike = tokens == blocks * size or (length is not None and _by_length(blocks, size, length, tokens))
    return alike, _bounds(blocks, reserved, most, tokens)


def _longest(info: CacheInfo, blocks: int) -> Longest | None:
    """Since 0.24: the labels divide all blocks, and their size in requests of full length, by those of one request."""
    if isinstance(info.size_tokens, Unknown) or isinstance(info.concurrency, Unknown):
        return None
    needed, length = blocks / info.concurrency.value, int(info.size_tokens.value / info.concurrency.value + 1e-6)
    if round(needed) < 1 or length < 1 or abs(needed - round(needed)) > 1e-6 * needed:
        return None
    return Longest(round(needed), length)


def _is_full_attention(blocks: int, size: int, concurrency: float, tokens: int) -> bool:
    """`tokens` is floor(concurrency x L): at most one whole L fits."""
    lengths = range(max(1, int(tokens / concurrency)), int((tokens + 1) / concurrency) + 2)
    needed = blocks / concurrency
    return any(int(concurrency * length + 1e-6) == tokens and abs(needed - -(-length // size)) < 1e-6 * needed for length in lengths[:64])


def _by_length(blocks: int, size: int, length: int, tokens: int) -> bool:
    needed = -(-length // size)
    return tokens == int(blocks / needed * length + 1e-6)


def _bounds(blocks: int, reserved: int, most: int, tokens: int) -> tuple[float, float]:
    """In requests of full length, and as if every block held its tokens."""
    long = tokens * (blocks - reserved) // blocks
    return min(long, most), max(long, most)


def _block_by_log(log: KvLog) -> Reading[int]:
    """Old logs print blocks, and how many requests of full length fit, to two decimals: where only one block size gives that, it is this."""
    if isinstance(log.blocks, Unknown) or isinstance(log.context, Unknown) or isinstance(log.concurrency, Unknown):
        return causes.NO_BLOCK_SIZE
    blocks, length, told = log.blocks.value, log.context.value, log.concurrency.value
    about = told * length / blocks
    sizes = [size for size in range(max(1, int(about) - 2), int(about) + 3) if abs(blocks * size / length - told) < 0.00501]
    return derive(lambda *_: sizes[0], log.blocks, log.context, log.concurrency) if len(sizes) == 1 else causes.NO_BLOCK_SIZE


def _blocks_by_log(log: KvLog, info: CacheInfo) -> Reading[int]:
    """0.8 says `None` for its blocks on /metrics; its log has blocks times block size. Versions that state a size mean something else by it."""
    if isinstance(info.size_tokens, Known):
        return causes.NO_BLOCKS
    blocks: Reading[tuple[int, int]] = derive(divmod, log.size_tokens, info.block_tokens)
    return derive(lambda both: both[0], blocks) if isinstance(blocks, Known) and blocks.value[1] == 0 else causes.NO_BLOCKS


def _by_log_alone(info: CacheInfo, log: KvLog, block: Reading[int]) -> Reading[int]:
    """The log's figure where nothing tells the blocks: without the null block if its size is known, else as it is printed. A page that has lost its row
    must not make the capacity grow by a block."""
    if isinstance(log.size_tokens, Unknown):
        return log.size_tokens
    if isinstance(block, Known) and log.size_tokens.value > block.value:
        return derive(lambda tokens, size: tokens - size, log.size_tokens, block)
    if isinstance(info.blocks, Unknown) and info.blocks.reason in (Reason.NOT_REPORTED, Reason.INVALID, Reason.AMBIGUOUS):
        return Unknown(info.blocks.reason, info.blocks.detail, bounds=(None, log.size_tokens.value))
    return log.size_tokens
