"""Reading a log file that may be rotated, truncated or replaced at any time."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path

import anyio

from inspector.follow.lines import LONGEST_LINE, LineSplitter
from inspector.follow.source import CHUNK, FileSource, Record
from inspector.reading import Reason, Unknown

MARK = 256
"""Bytes at the start of a file, and before the place where reading goes on, whose change shows that it is not the file we read."""


class FileReader:
    """Reads a file on, wherever it went.

    The file stays open between reads, so that a renamed or deleted one is finished before its successor is begun. The successor is begun only when it
    has content: a writer that has begun it has left the old one.
    """

    def __init__(self, source: FileSource, wanted: Callable[[bytes], bool], *, pread: Callable[[int, int, int], bytes] = os.pread) -> None:
        self.problem: Unknown | None = None
        self.changed_at: float | None = None
        self._source = source
        self._wanted = wanted
        self._pread = pread
        self._file: int | None = None
        self._offset = 0
        self._marks: tuple[tuple[int, int, bytes], ...] = ()
        self._splitter = LineSplitter()

    async def read(self) -> Sequence[Record] | None:
        # One step in a worker thread is whole or not begun, so that a cancelled poll loses no line.
        return await anyio.to_thread.run_sync(self._step)

    async def aclose(self) -> None:
        self._close()

    def _step(self) -> Sequence[Record] | None:
        try:
            data = self._next()
        except OSError as error:
            self._close()
            self.problem = _refusal(self._source.name, error)
            return None
        self.problem = None
        return self._records(data) if data else None

    def _records(self, data: bytes) -> list[Record]:
        body = self._splitter.feed(data)
        if not self._wanted(body):
            return []
        lines = (line[:LONGEST_LINE] for line in body.split(b"\n"))
        return [Record(line.decode(errors="replace")) for line in lines if self._wanted(line)]

    def _next(self) -> bytes:
        """The next piece of the old file, or of its successor once the old one is finished."""
        if self._file is None:
            return self._begun(resume=True)
        # In this order: what the old file holds after its successor has content is all that it will ever hold.
        replaced = self._replaced(self._file)
        data = self._continued(self._file)
        return self._begun(resume=False) if replaced and not data else data

    def _begun(self, *, resume: bool) -> bytes:
        """The first piece of the file that has the name now. `resume`: it may be the one that an error made us close, then reading goes on."""
        file = _opened(self._source.path)
        self._close()
        self._file = file
        if resume and self._marks and self._is_known(file):
            return self._continued(file)
        self._offset, self._marks = 0, ()
        self._splitter.drop()
        return self._continued(file)

    def _replaced(self, file: int) -> bool:
        try:
            there = self._source.path.stat()
        except OSError:
            return False  # Between two names: the old file is all there is.
        return not os.path.samestat(there, os.fstat(file)) and (there.st_size > 0 or not stat.S_ISREG(there.st_mode))

    def _continued(self, file: int) -> bytes:
        """What follows in this file; after a truncation, the file from its start."""
        status = os.fstat(file)
        if status.st_size < self._offset or not self._is_known(file):
            self._offset, self._marks = _first_data(file), ()
            self._splitter.drop()
        data = self._pread(file, CHUNK, self._offset)
        self.changed_at = status.st_mtime
        if data:
            self._offset += len(data)
            self._mark(file)
        return data

    def _mark(self, file: int) -> None:
        length = min(self._offset, MARK)
        self._marks = tuple((start, length, _digest(os.pread(file, length, start))) for start in (0, self._offset - length))

    def _is_known(self, file: int) -> bool:
        return all(_digest(os.pread(file, length, start)) == digest for start, length, digest in self._marks)

    def _close(self) -> None:
        if self._file is not None:
            os.close(self._file)
        self._file = None


def _opened(path: Path) -> int:
    """An open regular file; anything else is refused before opening it could block."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.ENOTSUP, "not a regular file")
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(errno.ENOTSUP, "not a regular file")
    return file


def _first_data(file: int) -> int:
    """The offset of the first byte that was really written: a writer that keeps its offset over a truncation leaves a hole before it."""
    try:
        return os.lseek(file, 0, os.SEEK_DATA)
    except (OSError, AttributeError):
        return 0


def _digest(data: bytes) -> bytes:
    """The log's text is not kept, so its hash stands for it."""
    return hashlib.blake2b(data, digest_size=16).digest()


def _refusal(name: str, error: OSError) -> Unknown:
    match error.errno:
        case errno.ENOENT | errno.ENOTDIR:
            return Unknown(Reason.NO_SOURCE, f"there is no log file {name}: let the server write one, or correct `logs`")
        case errno.EACCES | errno.EPERM:
            return Unknown(Reason.UNAUTHORIZED, f"the log file {name} may not be read: give the inspector's user read access to it and to its folder")
        case errno.ENOTSUP | errno.EISDIR | errno.ENXIO:
            return Unknown(Reason.NO_SOURCE, f"{name} is not a regular file: point `logs` at the file that the server's output goes to")
    return Unknown(Reason.NO_SOURCE, f"the log file {name} cannot be read: {os.strerror(error.errno) if error.errno else 'unknown error'}")
