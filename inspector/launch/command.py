"""Finding an engine's server command in an argv: the program itself, a Python module or script, or either behind a wrapper. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePath

from inspector.contract import FlagTable

PYTHON = re.compile(r"(?:python|pypy)[\d.]*")

PYTHON_TAKES_VALUE = frozenset({"-W", "-X", "--check-hash-based-pycs"})

WRAPPERS = frozenset(
    {
        "caffeinate", "chrt", "conda", "doas", "dumb-init", "env", "exec", "gosu", "ionice", "mlx.launch", "nice", "nohup", "numactl", "pipx", "poetry",
        "runuser", "setarch", "setsid", "stdbuf", "su-exec", "sudo", "taskset", "time", "timeout", "tini", "uv", "uvx",
    }
)  # fmt: skip
"""Programs that run the program named in their arguments."""

WRAPPER_WORDS = frozenset({"run", "tool", "exec"})

PASSED_OVER = re.compile(r"-.*|[A-Za-z_]\w*=.*|\d.*", re.DOTALL)
"""A wrapper's options, assignments to the environment, and numbers (a priority, a mask, a time)."""


def server_argv(argv: Sequence[str], table: FlagTable) -> list[str] | None:
    """The arguments after the engine's server command; None when the argv is not such a server's."""
    behind_wrapper = after_option = False
    for index, argument in enumerate(argv):
        program = argument.rpartition("/")[2]
        after = _after_command(argv, index, table)
        if after is not None:
            return after
        if PYTHON.fullmatch(program):
            return _after_python(argv, index + 1, table)
        if program in WRAPPERS:
            behind_wrapper = True
        elif not behind_wrapper or not (after_option or argument in WRAPPER_WORDS or PASSED_OVER.fullmatch(argument)):
            return None
        # The word after a wrapper's option may be the option's value.
        after_option = argument.startswith("-") and "=" not in argument
    return None


def _after_command(argv: Sequence[str], index: int, table: FlagTable) -> list[str] | None:
    """What follows a command of the table that stands at `index`; a command of several words needs them all."""
    if index >= len(argv):
        return None
    dotted = ".".join(part for part in PurePath(argv[index]).parts if part != "/").removesuffix(".py")
    for command in table.commands:
        first, *others = command.split()
        end = index + 1 + len(others)
        if (dotted == first or dotted.endswith("." + first)) and list(argv[index + 1 : end]) == others:
            return list(argv[end:])
    return None


def _after_python(argv: Sequence[str], index: int, table: FlagTable) -> list[str] | None:
    """What follows `-m MODULE` or a script's path."""
    while index < len(argv):
        argument = argv[index]
        if argument == "-m":
            return _after_command(argv, index + 1, table)
        if argument == "-c":
            return None
        if not argument.startswith("-"):
            return _after_command(argv, index, table)
        index += 2 if argument in PYTHON_TAKES_VALUE else 1
    return None
