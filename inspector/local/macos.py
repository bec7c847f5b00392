"""Memory of a process on macOS: its footprint, and what graphics work may wire of the memory that all share.

Written after Apple's headers and users' reports, tested with recorded outputs and a library that writes what the header says; it was not run on a Mac.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import subprocess
from collections.abc import Callable
from typing import Any

from inspector.reading import Kind, Origin, Reading, Reason, Unknown, positive

SYSCTL = ("/usr/sbin/sysctl", "-n", "iogpu.wired_limit_mb")
SYSCTL_SECONDS = 2.0

LEAST_SHARE = 2 / 3
"""Of the memory, what macOS lets graphics work wire when no limit is set: reports go from here to 0.84."""

RUSAGE_INFO_V2 = 2
"""The flavor of `proc_pid_rusage` that macOS has known since 10.9; each flavor has a structure of its own, and this one never changed."""

RUSAGE = struct.Struct("=16s18Q")
"""`struct rusage_info_v2` of <sys/resource.h>: the program's UUID, then eighteen numbers of 64 bits without gaps."""

FOOTPRINT = 8
"""Where `ri_phys_footprint` stands in it: after the UUID come user and system time, two kinds of wake-ups, page-ins, wired and resident size."""

SPARE_BYTES = 1024
"""So many the system may write beyond the structure that we know."""

NO_FOOTPRINT = Unknown(Reason.NOT_REPORTED, "this system does not tell a process's footprint, and resident memory is far from it on macOS")
NOT_OURS = Unknown(Reason.UNAUTHORIZED, "the memory of the server's process may not be looked at: run the inspector as the server's user")


def ceiling_bytes(total: Reading[int], now: float, run: Callable[[], str | None] | None = None) -> Reading[int]:
    """`iogpu.wired_limit_mb`. At 0, or without it, the system decides, and does not say how: then bounds only."""
    said = (run or _wired_limit)()
    limit = int(said) if said is not None and said.strip().isdecimal() else 0
    if limit > 0:
        return positive(limit * 2**20, Origin(Kind.SYSTEM, "iogpu.wired_limit_mb", now), "iogpu.wired_limit_mb")
    if isinstance(total, Unknown):
        return total
    bounds = (int(total.value * LEAST_SHARE), total.value)
    return Unknown(Reason.AMBIGUOUS, "macOS decides and does not say; at least two thirds of the memory: set iogpu.wired_limit_mb, or state `facts`", bounds)


def used_bytes(pid: int, now: float, library: Callable[[], Any] | None = None) -> Reading[int]:
    """The footprint, graphics memory included. Resident memory is no substitute: compressed weights vanish from it. `library` loads what has
    `proc_pid_rusage`."""
    try:
        footprint = _footprint((library or _system_library)(), pid)
    except PermissionError:
        return NOT_OURS
    except ProcessLookupError:
        return Unknown(Reason.NO_SOURCE, f"process {pid} does not run any more")
    except (OSError, AttributeError, ctypes.ArgumentError):
        return NO_FOOTPRINT
    return positive(footprint, Origin(Kind.SYSTEM, f"footprint of pid {pid}", now), "the footprint")


def _footprint(library: Any, pid: int) -> int:
    """Raises OSError where the system refuses, AttributeError where it has no such function."""
    ask = library.proc_pid_rusage
    ask.argtypes, ask.restype = (ctypes.c_int, ctypes.c_int, ctypes.c_void_p), ctypes.c_int
    answer = ctypes.create_string_buffer(RUSAGE.size + SPARE_BYTES)
    ctypes.set_errno(0)
    if ask(pid, RUSAGE_INFO_V2, answer) != 0:
        number = ctypes.get_errno() or errno.EIO
        raise OSError(number, os.strerror(number))
    return int(RUSAGE.unpack_from(answer)[FOOTPRINT])


def _system_library() -> Any:
    """What every program of macOS is linked with. Loaded already, so this is cheap."""
    return ctypes.CDLL("/usr/lib/libSystem.B.dylib", use_errno=True)


def _wired_limit() -> str | None:
    try:
        return subprocess.run(SYSCTL, capture_output=True, text=True, timeout=SYSCTL_SECONDS, check=True, stdin=subprocess.DEVNULL).stdout  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return None
