"""Lines of a followed log that tell something, and what was seen of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from inspector.reading import Kind, Known, Origin


@dataclass(frozen=True, slots=True)
class LogPattern:
    """A kind of log line. `needle` is a literal that every such line holds (checked first); `regex` is searched in the line. `begins`: a server process starts
    here, so facts and counts of earlier lines belong to another one. `key` names a group that parts rows of one pattern, such as an engine's number."""

    name: str
    needle: str
    regex: re.Pattern[str]
    begins: bool = False
    key: str = ""


@dataclass(frozen=True, slots=True)
class LogLine:
    """The named groups of a line that matched, and when it was written (by its own stamp if it has one) or read. The line itself is not kept."""

    groups: Mapping[str, str]
    at: float


@dataclass(frozen=True, slots=True)
class LogView:
    """What the followed log says of the running process. `path` is the base name of the file, or the journal's unit."""

    path: str
    lines: Mapping[str, Mapping[str, LogLine]]
    counts: Counter[str]
    at: float

    def newest(self, name: str, key: str = "") -> LogLine | None:
        """The newest line of a pattern, None when there was none."""
        return self.lines.get(name, {}).get(key)

    def rows(self, name: str) -> Mapping[str, LogLine]:
        """The newest line of a pattern for each key."""
        return self.lines.get(name, {})

    def total(self, name: str) -> Known[int]:
        """How many lines of a pattern this process wrote. A followed log without such a line is a measured zero."""
        return Known(self.counts[name], Origin(Kind.LOG, self.path, self.at))

    def origin(self, line: LogLine) -> Origin:
        return Origin(Kind.LOG, self.path, line.at)
