"""Keys that are read while they are pressed, and a terminal that is afterwards as it was before."""

from __future__ import annotations

import contextlib
import os
import re
import termios
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from enum import Enum

import anyio

INPUT, LOCAL, CHARACTERS = 0, 3, 6
"""Where the parts of a terminal's attributes stand."""


class Key(Enum):
    QUIT = "quit"
    NEXT = "next"
    PREVIOUS = "previous"


KEYS = {b"q": Key.QUIT, b"j": Key.NEXT, b"k": Key.PREVIOUS, b"\x1b[B": Key.NEXT, b"\x1bOB": Key.NEXT, b"\x1b[A": Key.PREVIOUS, b"\x1bOA": Key.PREVIOUS}
"""What a terminal sends for a key; arrows in both of their modes."""

_KNOWN = re.compile(b"|".join(re.escape(sent) for sent in KEYS) + rb"|\x1b[\[O][0-9;]*[ -~]")


@contextmanager
def unbuffered(terminal: int) -> Iterator[None]:
    """Keys come at once and are not echoed while the block lasts. Neither can the output be halted (Ctrl-S) nor the program (Ctrl-Z), which would
    leave the shell with our screen; Ctrl-C works as ever."""
    before = termios.tcgetattr(terminal)
    mode = termios.tcgetattr(terminal)
    mode[INPUT] &= ~termios.IXON
    mode[LOCAL] &= ~(termios.ECHO | termios.ICANON)
    mode[CHARACTERS][termios.VMIN], mode[CHARACTERS][termios.VTIME] = 1, 0
    mode[CHARACTERS][termios.VSUSP] = bytes([os.fpathconf(terminal, "PC_VDISABLE")])
    termios.tcsetattr(terminal, termios.TCSANOW, mode)
    try:
        yield
    finally:
        with contextlib.suppress(termios.error):  # The terminal was closed: there is nothing left to restore.
            termios.tcsetattr(terminal, termios.TCSANOW, before)
            termios.tcflush(terminal, termios.TCIFLUSH)


async def pressed(terminal: int) -> AsyncIterator[Key]:
    """The keys that mean something, until the terminal is closed."""
    while True:
        await anyio.wait_readable(terminal)
        try:
            sent = os.read(terminal, 1024)
        except OSError:
            return
        if not sent:
            return
        for found in _KNOWN.findall(sent):
            if found in KEYS:
                yield KEYS[found]
