"""One log line: taking off what a log driver put around it, and reading its time stamp. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from pydantic_core import from_json

LONGEST_LINE = 64 * 1024
"""Bytes of a line that are looked at; the rest is dropped."""

LAYERS = 4
"""Wrappers taken off one line at most: compose around a JSON driver around an engine that logs JSON is three."""

STAMP_WITHIN = 160
"""Characters at the start of a line in which its stamp stands, if it has one."""

ANSI = re.compile(r"\x1b(?:\[[0-9;:?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
ISO = re.compile(r"(?P<date>\d{4}-\d\d-\d\d)[T ](?P<time>\d\d:\d\d:\d\d)(?:[.,](?P<part>\d{1,9}))?(?: ?(?P<zone>Z|[+-]\d\d:?\d\d)\b)?")
MONTH_DAY = re.compile(r"\b(?P<month>\d\d)-(?P<day>\d\d) (?P<time>\d\d:\d\d:\d\d)\b")
SYSLOG = re.compile(r"(?P<month>[A-Z][a-z]{2}) (?P<day>[ \d]\d) (?P<time>\d\d:\d\d:\d\d)")
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")

ZONED = r"(?P<stamp>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:?\d\d))"
PREFIXES = (
    re.compile(r"\[pod/[^\]\s]+\] "),  # kubectl logs --prefix
    re.compile(r"[A-Za-z0-9][\w.-]*\s+\| ?"),  # docker compose
    re.compile(ZONED + r" (?:stdout|stderr) [FP] ?"),  # Kubernetes CRI
    re.compile(ZONED + r" \S+ [^\s\[\]:]+\[\d+\]: ?"),  # journalctl --output=short-iso
    re.compile(r"(?P<stamp>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d)(?:\.\d+)? \S+ [^\s\[\]:]+(?:\[\d+\])?: ?"),  # syslog, journalctl's own form
    re.compile(ZONED + r" "),  # docker logs --timestamps
)

MESSAGE_KEYS = ("log", "MESSAGE", "message", "msg", "text")
STAMP_KEYS = ("time", "timestamp", "@timestamp", "ts", "asctime")

ESCAPED_IN_JSON = re.compile(r"""[^ !#-%(-.0-;=?-\[\]-~]+""")
"""Characters that one JSON writer or another writes as an escape."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """When a line was written, Unix seconds. `exact`: its time zone is written too; otherwise this machine's was assumed."""

    at: float
    exact: bool


@dataclass(frozen=True, slots=True)
class Unwrapped:
    """What the engine itself wrote: mostly one line, several where one JSON message holds them. `stamp` is the wrapper's."""

    lines: tuple[str, ...]
    stamp: Stamp | None


class LineSplitter:
    """Cuts a stream of bytes into whole lines. A last line without its end waits for it."""

    def __init__(self) -> None:
        self._pending = b""

    def feed(self, data: bytes) -> bytes:
        """All lines that `data` completes, in one piece that ends with a line end; empty when it completes none."""
        # NULs are what a truncated file shows where its writer kept its old offset.
        data = self._pending + data.replace(b"\0", b"")
        end = data.rfind(b"\n") + 1
        self._pending = data[end : end + LONGEST_LINE]
        return data[:end]

    def drop(self) -> None:
        """Forgets a line whose end will not come: the numbers in it may be cut."""
        self._pending = b""


def probe(needle: str) -> bytes:
    """The longest piece of a needle that stands in the raw bytes of a line whichever way the line is wrapped."""
    return max(ESCAPED_IN_JSON.split(needle), key=len).encode()


def unwrap(text: str, now: float) -> Unwrapped:
    """Takes off colours, carriage returns and the wrappers of log drivers."""
    stamp: Stamp | None = None
    for _ in range(LAYERS):
        if "\x1b" in text:
            text = ANSI.sub("", text)
        layer = _json_layer(text, now) if text.startswith("{") else _prefix_layer(text, now)
        if layer is None:
            break
        text, found = layer
        if stamp is None or (found is not None and found.exact and not stamp.exact):
            stamp = found
    return Unwrapped(tuple(part for part in re.split(r"[\r\n]+", text) if part), stamp)


def stamp_of(line: str, now: float) -> Stamp | None:
    """The stamp that a line bears itself: an ISO date, or month and day as vLLM writes them. `now` (Unix seconds) settles a missing year."""
    head = line[:STAMP_WITHIN]
    if found := ISO.search(head):
        return _iso_stamp(found)
    if found := MONTH_DAY.search(head):
        return _stamp_without_year(int(found["month"]), int(found["day"]), found["time"], now)
    return None


def _prefix_layer(text: str, now: float) -> tuple[str, Stamp | None] | None:
    for prefix in PREFIXES:
        if found := prefix.match(text):
            stamp = found.groupdict().get("stamp")
            return text[found.end() :], _wrapper_stamp(stamp, now) if stamp else None
    return None


def _json_layer(text: str, now: float) -> tuple[str, Stamp | None] | None:
    try:
        entry = from_json(text, cache_strings="none")
    except (ValueError, RecursionError):
        return None
    if not isinstance(entry, dict):
        return None
    message = next((entry[key] for key in MESSAGE_KEYS if isinstance(entry.get(key), str)), None)
    return None if message is None else (message, _json_stamp(entry, now))


def _json_stamp(entry: Mapping[str, Any], now: float) -> Stamp | None:
    for key in STAMP_KEYS:
        value = entry.get(key)
        if isinstance(value, str) and (found := ISO.match(value)):
            return _iso_stamp(found)
        if isinstance(value, int | float) and not isinstance(value, bool):
            # Seconds or milliseconds since 1970; a small number counts from the process's start (llama.cpp) and tells no time.
            seconds = next((v for v in (value, value / 1000) if 1e9 <= v <= now + 86400), None)
            if seconds is not None:
                return Stamp(float(seconds), exact=True)
    return None


def _wrapper_stamp(text: str, now: float) -> Stamp | None:
    if found := ISO.match(text):
        return _iso_stamp(found)
    if (found := SYSLOG.match(text)) and found["month"] in MONTHS:
        return _stamp_without_year(MONTHS.index(found["month"]) + 1, int(found["day"]), found["time"], now)
    return None


def _iso_stamp(found: re.Match[str]) -> Stamp | None:
    try:
        moment = datetime.fromisoformat(f"{found['date']}T{found['time']}")
        if found["zone"]:
            moment = moment.replace(tzinfo=_zone(found["zone"]))
        return Stamp(moment.timestamp() + float(f"0.{found['part'] or '0'}"), exact=bool(found["zone"]))
    except (ValueError, OverflowError, OSError):
        return None


def _zone(text: str) -> timezone:
    if text == "Z":
        return UTC
    offset = timedelta(hours=int(text[1:3]), minutes=int(text[-2:]))
    return timezone(-offset if text[0] == "-" else offset)


def _stamp_without_year(month: int, day: int, time: str, now: float) -> Stamp | None:
    """The last such day that is not in the future."""
    hour, minute, second = (int(part) for part in time.split(":"))
    this_year = datetime.fromtimestamp(now).year
    for year in (this_year + 1, this_year, this_year - 1):
        try:
            at = datetime(year, month, day, hour, minute, second).timestamp()
        except (ValueError, OverflowError, OSError):
            continue
        if at <= now + 86400:
            return Stamp(at, exact=False)
    return None
