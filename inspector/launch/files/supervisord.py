"""supervisord's INI files -> the command of each program. Pure."""

from __future__ import annotations

import configparser
import re
import shlex
from collections.abc import Iterator

from inspector.launch.files.command import MAYBE_WORDS, Command, UnreadableError
from inspector.launch.files.compose import split

PROGRAM = re.compile(r"(?:program|fcgi-program|eventlistener):(.+)")
EXPANSION = re.compile(r"%(?:%|\([^)]*\)[sd]?)")


def supervisord_commands(text: str) -> Iterator[Command]:
    """The commands of all programs. Raises UnreadableError."""
    parser = configparser.RawConfigParser(strict=False, inline_comment_prefixes=(";", "#"), default_section="")
    try:
        parser.read_string(text)
    except configparser.Error:
        # Its own text would repeat lines of the file.
        raise UnreadableError("is not a valid INI file", "look for a line without a section or a value") from None
    common = _environment(_value(parser, "supervisord", "environment"))
    missing = ("included files were not read",) if parser.has_section("include") else ()
    for section in parser.sections():
        program = PROGRAM.fullmatch(section)
        command = _value(parser, section, "command") if program is not None else None
        if program is None or command is None:
            continue
        environ = {**common, **_environment(_value(parser, section, "environment"))}
        yield Command(tuple(split(command)), environ, frozenset({program[1].strip()}), missing=missing)


def _value(parser: configparser.RawConfigParser, section: str, key: str) -> str | None:
    """A value; what supervisord itself would put in is unresolved."""
    value = parser.get(section, key, fallback=None)
    if value is None:
        return None
    return EXPANSION.sub(lambda found: "%" if found[0] == "%%" else MAYBE_WORDS, value)


def _environment(text: str | None) -> dict[str, str]:
    """`A="b",C=d`."""
    lexer = shlex.shlex(text or "", posix=True)
    lexer.wordchars += "/.+-():@*%${}~!&[]?^"
    try:
        found = list(lexer)
    except ValueError:
        raise UnreadableError("has an environment with a quote that is not closed", "look for a missing quote") from None
    return {name: value for name, equals, value in zip(found, found[1:], found[2:], strict=False) if equals == "="}
