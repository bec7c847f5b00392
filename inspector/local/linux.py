"""Memory of a process on Linux: its proportional share of the pages it touches (PSS), or all of them (RSS), and the limits of its control groups."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from inspector.reading import Kind, Known, Origin, Reading, Reason, Unknown

PSS_UP_TO = 2 * 2**30
"""Resident bytes above which PSS is not asked for: the kernel walks every page for it, while the process waits for its memory map."""

NO_LIMIT = 2**60
"""A version 1 limit above this is none."""

PSS = re.compile(rb"^Pss:\s+(\d+) kB$", re.MULTILINE)
HIERARCHICAL = re.compile(rb"^hierarchical_memory_limit (\d+)$", re.MULTILINE)

GONE = Unknown(Reason.NO_SOURCE, "the memory of the server's process cannot be read: it ended, or /proc is hidden")
LIMIT_NOT_SEEN = "the control group of the server's process cannot be seen from here, so its limit is not known"


def used_bytes(pid: int, now: float, proc: Path = Path("/proc")) -> Reading[int]:
    """Memory of the process and those below it. The source says what was added up."""
    try:
        pids = list(_family(pid, proc))
        resident = sum(_resident(each, proc) for each in pids)
    except (OSError, ValueError, IndexError):
        return GONE
    if resident == 0:
        return GONE  # An ended process that nobody has waited for yet.
    whom = f"pid {pid}" if len(pids) == 1 else f"pid {pid} and {len(pids) - 1} below it"
    shares = [_proportional(each, proc) for each in pids] if resident <= PSS_UP_TO else [None]
    if any(share is None for share in shares):
        return Known(resident, Origin(Kind.SYSTEM, f"RSS of {whom}", now))
    return Known(sum(share for share in shares if share is not None), Origin(Kind.SYSTEM, f"PSS of {whom}", now))


def ceiling_bytes(pid: int, total: Reading[int], now: float, proc: Path = Path("/proc"), mounts: Path = Path("/sys/fs/cgroup")) -> Reading[int]:
    """The lowest limit of the process's control group and those above it, not of ours; without one, the machine's memory."""
    try:
        limits = list(_limits(pid, proc, mounts))
    except (OSError, ValueError):
        bounds = (None, total.value) if isinstance(total, Known) else None
        return Unknown(Reason.NO_SOURCE, LIMIT_NOT_SEEN, bounds)
    limit = min(limits, default=None)
    if limit is None or (isinstance(total, Known) and limit >= total.value):
        return total
    return Known(limit, Origin(Kind.SYSTEM, "limit of the control group", now))


def _family(pid: int, proc: Path) -> Iterator[int]:
    """A process and all below it."""
    yield pid
    for thread in (proc / str(pid) / "task").iterdir():
        try:
            below = (thread / "children").read_text().split()
        except OSError:
            continue  # The thread ended, or this kernel does not tell.
        for child in below:
            try:
                yield from _family(int(child), proc)
            except OSError:
                continue


def _resident(pid: int, proc: Path) -> int:
    return int((proc / str(pid) / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _proportional(pid: int, proc: Path) -> int | None:
    """PSS in bytes, None where it is not ours to see."""
    try:
        found = PSS.search((proc / str(pid) / "smaps_rollup").read_bytes())
    except OSError:
        return None
    return int(found[1]) * 1024 if found else None


def _limits(pid: int, proc: Path, mounts: Path) -> Iterator[int]:
    """Limits on the way from the process's group to the root. Raises OSError where the group cannot be seen."""
    for line in (proc / str(pid) / "cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "" and (mounts / "cgroup.controllers").exists():
            yield from _unified_limits(pid, path, proc, mounts)
        elif "memory" in controllers.split(","):
            group = _group(pid, path, line, proc, mounts / "memory")
            # This one figure holds for all groups above, too.
            found = HIERARCHICAL.search((group / "memory.stat").read_bytes())
            if found and int(found[1]) < NO_LIMIT:
                yield int(found[1])


def _unified_limits(pid: int, path: str, proc: Path, mounts: Path) -> Iterator[int]:
    group = _group(pid, path, f"0::{path}", proc, mounts)
    top = group if not group.is_relative_to(mounts) else mounts
    for each in (group, *(parent for parent in group.parents if parent.is_relative_to(top))):
        # The root of all groups has no such file.
        limit = (each / "memory.max").read_text().strip() if (each / "memory.max").exists() else "max"
        if limit != "max":
            yield int(limit)


def _group(pid: int, path: str, line: str, proc: Path, mounts: Path) -> Path:
    """The folder of a process's control group, in our view of them, or in that of the process."""
    parts = Path(path.removeprefix("/"))
    if ".." not in parts.parts and (mounts / parts).is_dir():
        return mounts / parts
    if line in (proc / "self" / "cgroup").read_text().splitlines():
        return mounts  # Our own group, of which a container sees the root only.
    inside = proc / str(pid) / "root" / mounts.relative_to("/")
    if ".." in parts.parts and inside.is_dir():
        return inside
    raise FileNotFoundError
