"""The text of systemd units and quadlets -> entries, and their values -> words. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from inspector.launch.files.command import MAYBE_WORDS, UNRESOLVED, Growth, UnreadableError, unclosed

MOST_WORDS = 10_000
SPECIFIER = re.compile(r"%(.)", re.DOTALL)
SPECIFIED = {"%": "%", "h": "~"}
BRACED = re.compile(r"\$\{([A-Za-z_]\w*)\}")
BARE = re.compile(r"\$([A-Za-z_]\w*)")
ESCAPE = re.compile(r"\\(x[0-9A-Fa-f]{2}|[0-7]{3}|u[0-9A-Fa-f]{4}|.)", re.DOTALL)
ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "s": " "}
TOKEN = re.compile(r"""(?P<plain>[^\s\\'"]+)|(?P<escape>\\.)|(?P<quote>["'])|(?P<blank>\s+)|(?P<end>\\$)""", re.DOTALL)
IN_QUOTES = {'"': re.compile(r'((?:[^"\\]|\\.)*)"', re.DOTALL), "'": re.compile(r"((?:[^'\\]|\\.)*)'", re.DOTALL)}


@dataclass
class Unit:
    """The entries of a unit with its drop-ins, by section and key; an empty value has thrown away those before it."""

    entries: dict[tuple[str, str], list[str]] = field(default_factory=dict, repr=False)

    def add(self, text: str) -> None:
        for section, key, value in _lines(text):
            kept = self.entries.setdefault((section, key), [])
            if value:
                kept.append(value)
            else:
                kept.clear()

    def all(self, section: str, key: str) -> list[str]:
        return self.entries.get((section, key), [])

    def last(self, section: str, key: str) -> str | None:
        values = self.all(section, key)
        return values[-1] if values else None


def _lines(text: str) -> Iterator[tuple[str, str, str]]:
    section, begun = "", ""
    for line in text.split("\n"):
        stripped = line.strip()
        # A remark may stand inside a value that goes on.
        if stripped.startswith(("#", ";")):
            continue
        if stripped.endswith("\\"):
            begun += stripped[:-1] + " "
            continue
        whole, begun = (begun + stripped).strip(), ""
        if whole.startswith("[") and whole.endswith("]"):
            section = whole[1:-1]
        elif "=" in whole:
            key, _, value = whole.partition("=")
            yield section, key.strip(), value.strip()


def words(text: str) -> list[str]:
    """The words of a value: parted by white space, quotes taken off, C escapes read, specifiers such as %i unresolved. Raises UnreadableError."""
    done: list[str] = []
    open_word: str | None = None
    at = 0
    while found := TOKEN.match(text, at):
        at = found.end()
        if len(done) > MOST_WORDS:
            raise UnreadableError("has a command that is longer than a server's", "name the unit that starts the server")
        if found.lastgroup == "blank":
            if open_word is not None:
                done.append(_specified(open_word))
            open_word = None
            continue
        part = found[0]
        if found.lastgroup == "quote" and open_word is None:
            inside = IN_QUOTES[part].match(text, at)
            if inside is None:
                raise unclosed("a quote")
            part, at = ESCAPE.sub(_unescaped, inside[1]), inside.end()
        elif found.lastgroup == "escape":
            whole = ESCAPE.match(text, found.start())
            part, at = (_unescaped(whole), whole.end()) if whole is not None else (part, at)
        open_word = (open_word or "") + part
    return [*done, _specified(open_word)] if open_word is not None else done


def assignments(values: Iterable[str]) -> dict[str, str]:
    """The variables of `Environment=` lines."""
    pairs = (word.partition("=") for value in values for word in words(value))
    return {name: value for name, equals, value in pairs if equals}


def expanded(arguments: Iterable[str], variables: Mapping[str, str], growth: Growth) -> list[str]:
    """Arguments with their variables: `$NAME` as a word of its own becomes the words of its value, `${NAME}` stays part of one word.

    What the unit does not set may come from the service manager: it is unresolved."""
    done: list[str] = []
    for argument in arguments:
        bare = BARE.fullmatch(argument)
        if bare is not None:
            done += growth.spend(variables.get(bare[1], UNRESOLVED)).replace(UNRESOLVED, MAYBE_WORDS).split()
        else:
            parts = [BRACED.sub(lambda found: growth.spend(variables.get(found[1], UNRESOLVED)), part) for part in argument.split("$$")]
            done.append("$".join(parts))
    return done


def _specified(word: str) -> str:
    return SPECIFIER.sub(lambda found: SPECIFIED.get(found[1], UNRESOLVED), word)


def _unescaped(found: re.Match[str]) -> str:
    code = found[1]
    if code[0] in "xu" and len(code) > 1:
        return chr(int(code[1:], 16))
    if len(code) == 3:
        return chr(int(code, 8))
    return ESCAPES.get(code, code if code in "\\\"'" else found[0])
