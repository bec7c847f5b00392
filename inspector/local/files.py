"""Files that a process's command line speaks of, as they are seen from here. Paths stay inside the core: no reading and no text holds one."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import psutil

from inspector.local.process import Process
from inspector.reading import Reason, Unknown

NOT_SEEN = Unknown(Reason.UNAUTHORIZED, "the server's files cannot be looked at from here: run the inspector as the server's user, in reach of its files")
GONE = Unknown(Reason.NO_SOURCE, "the server's process does not run any more")


def seen_from_here(process: Process, path: str) -> Path | Unknown:
    """Where a path of the process's command line lies, or would lie. A container's files are reached through its process."""
    try:
        if not path.startswith("/"):
            path = os.path.normpath(f"{psutil.Process(process.pid).cwd()}/{path}")
        # The folder of a process's root leads there whether or not it has file systems of its own.
        return Path(f"/proc/{process.pid}/root{path}") if _has_roots(process.pid) else Path(path)
    except (psutil.AccessDenied, PermissionError):
        return NOT_SEEN
    except (psutil.Error, OSError, ValueError):
        return GONE


def environ_of(process: Process) -> Mapping[str, str]:
    """The process's environment, as far as it may be seen."""
    return {} if isinstance(process.environ, Unknown) else process.environ


def _has_roots(pid: int) -> bool:
    if not sys.platform.startswith("linux"):
        return False
    Path(f"/proc/{pid}/root").readlink()  # Raises where we may not look.
    return True
