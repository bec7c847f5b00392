"""Imports without what a long-running process has no use for."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

TERMINAL_EXTRAS = ("rich", "httpx._main")
"""structlog and httpx load rich, pygments and click where they find them, for tracebacks and a command line: 4 MB that a daemon never uses."""


@contextmanager
def without(*modules: str) -> Iterator[None]:
    """Inside, the named modules look as if they were not installed, unless they are loaded already."""
    hidden = [name for name in modules if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type] # None is how the import system spells "not there".
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]
