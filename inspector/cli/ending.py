"""How a process ends that ran for long: also where a thread of it never comes back."""

from __future__ import annotations

import os
import sys
import threading
import time

LAST_READS = 1.0
"""Seconds that threads get to end after all else has."""


def leave_stuck_threads() -> None:
    """Ends the process with 0 if a file does not answer, on a dead mount, say: Python would wait for the thread that reads it for ever."""
    deadline = time.monotonic() + LAST_READS
    for thread in threading.enumerate():
        if thread is threading.current_thread() or thread.daemon:
            continue
        thread.join(max(0.0, deadline - time.monotonic()))
        if thread.is_alive():
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)
