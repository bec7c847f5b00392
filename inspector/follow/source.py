"""Where a followed log is read: a file, or a unit's journal; and what a reader of either gives.

A reader gives only what is new since its last read, as records. What keeps it from reading is data (`problem`), never an exception, and names the log
by its base name only.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from inspector.follow.lines import Stamp
from inspector.reading import Unknown

CHUNK = 64 * 1024
"""Bytes read in one step."""

UNIT_NAME = re.compile(r"[A-Za-z0-9:_.@\\-]+")


@dataclass(frozen=True, slots=True)
class FileSource:
    """A log file. Only its base name is ever shown."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.name


@dataclass(frozen=True, slots=True)
class JournalSource:
    """The systemd journal of one unit, this boot. Raises ValueError for a name that no unit can have."""

    unit: str
    program: str = "journalctl"

    def __post_init__(self) -> None:
        if not UNIT_NAME.fullmatch(self.unit):
            raise ValueError("a unit's name has letters, digits and : _ . @ - only, such as llama-server.service")

    @property
    def name(self) -> str:
        return self.unit


@dataclass(frozen=True, slots=True)
class Record:
    """One raw line. It lives only until its facts are taken."""

    text: str
    stamp: Stamp | None = None


class LogReader(Protocol):
    """`problem` is set while the log cannot be read; `changed_at` is when the log was last written (Unix seconds)."""

    problem: Unknown | None
    changed_at: float | None

    async def read(self) -> Sequence[Record] | None:
        """The records of the next piece; None when all that is there now has been read."""

    async def aclose(self) -> None: ...
