"""Parts of a line: each a value in words, or what is unknown; unknowns of one reason stand together. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from rich.text import Text

from inspector.cli.telling import STYLES
from inspector.judge import Level
from inspector.views import Row

UNSURE = STYLES[Level.UNKNOWN]


@dataclass(frozen=True, slots=True)
class Part:
    """`text` where it is known; else `word` names what is unknown, and `unknown` is `unknown (reason)`."""

    text: str
    word: str = ""
    unknown: str = ""


def counted(row: Row, word: str, told: str = "") -> Part:
    """A field with its word: `903 used`, or as `told` has it."""
    return Part((told or f"{{}} {word}").format(row.text)) if row.known else Part("", word, row.text)


def together(parts: Sequence[Part]) -> Text:
    """All parts in one text; neighbours that are unknown for the same reason share it: `used and waiting unknown (sleeping)`."""
    told: list[Text] = []
    for unknown, alike in groupby(parts, key=lambda part: part.unknown):
        if unknown:
            told.append(Text(f"{listed([part.word for part in alike])} ").append(unknown, UNSURE))
        else:
            told += [Text(part.text) for part in alike]
    return Text(", ").join(told)


def listed(words: Sequence[str]) -> str:
    """`a, b and c`."""
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))
