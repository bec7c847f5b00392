"""The variables of a shell script, and words expanded by them. Pure.

A variable that the script does not set comes from whoever runs it: it is unresolved, unless the script names a default.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from inspector.launch.files.command import MAYBE_WORDS, UNRESOLVED, Growth
from inspector.launch.files.shell_words import Word, tokens

PARAMETER = re.compile(r"(?P<name>[A-Za-z_]\w*|[0-9]+|[@*])(?P<all>\[[@*]\])?(?:(?P<operator>:?[-=?+])(?P<word>.*))?", re.DOTALL)
HOME = "~"
"""Whose it is is not known, but a path that begins there stays one word, and no flag."""

DEEPEST = 8
"""Defaults inside defaults."""

Value: TypeAlias = str | tuple[str, ...]
"""Of a variable, or of an array."""


class Scope:
    """What is set at one place of a script. `arguments`: those the script is run with, None where nobody knows."""

    def __init__(self, environ: Mapping[str, str], arguments: Sequence[str] | None) -> None:
        self.values: dict[str, Value] = dict(environ)
        self.exported = set(environ)
        self.exports_all = False
        self.doubtful = False
        """A text that was not read may have set anything."""
        self._growth = Growth()
        if arguments is not None:
            self.values["@"] = self.values["*"] = tuple(arguments)
            self.values |= {str(number): argument for number, argument in enumerate(arguments, start=1)}

    def set(self, name: str, value: Value) -> None:
        self.values[name] = value
        if self.exports_all:
            self.exported.add(name)

    def doubt(self) -> None:
        """From here on nothing that was set is certain."""
        self.doubtful = True
        self.values = dict.fromkeys(self.values, UNRESOLVED)

    def environ(self) -> dict[str, str]:
        """What a command gets. An array is not exported."""
        return {name: value for name in self.exported if isinstance(value := self.values.get(name), str)}

    def fields(self, word: Word) -> list[str]:
        """The words that a word becomes: variables without quotes are split at white space."""
        return self._expand(word, 0, split=True)

    def text(self, word: Word) -> str:
        """A word as the value of a variable: not split."""
        return " ".join(self._expand(word, 0, split=False))

    def _expand(self, word: Word, depth: int, *, split: bool) -> list[str]:
        done: list[str] = []
        open_word: str | None = None
        for piece in word.pieces:
            if piece.kind == "text":
                open_word = (open_word or "") + piece.text
                continue
            value = UNRESOLVED if piece.kind == "output" else self._value(piece.text, depth)
            parts = [value] if isinstance(value, str) else list(value)
            if split and not piece.quoted:
                parts = _split(parts)
            elif isinstance(value, str) or not split:
                parts = [" ".join(parts)]
            for index, part in enumerate(parts):
                if index and open_word is not None:
                    done.append(self._growth.spend(open_word))
                    open_word = None
                if part is BREAK:
                    continue
                open_word = (open_word or "") + self._growth.spend(part)
        if open_word is not None:
            done.append(self._growth.spend(open_word))
        return done

    def _value(self, inside: str, depth: int) -> Value:
        """What `${inside}` is."""
        found = PARAMETER.fullmatch(inside)
        if found is None or depth > DEEPEST:
            return UNRESOLVED
        if found["name"] == "HOME":
            return HOME
        value = self.values.get(found["name"])
        operator = found["operator"] or ""
        if not operator:
            return self._whole(value, found)
        is_set = bool(value) if operator.startswith(":") else value is not None
        if value is None and self.doubtful:
            return UNRESOLVED
        if operator.endswith("+"):
            # Whoever runs the script may set it.
            return UNRESOLVED if value is None else self._word(found["word"], depth) if is_set else ""
        if is_set:
            return self._whole(value, found)
        if operator.endswith("?"):
            return UNRESOLVED
        default = self._word(found["word"], depth)
        if operator.endswith("=") and isinstance(default, str):
            self.set(found["name"], default)
        return default

    def _whole(self, value: Value | None, found: re.Match[str]) -> Value:
        is_list = found["all"] is not None or found["name"] in ("@", "*")
        if value is None or value == UNRESOLVED:
            return MAYBE_WORDS if is_list else UNRESOLVED
        if isinstance(value, tuple) and not is_list:
            return value[0] if value else ""
        return value

    def _word(self, text: str, depth: int) -> str:
        """The text behind an operator. Its white space is kept: it is split with the word that it becomes part of."""
        pieces = [token for token in tokens(f'"{text}"' if '"' not in text and "'" not in text else text) if isinstance(token, Word)]
        return " ".join(part for piece in pieces for part in self._expand(piece, depth + 1, split=False))


BREAK = "\0"
"""Stands between two words where white space was at the edge of a value."""


def _split(values: Sequence[str]) -> list[str]:
    """The words of values that stand without quotes; a break where white space parts them from what stands beside them."""
    parts: list[str] = []
    for value in values:
        words = value.replace(UNRESOLVED, MAYBE_WORDS).split()
        parts += [*([BREAK, BREAK] if value[:1].isspace() else []), *words, *([BREAK] if words and value[-1:].isspace() else [])]
    return parts
