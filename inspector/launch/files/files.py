"""The files that one launch configuration is made of: read with a bound, and looked at again for changes."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TypeAlias

from inspector.launch.files.command import UnreadableError
from inspector.reading import Reason
from inspector.secrets import why

LARGEST_FILE = 1024 * 1024
"""Bytes. Launch files have a few thousand; parsed, a larger one would take many times its size."""

MOST_FILES = 100
"""Drop-ins and environment files of one launch file."""

Signature: TypeAlias = tuple[int, int, int] | None
"""Inode, size and time of the last change to content or permissions (nanoseconds); None where there is nothing to see."""


class Files:
    """Reads files, and remembers what they looked like. May block for some milliseconds."""

    def __init__(self) -> None:
        self._seen: dict[Path, Signature] = {}

    def read(self, path: Path) -> bytes:
        """The bytes of a regular file. Raises UnreadableError."""
        if len(self._seen) >= MOST_FILES:
            raise UnreadableError("is made of too many files", "name the file that starts the server")
        self._seen[path] = signature(path)
        try:
            return _bytes(path)
        except ValueError:
            raise UnreadableError("names a file in a way that no system knows", "give its path") from None
        except OSError as error:
            reason = Reason.UNAUTHORIZED if isinstance(error, PermissionError) else Reason.NO_SOURCE
            raise UnreadableError(f"cannot be read ({why(error)})", "name a file that the inspector's user may read", reason) from None

    def text(self, path: Path) -> str:
        """The text of a file. Raises UnreadableError."""
        return decoded(self.read(path))

    def optional(self, path: Path) -> str | None:
        """The text of a file; None where it cannot be had."""
        try:
            return self.text(path)
        except UnreadableError:
            return None

    def is_there(self, path: Path) -> bool:
        self._seen[path] = signature(path)
        return self._seen[path] is not None

    def listed(self, folder: Path, suffix: str) -> list[Path]:
        """The files of a folder with this suffix, in the order of their names."""
        self._seen[folder] = signature(folder)
        try:
            return sorted(path for path in folder.iterdir() if path.name.endswith(suffix))[:MOST_FILES]
        except OSError:
            return []

    def changed(self) -> bool:
        """Whether any of them looks different now. Cheap enough for every poll."""
        return any(signature(path) != seen for path, seen in self._seen.items())


def decoded(raw: bytes) -> str:
    """UTF-8 text with plain line ends. Raises UnreadableError."""
    if b"\0" in raw:
        raise UnreadableError("is not text", "name the file that starts the server")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UnreadableError("is not UTF-8 text", "save the file as UTF-8") from None
    return text.replace("\r\n", "\n")


def signature(path: Path) -> Signature:
    try:
        found = path.stat()
    except (OSError, ValueError):
        return None
    return found.st_ino, found.st_size, found.st_ctime_ns


def _bytes(path: Path) -> bytes:
    # A pipe would keep us waiting: it is opened without, and refused.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise UnreadableError("is not a regular file", "name a file", Reason.NO_SOURCE)
        raw = file.read(LARGEST_FILE + 1)
    if len(raw) > LARGEST_FILE:
        raise UnreadableError("is larger than 1 MiB", "name the file that starts the server, alone")
    return raw
