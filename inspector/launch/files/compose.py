"""Compose files -> the command of each service."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

from inspector.launch.files.command import MAYBE_WORDS, UNRESOLVED, Command, Growth, UnreadableError
from inspector.launch.files.environment_file import Dialect, environment
from inspector.launch.files.files import Files
from inspector.launch.files.shell_scope import HOME
from inspector.launch.files.shell_words import closing
from inspector.launch.files.yaml_text import Data, mapping, sequence, texts

VARIABLE = re.compile(r"\$(?:(\$)|([A-Za-z_]\w*)|\{)")
INSIDE = re.compile(r"([A-Za-z_]\w*)(?:(:?[-?+])(.*))?", re.DOTALL)
LONGEST_COMMAND = 128 * 1024
DEEPEST = 8
"""Defaults inside defaults."""


def compose_commands(document: Data, path: Path, files: Files) -> Iterator[Command]:
    """The commands of all services. Raises UnreadableError."""
    services = mapping(mapping(document).get("services"))
    if not services:
        raise UnreadableError("has no services", "name the Compose file that starts the server")
    put_in, missing = _variables(path.parent, files)
    if "include" in mapping(document):
        missing = (*missing, "included files were not read")
    for name, service in services.items():
        yield _command(name, mapping(service), _Reader(put_in, path.parent, files), missing)


class _Reader:
    """Reads values of one service: text with its variables put in."""

    def __init__(self, interpolation: Interpolation, folder: Path, files: Files) -> None:
        self.text = interpolation.text
        self.folder = folder
        self.files = files

    def words(self, value: Data) -> list[str]:
        """A command or entry point: a list, or text that is split as a shell does, where `#` begins no remark."""
        if isinstance(value, str):
            return split(self.text(value).replace(UNRESOLVED, MAYBE_WORDS))
        return [self.text(item) for item in texts(value)]

    def environment(self, value: Data) -> dict[str, str]:
        """A mapping, or a list of NAME=value. A name without a value comes from the environment of whoever runs Compose."""
        if isinstance(value, dict):
            return {name: self.text(item) if isinstance(item, str) else UNRESOLVED for name, item in value.items()}
        pairs = (self.text(item).partition("=") for item in texts(value))
        return {name: item if equals else UNRESOLVED for name, equals, item in pairs}

    def environment_files(self, value: Data) -> tuple[dict[str, str], tuple[str, ...]]:
        environ: dict[str, str] = {}
        missing: list[str] = []
        for item in sequence(value) if isinstance(value, list) else [value]:
            name = mapping(item).get("path") if isinstance(item, dict) else item
            if not isinstance(name, str):
                continue
            name = self.text(name)
            text = None if UNRESOLVED in name else self.files.optional(self.folder / name)
            if text is None:
                missing.append(f"the environment file {Path(name).name} was not read")
                environ = dict.fromkeys(environ, UNRESOLVED)
            else:
                environ |= environment(text, Dialect.COMPOSE)
        return environ, tuple(missing)


def _command(name: str, service: Mapping[str, Data], reader: _Reader, missing: tuple[str, ...]) -> Command:
    entry, arguments = reader.words(service.get("entrypoint")), reader.words(service.get("command"))
    environ, unread = reader.environment_files(service.get("env_file"))
    environ |= reader.environment(service.get("environment"))
    missing = (*missing, *unread, *(("the service that it extends was not read",) if "extends" in service else ()))
    image, container = service.get("image"), service.get("container_name")
    names = frozenset({name, container} if isinstance(container, str) else {name})
    # An image that Compose builds is not known either; it has its own entry point.
    image = "" if entry or "entrypoint" in service else reader.text(image) if isinstance(image, str) else "built"
    return Command((*entry, *arguments), environ, names, image or None, missing)


class Interpolation:
    """Puts the variables of Compose into text. `variables` None: they were not read, so defaults are not sure either."""

    def __init__(self, variables: Mapping[str, str] | None) -> None:
        self._variables = variables
        self._growth = Growth()

    def text(self, text: str, depth: int = 0) -> str:
        parts: list[str] = []
        at = 0
        while found := VARIABLE.search(text, at):
            parts.append(text[at : found.start()])
            end = found.end()
            if found[1]:
                parts.append("$")
            elif found[2]:
                parts.append(self._value(found[2], depth))
            else:
                close = closing(text, found.end() - 1)
                parts.append(self._value(text[found.end() : close], depth))
                end = close + 1
            at = end
        return self._growth.spend("".join([*parts, text[at:]]))

    def _value(self, inside: str, depth: int) -> str:
        found = INSIDE.fullmatch(inside)
        if found is None or depth > DEEPEST or self._variables is None:
            return UNRESOLVED
        if found[1] == "HOME":
            return HOME
        value, operator = self._variables.get(found[1]), found[2] or ""
        is_set = bool(value) if operator.startswith(":") else value is not None
        if operator.endswith("+"):
            return self.text(found[3], depth + 1) if is_set else UNRESOLVED
        if value is not None and (is_set or not operator):
            return self._growth.spend(value)
        # What the file does not settle, the environment of whoever runs Compose may.
        return self.text(found[3], depth + 1) if operator.endswith("-") else UNRESOLVED


def split(text: str) -> list[str]:
    """The words of a command line. Raises UnreadableError."""
    if len(text) > LONGEST_COMMAND:
        raise UnreadableError("has a command that is longer than a system takes", "name the file that starts the server")
    try:
        return shlex.split(text)
    except ValueError:
        raise UnreadableError("has a command with a quote that is not closed", "look for a missing quote") from None


def _variables(folder: Path, files: Files) -> tuple[Interpolation, tuple[str, ...]]:
    """Those of the `.env` beside the file, which Compose reads by itself."""
    path = folder / ".env"
    if not files.is_there(path):
        return Interpolation({}), ()
    text = files.optional(path)
    if text is None:
        return Interpolation(None), ("the file .env was not read",)
    return Interpolation(environment(text, Dialect.COMPOSE)), ()
