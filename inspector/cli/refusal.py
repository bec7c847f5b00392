"""What ends a command with a sentence instead of a traceback."""

from __future__ import annotations

from collections.abc import Iterable


class RefusedError(Exception):
    """A command that cannot be done: lines for stderr, and the exit code.

    3: what was typed or configured is not usable; 1: something on this machine is in the way."""

    def __init__(self, lines: Iterable[str], exit_code: int = 3) -> None:
        self.lines = tuple(lines)
        self.exit_code = exit_code
        super().__init__("\n".join(self.lines))
