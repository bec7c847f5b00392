"""Memory of this machine and of a server's process. Knows no engine; what one system tells in its own way is in `memory_linux` and `memory_macos`.

Only main memory: where a graphics card has its own, that is not in here.
"""

from __future__ import annotations

import sys

import psutil

from inspector.local import linux, macos
from inspector.model import Memory
from inspector.reading import Kind, Origin, Reading, Reason, Unknown, positive

NO_SYSTEM = Unknown(Reason.NO_SOURCE, "memory is read on Linux and macOS only")


def memory_of(pid: int, weights: Reading[int], now: float) -> Memory:
    """Total, ceiling and use for one process and those below it. Blocking, a few milliseconds; never raises."""
    total = total_bytes(now)
    if sys.platform.startswith("linux"):
        return Memory(total, linux.ceiling_bytes(pid, total, now), linux.used_bytes(pid, now), weights)
    if sys.platform == "darwin":
        return Memory(total, macos.ceiling_bytes(total, now), macos.used_bytes(pid, now), weights)
    return Memory(total, NO_SYSTEM, NO_SYSTEM, weights)


def total_bytes(now: float) -> Reading[int]:
    """All memory of this machine."""
    try:
        return positive(psutil.virtual_memory().total, Origin(Kind.SYSTEM, "memory of the machine", now), "the machine's memory")
    except (psutil.Error, OSError, ValueError):
        return Unknown(Reason.NO_SOURCE, "this system does not tell how much memory it has")
