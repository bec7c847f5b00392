"""launchd property lists, XML and binary -> the command. launchd expands neither `~` nor variables. Pure."""

from __future__ import annotations

import plistlib
import struct
from collections.abc import Iterator
from typing import Any
from xml.parsers.expat import ExpatError

from inspector.launch.files.command import Command, UnreadableError

REFUSALS = (
    plistlib.InvalidFileException, ExpatError, struct.error, ValueError, TypeError, LookupError, AttributeError, OverflowError, MemoryError, RecursionError,
)  # fmt: skip
"""All that plistlib is known to raise for a broken list."""


def plist_commands(raw: bytes) -> Iterator[Command]:
    """The command of a launch agent or daemon. Raises UnreadableError."""
    content = _content(raw)
    arguments, program = content.get("ProgramArguments"), content.get("Program")
    if arguments is None and isinstance(program, str):
        arguments = [program]
    if not isinstance(arguments, list) or not arguments or not all(isinstance(word, str) for word in arguments):
        raise UnreadableError("has no ProgramArguments that are a list of text", "name the property list that starts the server")
    # `Program` is what runs; the first argument is then only the name it is told.
    argv = (program, *arguments[1:]) if isinstance(program, str) else tuple(arguments)
    variables = content.get("EnvironmentVariables")
    environ = {str(name): value for name, value in variables.items() if isinstance(value, str)} if isinstance(variables, dict) else {}
    label = content.get("Label")
    yield Command(argv, environ, frozenset({label} if isinstance(label, str) else ()))


def _content(raw: bytes) -> dict[str, Any]:
    try:
        content = plistlib.loads(raw)
    except REFUSALS:
        raise UnreadableError("is not a valid property list", "check it with: plutil -lint FILE") from None
    if not isinstance(content, dict):
        raise UnreadableError("is not the property list of a launch agent", "name the property list that starts the server")
    return content
