"""What `vllm:cache_config_info` says: labels are made from every attribute of vLLM's CacheConfig, so that the set changes with each release.

Labels are read by name; the text `None` is unknown. What each means in which version: docs of the adapter, README.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from inspector.reading import Known, Origin, Reading, Reason, Unknown, number, positive
from inspector_vllm import causes, names
from inspector_vllm.numbers import Metrics


@dataclass(frozen=True, slots=True)
class CacheInfo:
    """One engine's cache as its row shows it. `blocks` are this engine's own, the reserved one included.

    `size_tokens` and `concurrency` (since 0.24): how many tokens, and how many requests of full length, at that length."""

    blocks: Reading[int]
    block_tokens: Reading[int]
    size_tokens: Reading[int]
    concurrency: Reading[float]
    is_v0: bool = False


def no_cache_info(cause: Unknown) -> CacheInfo:
    return CacheInfo(cause, cause, cause, cause)


def cache_info(metrics: Metrics, engine: str) -> CacheInfo:
    rows = metrics.rows[names.CACHE]
    if rows is None:
        return no_cache_info(Unknown(Reason.INVALID, f"{metrics.origin.path} has a line of {names.CACHE} that cannot be read"))
    engines = metrics.engines
    own = rows.get(engine, [])
    if not own:
        return no_cache_info(Unknown(Reason.NOT_REPORTED, f"{metrics.origin.path} has no {names.CACHE} of this engine"))
    if len(engines) > 1 and names.CACHE not in metrics.labelled:
        return no_cache_info(causes.UNEQUAL_ENGINES)
    if len(own) > 1:
        return no_cache_info(causes.SEVERAL_ROWS)
    labels = own[0].labels
    return CacheInfo(
        blocks=_own_share(_whole(labels, "num_gpu_blocks", metrics.origin), len(engines)),
        block_tokens=_whole(labels, "block_size", metrics.origin),
        size_tokens=_whole(labels, "kv_cache_size_tokens", metrics.origin),
        concurrency=_number(labels, "kv_cache_max_concurrency", metrics.origin),
        is_v0=metrics.is_v0,
    )


def _own_share(blocks: Reading[int], engines: int) -> Reading[int]:
    """The front end adds up the blocks of its engines and shows the sum on every engine's row (0.9.0 to 0.33); the other labels are one engine's."""
    if isinstance(blocks, Unknown) or engines == 1:
        return blocks
    share, rest = divmod(blocks.value, engines)
    return Known(share, blocks.origin) if rest == 0 and share > 0 else causes.UNEQUAL_ENGINES


def _whole(labels: Mapping[str, str], name: str, origin: Origin) -> Reading[int]:
    word = labels.get(name, "None")
    if word == "None":
        return Unknown(Reason.NOT_REPORTED, f"{origin.path} does not state {name}")
    if not (word.isascii() and word.isdecimal() and len(word) <= 18):
        return Unknown(Reason.INVALID, f"{name} on {origin.path} is not a whole number")
    return positive(int(word), origin, name)


def _number(labels: Mapping[str, str], name: str, origin: Origin) -> Reading[float]:
    word = labels.get(name, "None")
    if word == "None":
        return Unknown(Reason.NOT_REPORTED, f"{origin.path} does not state {name}")
    try:
        value = float(word)
    except ValueError:
        return Unknown(Reason.INVALID, f"{name} on {origin.path} is not a number")
    reading = number(value, origin, name)
    return Unknown(Reason.INVALID, f"{name} on {origin.path} is zero") if isinstance(reading, Known) and reading.value == 0 else reading
