"""Launch configurations: an argv and an environment become settings by an adapter's table of flags. Pure.

What is not in the table is dropped here and goes nowhere: a launch line holds keys and paths.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from inspector.contract import Flag, FlagKind, FlagTable, LaunchView
from inspector.reading import LARGEST_COUNT, Kind, Known, Origin, Reading, Reason, Unknown

VARIABLE = re.compile(r"\$(?:\{|[A-Za-z_])")
WHOLE = re.compile(r"[+-]?[0-9]{1,19}")
SIZE = re.compile(r"(?P<number>[0-9]{1,19}(?:\.[0-9]{1,9})?)(?P<unit>[A-Za-z]{1,2})")
DECIMAL_UNITS: Mapping[str, int] = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "MB": 10**6, "GB": 10**9}
BINARY_UNITS: Mapping[str, int] = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
"""As vLLM reads sizes: small letters are decimal and may have a fraction, large ones are binary."""

DECIMAL_SIZE = re.compile(r"(?P<number>[0-9]{1,19}(?:\.[0-9]{1,9})?) ?(?P<unit>(?:[MmGg][Bb]?)?)")
DECIMAL_SIZE_UNITS: Mapping[str, int] = {"": 1, "M": 10**6, "MB": 10**6, "G": 10**9, "GB": 10**9}

LONGEST_NAME = 200

SWITCH_WORDS: Mapping[str, bool] = {
    "1": True, "true": True, "on": True, "enabled": True,
    "0": False, "false": False, "off": False, "disabled": False,
}  # fmt: skip
"""As llama.cpp reads them: no other words, no other case."""


@dataclass(frozen=True, slots=True)
class Spelling:
    """One way to write a flag; `on` is what a switch becomes by it."""

    flag: Flag
    on: bool


@dataclass(frozen=True, slots=True)
class Given:
    """One occurrence of a known flag in an argv. `value` None: nothing was written where a value belongs, or none belongs there."""

    spelling: Spelling
    value: str | None


def settings(argv: Sequence[str], environ: Mapping[str, str], table: FlagTable, *, path: str, live: bool, at: float) -> LaunchView:
    """The settings that these arguments (those after the server's command, see `server_argv`) and this environment state. argv wins.

    `path` names the source (no path of a launch line), `at` is when it was read (Unix seconds).
    """
    origin = Origin(Kind.LAUNCH, path, at)
    found: dict[str, Reading[Any]] = {}
    for flag in table.flags:
        reading = _from_environ(flag, environ, origin)
        if reading is not None:
            found[flag.name] = reading
    unresolved = False
    for item in _occurrences(argv, table):
        if isinstance(item, Given):
            found[item.spelling.flag.name] = _from_argument(item, origin)
        else:
            unresolved = unresolved or VARIABLE.search(item) is not None
            found |= {flag.name: _unclear(flag) for flag in _perhaps_meant(item, table)}
    # A live argv has no variables left; in a file, one that stands alone may hold any flag.
    missing = "an argument is a variable that is not resolved" if unresolved and not live else ""
    return LaunchView(path, live, found, at, missing)


def values_of(argv: Sequence[str], environ: Mapping[str, str], table: FlagTable, names: Sequence[str]) -> tuple[str, ...]:
    """What the named flags were given, as it stands there: paths, which must stay inside the core. The last occurrence counts, argv wins."""
    found = {flag.name: environ[name] for flag in table.flags if flag.name in names for name in flag.env if name in environ}
    for item in _occurrences(argv, table):
        if isinstance(item, Given) and item.spelling.flag.name in names and item.value is not None:
            found[item.spelling.flag.name] = item.value
    return tuple(found[name] for name in names if name in found)


def _occurrences(argv: Sequence[str], table: FlagTable) -> Iterator[Given | str]:
    """Known flags with their values, and all other arguments as they stand; a positional one last, for it counts before its flag."""
    positional = _positional(argv, table)
    yield from _written(argv if positional is None else argv[1:], table)
    if positional is not None:
        yield positional


def _positional(argv: Sequence[str], table: FlagTable) -> Given | None:
    """The first argument, where it stands for a flag. A later word may be the value of a flag that the table lacks; a variable may hold anything."""
    flag = next((flag for flag in table.flags if flag.name == table.positional), None)
    if flag is None or not argv or argv[0].startswith("-") or VARIABLE.search(argv[0]):
        return None
    return Given(Spelling(flag, on=True), argv[0])


def _written(argv: Sequence[str], table: FlagTable) -> Iterator[Given | str]:
    spellings = _spellings(table)
    index = 0
    while index < len(argv):
        argument = argv[index]
        index += 1
        if argument == "--":
            return
        name, equals, value = argument.partition("=")
        spelling = _spelling(name, spellings, table) if argument.startswith("-") else None
        if spelling is None:
            yield argument
        elif equals:
            yield Given(spelling, value)
        elif spelling.flag.kind is FlagKind.SWITCH:
            yield Given(spelling, None)
        elif index < len(argv) and _is_value(argv[index], spellings, table):
            yield Given(spelling, argv[index])
            index += 1
        else:
            yield Given(spelling, None)


def _spellings(table: FlagTable) -> dict[str, Spelling]:
    written = ((text, Spelling(flag, on)) for flag in table.flags for on, texts in ((True, flag.spellings), (False, flag.off)) for text in texts)
    return {_normal(text, table): spelling for text, spelling in written}


def _spelling(name: str, spellings: Mapping[str, Spelling], table: FlagTable) -> Spelling | None:
    name = _normal(name, table)
    if name in spellings or not table.unique_prefixes or not name.startswith("--") or name == "--":
        return spellings.get(name)
    meant = {spelling for text, spelling in spellings.items() if text.startswith(name)}
    return meant.pop() if len(meant) == 1 else None


def _perhaps_meant(argument: str, table: FlagTable) -> set[Flag]:
    """Flags of which an argument is the common beginning. The server took it, so its version lacks all of them but one; which one is not known here."""
    name = _normal(argument.partition("=")[0], table)
    if not table.unique_prefixes or not name.startswith("--") or name == "--":
        return set()
    return {spelling.flag for text, spelling in _spellings(table).items() if text.startswith(name)}


def _unclear(flag: Flag) -> Unknown:
    return Unknown(Reason.AMBIGUOUS, f"an argument is shortened so that it may mean {flag.name} or another flag")


def _normal(name: str, table: FlagTable) -> str:
    return name.replace("_", "-") if table.dashes and name.startswith("--") else name


def _is_value(argument: str, spellings: Mapping[str, Spelling], table: FlagTable) -> bool:
    """Whether an argument is the value of the flag before it: all but another known flag. -1 is a number."""
    return not argument.startswith("-") or _spelling(argument.partition("=")[0], spellings, table) is None


def _from_argument(given: Given, origin: Origin) -> Reading[Any]:
    flag = given.spelling.flag
    if flag.kind is FlagKind.GIVEN:
        return Known(True, origin)
    if flag.kind is not FlagKind.SWITCH:
        return _refused(flag, "has no value") if given.value is None else _value(flag, given.value, origin)
    if given.value is None:
        return Known(given.spelling.on, origin)
    stated = _value(flag, given.value, origin)
    return Known(stated.value is given.spelling.on, origin) if isinstance(stated, Known) else stated


def _from_environ(flag: Flag, environ: Mapping[str, str], origin: Origin) -> Reading[Any] | None:
    # Whatever such a variable holds, its being there switches off.
    if any(name in environ for name in flag.env_off):
        return Known(False, origin)
    for name in flag.env:
        if name in environ:
            return Known(True, origin) if flag.kind is FlagKind.GIVEN else _value(flag, environ[name], origin)
    return None


def _value(flag: Flag, text: str, origin: Origin) -> Reading[Any]:
    """A value of the flag's kind. A refused one is not repeated: it may be a path or a key."""
    text = text.strip()
    if text in flag.words:
        return Known(text, origin)
    if VARIABLE.search(text):
        return Unknown(Reason.NO_SOURCE, f"{flag.name} is a variable that is not resolved here")
    match flag.kind:
        case FlagKind.WORD:
            return _refused(flag, "is not one of its words")
        case FlagKind.SWITCH:
            on = SWITCH_WORDS.get(text)
            return _refused(flag, "is neither on nor off") if on is None else Known(on, origin)
        case FlagKind.NAME:
            return _last_part(flag, text, origin)
        case FlagKind.NUMBER:
            number = _number(text)
        case FlagKind.DECIMAL_SIZE:
            number = _decimal_size(text)
        case FlagKind.SIZE:
            number = _whole(text) if WHOLE.fullmatch(text) else _size(text)
        case _:
            number = _whole(text)
    return _refused(flag, "is not a number that can be read") if number is None else Known(number, origin)


def _last_part(flag: Flag, name: str, origin: Origin) -> Reading[str]:
    """The last part of a path or of a repository id."""
    last = name.rstrip("/").rpartition("/")[2]
    usable = last not in ("", ".", "..", "~") and len(last) <= LONGEST_NAME and last.isprintable()
    return Known(last, origin) if usable else _refused(flag, "is not a name that can be shown")


def _decimal_size(text: str) -> int | None:
    found = DECIMAL_SIZE.fullmatch(text)
    if found is None:
        return None
    size = int(Decimal(found["number"]) * DECIMAL_SIZE_UNITS[found["unit"].upper()])
    return size if size <= LARGEST_COUNT else None


def _whole(text: str) -> int | None:
    number = int(text) if WHOLE.fullmatch(text) else None
    return number if number is not None and abs(number) <= LARGEST_COUNT else None


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and "_" not in text else None


def _size(text: str) -> int | None:
    found = SIZE.fullmatch(text)
    if found is None:
        return None
    number, unit = found["number"], found["unit"]
    if unit in DECIMAL_UNITS:
        size = int(float(number) * DECIMAL_UNITS[unit]) if "." in number else int(number) * DECIMAL_UNITS[unit]
    elif unit in BINARY_UNITS and "." not in number:
        size = int(number) * BINARY_UNITS[unit]
    else:
        return None
    return size if size <= LARGEST_COUNT else None


def _refused(flag: Flag, what: str) -> Unknown:
    return Unknown(Reason.INVALID, f"{flag.name} in the launch settings {what}")
