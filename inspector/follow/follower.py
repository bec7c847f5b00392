"""Following the log of one target: facts out of its lines by an adapter's patterns, believed only if they belong to the running process.

The lines themselves are never kept or passed on: they hold prompts, keys and paths. Only the named groups of a pattern leave here.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType

from inspector.contract import LogLine, LogPattern, LogView
from inspector.follow.file import FileReader
from inspector.follow.journal import JournalReader
from inspector.follow.lines import Stamp, probe, stamp_of, unwrap
from inspector.follow.source import FileSource, JournalSource, LogReader, Record
from inspector.reading import Reason, Unknown

LONGEST_GROUP = 200
"""Characters of a pattern's group that are kept."""

MOST_ROWS = 256
"""Keys of one pattern that are kept, so that a log cannot fill our memory."""

CLOCK_SLACK = 5.0
"""Seconds by which the times of a log, a file system and a process may differ."""

READ_SLACK = 1.0
"""Seconds by which a process may seem to be younger than what we read of it: its start is counted in ticks since the machine's."""

ZONE_SLACK = 14 * 3600.0
"""Seconds by which a stamp without a time zone may be off: the engine may run in another zone, as in a container."""

AHEAD = 60.0
"""Seconds that a stamp may lie in the future before it is taken as misread."""


@dataclass(slots=True)
class Block:
    """What one server process wrote, as far as it was read. `read_at`: when its reading began; `began`: the stamp of its first line, if it bears one."""

    read_at: float
    began: Stamp | None = None
    lines: dict[str, dict[str, LogLine]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, pattern: LogPattern, line: LogLine) -> None:
        rows = self.lines.setdefault(pattern.name, {})
        rows[line.groups.get(pattern.key, "")] = line
        if len(rows) > MOST_ROWS:
            del rows[next(iter(rows))]
        self.counts[pattern.name] += 1


class Follower:
    """Follows one log for one target. Use it as an async context manager: it holds a file or a journalctl process open."""

    def __init__(
        self,
        source: FileSource | JournalSource,
        patterns: tuple[LogPattern, ...],
        *,
        clock: Callable[[], float] = time.time,
        reader: LogReader | None = None,
    ) -> None:
        self.starts = 0
        """Starts of a server process that were read so far."""
        self._name = source.name
        self._patterns = patterns
        self._clock = clock
        self._reader = reader or reader_of(source, patterns, clock)
        self._block: Block | None = None
        self._read_at: float | None = None

    async def __aenter__(self) -> Follower:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._reader.aclose()

    async def catch_up(self) -> None:
        """Reads all that is there now. Cancelling it loses nothing; until it has ended once more, `view` is unknown."""
        self._read_at = None
        began = self._clock()
        while (records := await self._reader.read()) is not None:
            for record in records:
                self._take(record)
            newest = self._reader.changed_at
            if isinstance(self._reader, JournalReader) and newest is not None and newest > began:
                break  # A chatty unit never falls silent.
        if self._block is None and self._reader.problem is None:
            self._block = Block(began)
        self._read_at = self._clock()

    def view(self, *, born: float | None, after: float | None) -> LogView | Unknown:
        """What the log says of the running process.

        `born`: when that process started, if known; `after`: lines read before this moment belong to an earlier process. Both Unix seconds.
        """
        if self._reader.problem is not None:
            return self._reader.problem
        if self._block is None or self._read_at is None:
            return Unknown(Reason.NO_SOURCE, f"{self._name} has not been read to its end yet")
        if born is not None and self._is_older(self._block, born):
            return Unknown(Reason.STALE, f"the log {self._name} ends before the running server started; point `logs` at the file it writes now")
        bounds = (after, None if born is None else born - READ_SLACK)
        if any(bound is not None and self._block.read_at < bound for bound in bounds):
            return Unknown(Reason.NO_SOURCE, f"no start of the running server seen in {self._name} yet")
        lines = {name: dict(rows) for name, rows in self._block.lines.items()}
        return LogView(self._name, lines, Counter(self._block.counts), self._read_at)

    def _is_older(self, block: Block, born: float) -> bool:
        """Whether the log ends, or the newest start in it lies, before the running process was born."""
        written = self._reader.changed_at
        if written is not None and written < born - CLOCK_SLACK:
            return True
        if block.began is None:
            return False
        slack = CLOCK_SLACK if block.began.exact else CLOCK_SLACK + ZONE_SLACK
        return block.began.at < born - slack

    def _take(self, record: Record) -> None:
        now = self._clock()
        if self._block is None:
            self._block = Block(now)
        unwrapped = unwrap(record.text, now)
        for text in unwrapped.lines:
            self._take_line(text, record.stamp or unwrapped.stamp, now)

    def _take_line(self, text: str, stamp: Stamp | None, now: float) -> None:
        found = [(p, match) for p in self._patterns if p.needle in text and (match := p.regex.search(text)) is not None]
        if not found:
            return
        stamp = stamp or stamp_of(text, now)
        if any(pattern.begins for pattern, _ in found):
            self._block = Block(now, stamp)
            self.starts += 1
        block = self._block or Block(now)
        at = self._written(stamp, now)
        for pattern, match in found:
            groups = {name: value[:LONGEST_GROUP] for name, value in match.groupdict().items() if value is not None}
            block.add(pattern, LogLine(groups, at))

    def _written(self, stamp: Stamp | None, now: float) -> float:
        """When a line was written: by its stamp, else not after the log was last written."""
        if stamp is not None and stamp.at <= now + AHEAD:
            return stamp.at
        return now if self._reader.changed_at is None else min(now, self._reader.changed_at)


def reader_of(source: FileSource | JournalSource, patterns: tuple[LogPattern, ...], clock: Callable[[], float]) -> LogReader:
    """The reader of a source. A file's lines are looked at only if they hold a piece of some pattern's needle."""
    if isinstance(source, JournalSource):
        return JournalReader(source, clock=clock)
    probes = tuple({probe(pattern.needle) for pattern in patterns})
    return FileReader(source, lambda data: any(p in data for p in probes))
