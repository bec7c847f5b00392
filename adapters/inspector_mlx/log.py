"""Lines of mlx_lm.server's log, and what they say of the running process.

A line about the retained KV cache is written when a request starts, before it changes the cache. Nothing marks a request's end, so requests at work cannot be
counted from the log.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal

from inspector.contract import LogLine, LogPattern, LogView
from inspector.reading import Known, Reading, Reason, Unknown
from inspector_mlx import causes
from inspector_mlx.version import Release

FRESH = 60.0
"""Seconds for which a line tells the present."""

ROUNDING = 5_000_000
"""The log rounds to 0.01 GB: a figure may be off by so many bytes."""

_STAMP = r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} - "
_SIZE = r"(?P<gb>\d{1,9}\.\d{1,9}) GB"


def _pattern(name: str, needle: str, regex: str, *, begins: bool = False) -> LogPattern:
    return LogPattern(name, needle, re.compile(regex), begins=begins)


PATTERNS = (
    _pattern("begin", "Starting httpd at ", _STAMP + r"INFO - Starting httpd at ", begins=True),
    _pattern("prompt_cache", "Prompt Cache: ", _STAMP + rf"INFO - Prompt Cache: (?P<sequences>\d{{1,9}}) sequences, {_SIZE}\s*$"),
    _pattern("kv_caches", "KV Caches: ", _STAMP + rf"INFO - KV Caches: (?P<sequences>\d{{1,9}}) seq, {_SIZE}, latest user cache "),
    _pattern("died", "generation thread died: ", _STAMP + r"ERROR - mlx_lm\.server generation thread died: "),
    _pattern("crashed", "Exception in thread ", r"^Exception in thread Thread-\d+ \(_generate\):"),
)

WRITTEN_SINCE: Mapping[str, Release] = {"kv_caches": (0, 31, 0), "prompt_cache": (0, 31, 2), "died": (0, 32, 0)}
"""The first release that writes a line."""


def proven_by(log: LogView | Unknown) -> Iterator[Release]:
    """Releases that introduced the lines that were seen."""
    if not isinstance(log, Unknown):
        yield from (release for name, release in WRITTEN_SINCE.items() if log.newest(name) is not None)


def is_dead(log: LogView | Unknown) -> bool:
    """Whether the log shows the end of the generation thread: before 0.32.0 nothing else does."""
    return not isinstance(log, Unknown) and any(log.newest(name) is not None for name in ("died", "crashed"))


def retained_bytes(log: LogView | Unknown, now: float) -> Reading[int]:
    """Bytes of KV cache that are kept for reuse, to 0.01 GB, as of the newest request's start."""
    if isinstance(log, Unknown):
        return causes.NO_LOG if log.detail.startswith(causes.NOT_FOLLOWED) else log
    lines = [line for name in ("prompt_cache", "kv_caches") if (line := log.newest(name)) is not None]
    if not lines:
        return causes.NO_LINE
    newest = max(lines, key=lambda line: line.at)
    return causes.OLD_LINE if now - newest.at > FRESH else _bytes(log, newest)


def _bytes(log: LogView, line: LogLine) -> Reading[int]:
    size = int(Decimal(line.groups["gb"]) * 10**9)
    if size == 0 and int(line.groups["sequences"]) > 0:
        return Unknown(Reason.AMBIGUOUS, "the log rounds to 0.01 GB, and there is less than that", bounds=(0, ROUNDING))
    return Known(size, log.origin(line))
