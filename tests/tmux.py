"""A terminal of a given size, with a shell in it: a tmux server of its own, which ends with the block."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from tempfile import TemporaryDirectory

from tools import tool

PATIENCE = 60.0
"""Seconds for something to appear on a busy machine."""

_numbers = count()


@dataclass
class Tmux:
    """One window. What is typed goes to its shell or to what runs in it."""

    program: str
    socket: str
    environment: Mapping[str, str] = field(repr=False)

    def __call__(self, *words: str) -> str:
        done = subprocess.run(
            [self.program, "-u", "-L", self.socket, "-f", os.devnull, *words],
            env=dict(self.environment), capture_output=True, text=True, encoding="utf-8", check=True, timeout=PATIENCE,
        )  # fmt: skip
        return done.stdout

    def screen(self) -> list[str]:
        """What is to be seen, row by row."""
        return self("capture-pane", "-p").split("\n")[:-1]

    def type(self, text: str) -> None:
        self("send-keys", "-l", text)

    def press(self, *keys: str) -> None:
        """Keys by their tmux names: Enter, C-c, Down."""
        self("send-keys", *keys)

    def resize(self, columns: int, rows: int) -> None:
        self("resize-window", "-x", str(columns), "-y", str(rows))

    def about(self, name: str) -> str:
        """A fact of the window by its tmux name, such as `alternate_on` or `pane_pid`."""
        return self("display-message", "-p", f"#{{{name}}}").strip()

    def wait(self, condition: Callable[[str], bool]) -> str:
        """The screen as soon as it is as wanted, in one text. Fails with what it was at the end."""
        deadline = time.monotonic() + PATIENCE
        while True:
            shown = "\n".join(self.screen())
            if condition(shown):
                return shown
            assert time.monotonic() < deadline, f"the terminal shows:\n{shown}"
            time.sleep(0.1)


@contextmanager
def terminal(columns: int = 80, rows: int = 24, **environment: str) -> Iterator[Tmux]:
    """A plain shell, whose prompt is `$ `, in a window of this size."""
    kept = {name: value for name, value in os.environ.items() if name not in {"TMUX", "TMUX_PANE", "COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "ENV"}}
    with TemporaryDirectory(prefix="tmux-", ignore_cleanup_errors=True) as folder:
        settings = {"LC_ALL": "C.UTF-8", "PYTHONUTF8": "1", "PS1": "$ ", "TMUX_TMPDIR": folder, **environment}
        tmux = Tmux(tool("tmux"), f"inspector-{os.getpid()}-{next(_numbers)}", {**kept, **settings})
        tmux("new-session", "-d", "-x", str(columns), "-y", str(rows), "sh")
        try:
            yield tmux
        finally:
            tmux("kill-server")
