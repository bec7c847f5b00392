"""Reading the systemd journal of one unit through journalctl."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from subprocess import DEVNULL, PIPE
from typing import Any

import anyio
from anyio.abc import Process
from pydantic_core import from_json

from inspector.follow.lines import LONGEST_LINE, LineSplitter, Stamp
from inspector.follow.source import CHUNK, JournalSource, Record
from inspector.reading import Reason, Unknown

BACKLOG_WAIT = 2.0
"""Seconds that journalctl has for its first line."""

QUIET = 0.2
"""Seconds of silence after which the journal's backlog is taken as read."""

GLANCE = 0.01
"""Seconds that a later look at the journal waits for lines under way."""

RESTART_AFTER = 30.0
"""Seconds between two starts of a journalctl that ended."""


class JournalReader:
    """Reads what `journalctl --follow` prints. One that ends is started again where it stopped."""

    def __init__(self, source: JournalSource, *, clock: Callable[[], float] = time.time) -> None:
        self.problem: Unknown | None = None
        self.changed_at: float | None = None
        self._source = source
        self._clock = clock
        self._process: Process | None = None
        self._started_at: float | None = None
        self._cursor: str | None = None
        self._splitter = LineSplitter()
        self._patience = GLANCE

    async def read(self) -> Sequence[Record] | None:
        if self._process is None and not await self._start():
            return None
        process = self._process
        if process is None or process.stdout is None:
            return None
        data = b""
        try:
            with anyio.move_on_after(self._patience):
                data = await process.stdout.receive(CHUNK)
        except (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
            await self._ended(process)
            return None
        if data:
            self._patience = min(self._patience, QUIET)
            return self._records(data)
        self._patience = GLANCE
        self.problem = _empty(self._source.unit) if self._cursor is None else None
        return None

    async def aclose(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with anyio.CancelScope(shield=True):
            for stop in (process.terminate, process.kill):
                if process.returncode is None:
                    with suppress(ProcessLookupError):
                        stop()
                    with anyio.move_on_after(2):
                        await process.wait()
            await process.aclose()

    async def _start(self) -> bool:
        now = self._clock()
        if self._started_at is not None and 0 <= now - self._started_at < RESTART_AFTER:
            return False
        self._started_at = now
        where = [f"--after-cursor={self._cursor}"] if self._cursor else ["--boot"]
        fixed = ["--output=json", "--output-fields=MESSAGE", "--all", "--no-pager", "--follow", "--lines=all"]
        try:
            command = [self._source.program, f"--unit={self._source.unit}", *where, *fixed]
            self._process = await anyio.open_process(command, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL)
        except OSError:
            self.problem = Unknown(Reason.NO_SOURCE, "journalctl cannot be run here: let `logs` name a file that the server writes")
            return False
        self._splitter.drop()
        self._patience = BACKLOG_WAIT
        return True

    async def _ended(self, process: Process) -> None:
        with anyio.move_on_after(1):
            await process.wait()
        await self.aclose()
        detail = (
            f"journalctl ended with status {process.returncode}: let the inspector's user read the journal (group systemd-journal), or let `logs` name a file"
        )
        self.problem = Unknown(Reason.NO_SOURCE, detail)

    def _records(self, data: bytes) -> list[Record]:
        records = [record for line in self._splitter.feed(data).split(b"\n") if line and (record := self._record(line)) is not None]
        if records:
            self.problem = None
        return records

    def _record(self, line: bytes) -> Record | None:
        try:
            entry = from_json(line, cache_strings="none")
            at = int(entry["__REALTIME_TIMESTAMP"]) / 1e6
        except (ValueError, RecursionError, KeyError, TypeError):
            return None
        self.changed_at = at if self.changed_at is None else max(at, self.changed_at)
        cursor = entry.get("__CURSOR")
        self._cursor = cursor if isinstance(cursor, str) else self._cursor
        text = _message(entry.get("MESSAGE"))
        return None if text is None else Record(text[:LONGEST_LINE], Stamp(at, exact=True))


def _message(value: Any) -> str | None:
    """The text of an entry; journalctl writes text with control characters, colours among them, as a list of bytes."""
    if isinstance(value, str):
        return value
    try:
        return bytes(value).decode(errors="replace") if isinstance(value, list) else None
    except (ValueError, TypeError):
        return None


def _empty(unit: str) -> Unknown:
    detail = f"the journal shows no line of {unit}: correct the unit's name, or let the inspector's user read the journal (group systemd-journal)"
    return Unknown(Reason.NO_SOURCE, detail)
