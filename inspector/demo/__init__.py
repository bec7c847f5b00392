"""What `inspector demo` puts the inspector on: a tiny model, a real llama.cpp server in a child process, and a little traffic.

Nothing else of the inspector may import this package: the demo generates tokens, the inspector never does.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class DemoError(RuntimeError):
    """The demo cannot run; the text says why and what to do."""


@contextmanager
def needs_extra() -> Iterator[None]:
    """Turn the import error of a package of the `demo` extra into one that names the remedy."""
    try:
        yield
    except ImportError as error:
        missing = error.name or "a package"
        raise DemoError(f"the demo needs {missing}, which is not installed: pip install 'inference-inspector[demo]'") from error
