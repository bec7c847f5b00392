"""Taking wanted families out of a page of Prometheus text without parsing the rest.

A page of an inference server is mostly histograms that nobody here asks for. One compiled pattern walks over it and stops only where a line begins with a
wanted name; what a line's labels mean is remembered from page to page. The format: https://prometheus.io/docs/instrumenting/exposition_formats/
(and the exemplars of OpenMetrics, which are checked and dropped). Names in quotes inside the braces are not read: no engine writes them.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from types import MappingProxyType
from typing import NamedTuple

from inspector.reading import Known, Origin, Reading, Reason, Unknown

Labels = Mapping[str, str]

LONGEST_LINE = 64 * 1024
"""Bytes. vLLM's longest line, its cache configuration, has about 2000."""

MOST_LINES = 50_000
"""Of wanted families. A page with more is not of an inference server, and all its families are broken."""

MEMORY = 256 * 1024
"""Bytes of label text that a scanner remembers at most."""

ENTRY = 256
"""Bytes that a remembered label set is charged beside its text, so that many tiny ones cannot pile up."""

NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
LABEL = re.compile(rb'[ \t]*+([a-zA-Z_][a-zA-Z0-9_]*+)[ \t]*+=[ \t]*+"([^"\\]*+(?:\\.[^"\\]*+)*+)"[ \t]*+([,}])')
OPENING = re.compile(rb"[ \t]*+\{")
CLOSING = re.compile(rb"[ \t]*+\}")
TAIL = re.compile(rb"[ \t]*+([^\s#]++)(?:[ \t]++([^\s#]++))?(?:[ \t]++#([ \t]*+\{.*))?\s*+", re.DOTALL)
ESCAPE = re.compile(r"\\([\\n\"])")

NO_LABELS: Labels = MappingProxyType({})


class Sample(NamedTuple):
    """One line: its labels, unescaped, and its value, which may be NaN or infinite. (A tuple, because it is built many times faster than a dataclass.)"""

    labels: Labels
    value: float


@dataclass(frozen=True, slots=True)
class Page:
    """What a page says of the wanted families. `found` maps each wanted name to its samples in the order of the page; None: a line of it is broken.

    Asking for a name that the scanner was not made for is a programming error, a KeyError."""

    found: Mapping[str, tuple[Sample, ...] | None]

    def samples(self, name: str) -> tuple[Sample, ...]:
        """All samples, those with equal labels too; empty when the family is not there or is broken."""
        return self.found[name] or ()

    def broken(self, name: str) -> bool:
        """Whether a line of the family cannot be read; then none of its numbers is given out."""
        return self.found[name] is None

    def read(self, name: str, origin: Origin) -> Reading[tuple[Sample, ...]]:
        """The samples, at least one; `not_reported` when there is none, `invalid` when a line is broken."""
        samples = self.found[name]
        if samples is None:
            return Unknown(Reason.INVALID, f"{origin.path} has a line of {name} that is not Prometheus text")
        if not samples:
            return Unknown(Reason.NOT_REPORTED, f"{origin.path} has no {name}")
        return Known(samples, origin)

    def one(self, name: str, origin: Origin) -> Reading[float]:
        """The finite value of a family that has one sample, whatever its labels; several are `invalid`, never summed."""
        reading = self.read(name, origin)
        if isinstance(reading, Unknown):
            return reading
        if len(reading.value) > 1:
            return Unknown(Reason.INVALID, f"{origin.path} has {len(reading.value)} samples of {name} where one is expected")
        value = reading.value[0].value
        if not math.isfinite(value):
            return Unknown(Reason.INVALID, f"{origin.path} gives {name} as not a finite number")
        return Known(value, origin)


class Scanner:
    """Takes the families of some sample names out of pages; best kept for all pages of one target.

    `names` are names as they stand at the beginning of a sample's line, suffixes such as `_sum` included. A counter is wanted as `x_total`: if a page has no
    line of that name but lines of `x`, those are its samples. The two are never joined.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._names = tuple(dict.fromkeys(names))
        for name in self._names:
            if not NAME.fullmatch(name):
                raise ValueError(f"{name!r} is not the name of a metric")
        bare = [((name.removesuffix("_total") or name).encode(), name) for name in self._names]
        exact = [(name.encode(), name) for name in self._names]
        self._spellings = tuple(dict.fromkeys(bare + exact))  # The exact one last: if a page has both, it counts.
        wanted = _either({spelling.decode() for spelling, _ in self._spellings}) or "(?!)"
        # The line break in front is what the pattern engine seeks at the speed of memory; the look-ahead keeps longer names out. A line is cut behind its last
        # brace: there its labels end, unless an exemplar follows.
        self._lines = re.compile(rf"\n[ \t]*+({wanted})(?![a-zA-Z0-9_:])(.*\}})?(.*+)".encode())
        self._known: dict[bytes, Labels] = {}
        self._charged = 0

    def scan(self, body: bytes) -> Page:
        """The wanted families of a page. Never raises; time and memory grow no faster than the page."""
        found: defaultdict[bytes, list[Sample]] = defaultdict(list)
        broken = set()
        lines = self._lines.finditer(b"\n" + body)
        for match in islice(lines, MOST_LINES):
            spelling, braced, rest = match.groups(b"")
            try:
                found[spelling].append(self._sample(braced, rest))
            except ValueError:
                broken.add(spelling)
        if next(lines, None):
            return Page(dict.fromkeys(self._names))
        families: dict[str, tuple[Sample, ...] | None] = dict.fromkeys(self._names, ())
        for spelling, name in self._spellings:
            if spelling in found:
                families[name] = None if spelling in broken else tuple(found[spelling])
        return Page(families)

    def _sample(self, braced: bytes, rest: bytes) -> Sample:
        """The sample of a line, given what follows its name, in two parts. ValueError when it is broken."""
        labels = self._known.get(braced)
        if labels is None:
            labels, rest = self._learn(braced + rest)
        if b"_" not in rest:
            try:
                return Sample(labels, float(rest))
            except ValueError:  # More than a number follows the labels.
                pass
        return Sample(labels, _first_number(rest))

    def _learn(self, line: bytes) -> tuple[Labels, bytes]:
        """The labels at the beginning of a text, remembered from now on, and the rest of it. ValueError when they are broken."""
        if len(line) > LONGEST_LINE:
            raise ValueError
        labels, end = _labels(line)
        if end == 0:  # Without labels, what parts the name from its number has to be looked at each time.
            return labels, line
        charge = end + ENTRY
        if self._charged + charge > MEMORY:
            self._known.clear()
            self._charged = 0
        self._known[line[:end]] = labels
        self._charged += charge
        return labels, line[end:]


def _either(names: Iterable[str]) -> str:
    """A pattern for any of the names, parting them where they first differ, so that no character is looked at twice. A plain list takes five times as long."""
    by_first: dict[str, list[str]] = {}
    for name in sorted(names):
        by_first.setdefault(name[:1], []).append(name[1:])
    optional = by_first.pop("", None) is not None
    branches = [re.escape(first) + _either(rests) for first, rests in by_first.items()]
    if not branches or (len(branches) == 1 and not optional):
        return "".join(branches)
    return f"(?:{'|'.join(branches)}){'?' if optional else ''}"


def _labels(line: bytes) -> tuple[Labels, int]:
    """The labels at the beginning of a text, and where they end. ValueError when they are broken, or when there is neither a brace nor a blank."""
    opening = OPENING.match(line)
    if opening is None:
        if line[:1] not in (b" ", b"\t"):
            raise ValueError
        return NO_LABELS, 0
    labels: dict[str, str] = {}
    at = opening.end()
    while not (closing := CLOSING.match(line, at)):
        label = LABEL.match(line, at)
        if label is None:
            raise ValueError
        name, value = label[1].decode(), label[2].decode()  # UnicodeDecodeError is a ValueError.
        if name in labels or name == "__name__":
            raise ValueError
        labels[name] = ESCAPE.sub(_unescape, value) if "\\" in value else value
        at = label.end()
        if label[3] == b"}":
            return MappingProxyType(labels), at
    return MappingProxyType(labels), closing.end()


def _unescape(escape: re.Match[str]) -> str:
    return "\n" if escape[1] == "n" else escape[1]


def _first_number(text: bytes) -> float:
    """The value where a timestamp, an exemplar, or both follow it. ValueError when anything else does."""
    tail = TAIL.fullmatch(text)
    if tail is None or len(text) > LONGEST_LINE:
        raise ValueError
    value, timestamp, exemplar = tail.groups()
    if timestamp is not None:
        _number(timestamp)
    if exemplar is not None:
        _, end = _labels(exemplar)
        numbers = [_number(word) for word in exemplar[end:].split()]
        if len(numbers) not in (1, 2):
            raise ValueError
    return _number(value)


def _number(text: bytes) -> float:
    """A number as Prometheus writes it, blanks around it allowed. Python's underscores between digits are not."""
    if b"_" in text:
        raise ValueError
    return float(text)
