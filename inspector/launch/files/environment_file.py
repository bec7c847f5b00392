"""Environment files -> variables, in the three ways that they are read. Pure."""

from __future__ import annotations

import re
from enum import StrEnum

from inspector.launch.files.command import UNRESOLVED

LINE = re.compile(r"(?:export\s+)?([A-Za-z_][\w.]*)\s*=(.*)", re.DOTALL)
ESCAPE = re.compile(r"\\(.)", re.DOTALL)


class Dialect(StrEnum):
    SYSTEMD = "systemd"
    """Quotes are taken off, a line may go on behind a backslash, nothing is expanded."""
    COMPOSE = "compose"
    """Quotes are taken off, remarks may follow a value, variables are expanded."""
    PLAIN = "plain"
    """As `docker run --env-file` reads it: every value as it stands."""


def environment(text: str, dialect: Dialect) -> dict[str, str]:
    """The variables of an environment file."""
    if dialect is Dialect.SYSTEMD:
        text = text.replace("\\\n", "")
    variables: dict[str, str] = {}
    for line in text.split("\n"):
        stripped = line.strip()
        found = None if stripped.startswith(("#", ";")) else LINE.fullmatch(stripped)
        if found is not None:
            variables[found[1]] = found[2] if dialect is Dialect.PLAIN else _value(found[2].strip(), dialect)
    return variables


def _value(text: str, dialect: Dialect) -> str:
    quote = text[:1]
    if quote in ("'", '"'):
        end = _end_of_quote(text, quote)
        inside = text[1:end]
        if quote == "'":
            return inside
        text = ESCAPE.sub(r"\1", inside)
    elif dialect is Dialect.COMPOSE:
        text = re.split(r"\s#", text, maxsplit=1)[0].rstrip()
    else:
        text = ESCAPE.sub(r"\1", text)
    return UNRESOLVED if dialect is Dialect.COMPOSE and "$" in text else text


def _end_of_quote(text: str, quote: str) -> int:
    at = 1
    while at < len(text) and text[at] != quote:
        at += 2 if text[at] == "\\" and quote == '"' else 1
    return at
