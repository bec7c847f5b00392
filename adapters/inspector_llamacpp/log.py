"""Lines of llama-server's log, of every build since 2024, and what they say of the running process.

At the default verbosity builds since b9538 print the slots line and what capped it; the KV cache's bytes need `-lv 4`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from inspector.contract import LogLine, LogPattern, LogView
from inspector.reading import Known, Reading, Reason, Unknown, positive
from inspector_llamacpp import causes

_ROUTED = r"^(?!(?:.*\s)?\[\d+\]\s)"
"""A router repeats its models' logs behind their port: a model that starts is no new server."""

_CONTEXT = r"(?:llama_context|llama_init_from_model|llama_new_context_with_model): "


def _pattern(name: str, needle: str, regex: str, *, begins: bool = False, key: str = "") -> LogPattern:
    return LogPattern(name, needle, re.compile(regex), begins=begins, key=key)


PATTERNS = (
    _pattern("begin_server", "initializing ...", _ROUTED + r".*(?:llama_server|init): initializing \.\.\.", begins=True),
    _pattern("begin_verbosity", "common_params_print_info: verbosity", _ROUTED + r".*common_params_print_info: verbosity", begins=True),
    _pattern("begin_build_info", "build_info: b", _ROUTED + r".*\bbuild_info: b\d+-", begins=True),
    _pattern("begin_build", "build: ", _ROUTED + r"(?:.*\s)?build: \d+ \([0-9a-z]+\) with ", begins=True),
    _pattern("begin_2024", "build info", r"\bmain\] build info\b", begins=True),
    _pattern(
        "slots",
        "n_slots",
        r"initializing\b.*\bn_slots\s*=\s*(?P<slots>\d+)(?:, n_ctx_slot = (?P<context>\d+))?(?:, kv_unified = '(?P<unified>true|false)')?",
    ),
    _pattern("new_slot", "new slot", r"new slot\b.*\bn_ctx(?:_slot)?\s*=\s*(?P<context>\d+)"),
    _pattern("sizing", "sizing KV pool", r"sizing KV pool to .*\d+ \* \d+ = (?P<tokens>\d+)"),
    _pattern("slot_cap", "capping per-slot context", r"capping per-slot context \((?P<tokens>\d+)\)"),
    _pattern("train_cap", "exceeds the training context", r"the slot context \((?P<tokens>\d+)\) exceeds the training context"),
    _pattern("context", ": n_ctx ", _CONTEXT + r"n_ctx\s+= (?P<tokens>\d+)"),
    _pattern("unified", "kv_unified ", _CONTEXT + r"kv_unified\s+= (?P<unified>true|false)"),
    _pattern(
        "kv_size",
        " seqs), K (",
        r"size =\s*(?P<mib>[\d.]+) MiB \(\s*(?P<shape>(?P<cells>\d+) cells,\s*\d+ layers),\s*(?P<sequences>\d+)/\s*(?P<streams>\d+) seqs\)",
        key="shape",
    ),
    _pattern("kv_self", "KV self size", r"KV self size\s*=\s*(?P<mib>[\d.]+) MiB"),
    _pattern("sliding", "SWA KV cache, size", r"creating\s+SWA KV cache, size = (?P<cells>\d+) cells"),
    _pattern("draft", "draft", r"loading draft model|creating MTP draft context"),
    _pattern("exhausted", "error: Context size has been exceeded", r"send_error: task id = \d+, error: Context size has been exceeded"),
    _pattern("overrun", "decode: Context size has been exceeded", r"decode: Context size has been exceeded"),
)

_NOT_THERE = Unknown(Reason.NO_SOURCE, "the log does not state it")


def group(line: LogLine | None, name: str) -> str | None:
    """A group of a line, None where the line or the group is not there."""
    return None if line is None else line.groups.get(name) or None


def whole(log: LogView, line: LogLine | None, name: str) -> Reading[int]:
    """A whole number above zero out of a line."""
    word = group(line, name)
    if line is None or word is None:
        return _NOT_THERE
    return positive(int(word), log.origin(line), f"{name} in the log") if len(word) <= 18 else Unknown(Reason.INVALID, f"{name} in the log is out of range")


def boolean(log: LogView, line: LogLine | None, name: str) -> Reading[bool]:
    word = group(line, name)
    return _NOT_THERE if line is None or word is None else Known(word == "true", log.origin(line))


@dataclass(frozen=True, slots=True)
class Block:
    """What the running process wrote when it loaded its model. `pool` is the size of a shared KV cache, where a line states it."""

    slots: Reading[int]
    context: Reading[int]
    unified: Reading[bool]
    pool: Reading[int]


def block(log: LogView) -> Block:
    line = log.newest("slots")
    slots = whole(log, line, "slots")
    context = whole(log, line, "context")
    if isinstance(context, Unknown):
        context = whole(log, log.newest("new_slot"), "context")
    unified = boolean(log, line, "unified")
    if isinstance(unified, Unknown):
        unified = boolean(log, log.newest("unified"), "unified")
    return Block(slots, context, unified, _pool(log, context, unified))


def _pool(log: LogView, context: Reading[int], unified: Reading[bool]) -> Reading[int]:
    """What a shared cache was sized to. A slot's context is the whole pool unless a line of the same block says that it was capped."""
    for name in ("slot_cap", "sizing", "train_cap"):  # after the first two, the last one's figure is capped already
        stated = whole(log, log.newest(name), "tokens")
        if isinstance(stated, Known):
            return stated
    whole_context = whole(log, log.newest("context"), "tokens")
    if isinstance(whole_context, Known) and isinstance(context, Known) and whole_context.value == context.value:
        return whole_context
    return context if isinstance(unified, Known) and unified.value else _NOT_THERE


def exhaustions(log: LogView) -> Reading[int]:
    """Requests that the server killed because its KV cache was full: one error line each."""
    killed = log.total("exhausted")
    overruns = log.total("overrun").value
    if killed.value == 0 and overruns > 0:
        return Unknown(Reason.AMBIGUOUS, "the log shows that the KV cache ran out, but not how many requests that killed", bounds=(overruns, None))
    return killed


def kv_bytes(log: LogView) -> tuple[Reading[int], Reading[float]]:
    """The bytes of the whole KV cache, and of one token where all of it is of one kind. The log rounds to 0.01 MiB."""
    cells = whole(log, log.newest("context"), "tokens")
    if log.counts["draft"]:
        unknown = Unknown(Reason.AMBIGUOUS, "the log does not part the model's KV cache from its draft model's")
        return unknown, unknown
    if isinstance(cells, Unknown):
        return causes.NO_BYTES, causes.NO_BYTES
    old = log.newest("kv_self")
    sizes = [old] if old is not None else _size_lines(log, cells.value)
    if not sizes:
        return causes.NO_BYTES, causes.NO_BYTES
    sums = [_mebibytes(line) for line in sizes]
    if any(size is None for size in sums):
        unknown = Unknown(Reason.INVALID, "a KV cache size in the log is out of range")
        return unknown, unknown
    origin = log.origin(sizes[0])
    total = round(sum(size for size in sums if size is not None))
    if len(sizes) > 1:
        return Known(total, origin), Unknown(Reason.AMBIGUOUS, "layers of two kinds hold different bytes for a token")
    return Known(total, origin), Known(total / cells.value, origin)


def _size_lines(log: LogView, cells: int) -> list[LogLine]:
    """The size lines of the cache that serves: for all cells, and for sliding windows. Trial runs that fit the context to the memory wrote others."""
    rows = list(log.rows("kv_size").values())
    full = [row for row in rows if _product(row) == cells]
    sliding = group(log.newest("sliding"), "cells")
    if sliding is None:
        return full if len(full) == 1 else []
    windows = [row for row in rows if group(row, "cells") == sliding]
    both = full + [row for row in windows if row not in full]
    return both if len(both) == 2 else []


def _product(row: LogLine) -> int | None:
    cells, streams = group(row, "cells"), group(row, "streams")
    return None if cells is None or streams is None or len(cells) > 18 or len(streams) > 9 else int(cells) * int(streams)


def _mebibytes(line: LogLine) -> float | None:
    """Bytes of a figure in MiB."""
    word = group(line, "mib")
    if word is None or len(word) > 18 or word.count(".") > 1 or word == ".":
        return None
    return float(word) * 2**20
