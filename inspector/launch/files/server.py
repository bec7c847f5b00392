"""Finding an engine's server in a command: the program itself, or inside `sh -c`, `docker run`, or an image whose entry point it is. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from inspector.contract import FlagTable
from inspector.launch.command import WRAPPERS, server_argv
from inspector.launch.files.command import MAYBE_WORDS, UNRESOLVED, Command
from inspector.launch.files.container_run import container_run
from inspector.launch.files.shell_script import script_commands

SHELLS = frozenset({"ash", "bash", "dash", "ksh", "sh", "zsh"})
ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
ASKS_ONLY = frozenset({"--version", "--help", "-h"})
DEEPEST = 4
"""Commands inside commands."""


def servers(command: Command, table: FlagTable, depth: int = 0) -> Iterator[Command]:
    """The engine's servers that a command starts; their argv are the arguments after the server's command."""
    argv = _with_interpreter(command.argv)
    after = server_argv(argv, table)
    if after is not None:
        if not ASKS_ONLY & set(after):
            yield replace(command, argv=tuple(after), environ={**command.environ, **_assigned(argv[: len(argv) - len(after)])}, image=None)
    elif command.image is not None and is_image(command.image, table):
        yield replace(command, image=None)
    elif depth < DEEPEST:
        for inner in _inside(command, table):
            yield from servers(inner, table, depth + 1)


def is_image(image: str, table: FlagTable) -> bool:
    """Whether an image's entry point is the engine's server: its last part, without registry and digest, begins as one of the table's."""
    return image.partition("@")[0].rpartition("/")[2].startswith(table.images) if table.images else False


def _inside(command: Command, table: FlagTable) -> Iterator[Command]:
    run = container_run(command, lambda word: is_image(word, table), lambda words: server_argv(words, table) is not None)
    if run is not None:
        yield run
        return
    at = _shell_at(command.argv)
    if at is None:
        return
    script, *arguments = command.argv[at:]
    for inner in script_commands(script, command.environ, arguments[1:]):
        yield replace(inner, names=command.names, missing=(*command.missing, *inner.missing))


def _shell_at(argv: Sequence[str]) -> int | None:
    """Where the text of a `sh -c TEXT` begins; the shell may stand behind wrappers."""
    if not argv or argv[0].rpartition("/")[2] not in SHELLS | WRAPPERS:
        return None
    shell = next((index for index, word in enumerate(argv) if word.rpartition("/")[2] in SHELLS), len(argv))
    for index in range(shell + 1, len(argv) - 1):
        word = argv[index]
        if not word.startswith(("-", "+")):
            return None
        if "c" in word and not word.startswith("--"):
            return index + 1
    return None


def _with_interpreter(argv: tuple[str, ...]) -> tuple[str, ...]:
    """`$PYTHON -m …` is a Python, whatever the variable holds."""
    return ("python", *argv[1:]) if len(argv) > 1 and argv[0].endswith((UNRESOLVED, MAYBE_WORDS)) and argv[1] == "-m" else argv


def _assigned(words: Sequence[str]) -> dict[str, str]:
    """The variables that `env` sets in front of the server's command."""
    if not any(word.rpartition("/")[2] == "env" for word in words):
        return {}
    return {found[1]: found[2] for word in words if (found := ASSIGNMENT.fullmatch(word)) is not None}
