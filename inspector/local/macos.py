"""Memory of a process on macOS: its footprint, and what graphics work may wire of the memory that all share.

Written after Apple's headers and users' reports, tested with recorded outputs; it was not run on a Mac.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import Any

import psutil

from inspector.reading import Kind, Origin, Reading, Reason, Unknown, positive

SYSCTL = ("/usr/sbin/sysctl", "-n", "iogpu.wired_limit_mb")
SYSCTL_SECONDS = 2.0

LEAST_SHARE = 2 / 3
"""Of the memory, what macOS lets graphics work wire when no limit is set: reports go from here to 0.84."""

NO_FOOTPRINT = Unknown(
    Reason.NOT_REPORTED, "this psutil does not tell a process's footprint, and resident memory is far from it on macOS: install a newer psutil"
)


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


def used_bytes(pid: int, now: float, look: Callable[[int], Any] | None = None) -> Reading[int]:
    """The footprint, graphics memory included. Resident memory is no substitute: compressed weights vanish from it."""
    try:
        seen = (look or _memory_info)(pid)
    except psutil.AccessDenied:
        return Unknown(Reason.UNAUTHORIZED, "the memory of the server's process may not be looked at: run the inspector as the server's user")
    except (psutil.Error, OSError, ValueError):
        return Unknown(Reason.NO_SOURCE, f"the memory of process {pid} cannot be looked at")
    footprint = getattr(seen, "phys_footprint", None)
    return NO_FOOTPRINT if footprint is None else positive(footprint, Origin(Kind.SYSTEM, f"footprint of pid {pid}", now), "the footprint")


def _wired_limit() -> str | None:
    try:
        return subprocess.run(SYSCTL, capture_output=True, text=True, timeout=SYSCTL_SECONDS, check=True, stdin=subprocess.DEVNULL).stdout  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return None


def _memory_info(pid: int) -> Any:
    """`memory_info_ex` came to psutil in 2026."""
    process = psutil.Process(pid)
    more = getattr(process, "memory_info_ex", None)
    return more() if more is not None else process.memory_info()
