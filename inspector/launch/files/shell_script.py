"""Shell script -> the commands in it, with variables put in as far as the script itself sets them. Pure; no shell is ever run.

Branches are not decided: what a branch or a loop sets is unresolved after it, and every command in it counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from inspector.launch.files.command import MAYBE_WORDS, UNRESOLVED, Command
from inspector.launch.files.shell_scope import Scope, Value
from inspector.launch.files.shell_words import Word, tokens

OPENS = frozenset({"if", "while", "until", "for", "case", "select"})
CLOSES = frozenset({"fi", "done", "esac"})
PASSED_OVER = frozenset({"then", "do", "else", "elif", "{", "}", "!", "time", "function", "builtin"})
DECLARES = frozenset({"export", "declare", "typeset", "local", "readonly"})
SOURCES = frozenset({".", "source", "eval"})
TESTS = frozenset({"[", "[[", "test"})
HARMLESS = ("activate", "conda", "mamba", "brew", "pyenv", "nvm.sh", "bashrc", "profile", "setvars.sh", "cargo/env")
"""What sets up a path or a Python environment, and no server's settings."""

NOT_READ = "a text that the script sources was not read"


def script_commands(text: str, environ: Mapping[str, str] | None = None, arguments: Sequence[str] | None = None) -> Iterator[Command]:
    """The commands of a script with the words and the environment that they get. Raises UnreadableError where the text is no shell script.

    `environ` and `arguments` are what the script is run with; `arguments` is None where nobody knows.
    """
    script = _Script(Scope(environ or {}, arguments))
    words: list[Word] = []
    operator = "\n"
    for token in tokens(text):
        if isinstance(token, Word):
            words.append(token)
            continue
        yield from script.take(words, operator)
        words, operator = [], token
    yield from script.take(words, operator)


class _Script:
    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.blocks: list[bool] = []  # Whether each open block may be passed over.
        self.missing: tuple[str, ...] = ()
        self.tested = False

    def take(self, words: list[Word], operator: str) -> Iterator[Command]:
        """One simple command, behind an operator."""
        words = self._past_reserved(words)
        if not words:
            return
        certain = not any(self.blocks) and operator != "||" and not (operator == "&&" and self.tested)
        self.tested = words[0].plain in TESTS
        count = next((index for index, word in enumerate(words) if word.assigns is None), len(words))
        if count == len(words):
            for word in words:
                self._assign(word, certain=certain)
            return
        before = {name: value for name, value in map(self._assigned, words[:count]) if isinstance(value, str)}
        name, rest = words[count].plain, words[count + 1 :]
        if name in DECLARES:
            self._declare(name, rest, certain=certain)
        elif name in SOURCES:
            self._source(rest)
        elif name in ("read", "unset"):
            self._forget(rest, UNRESOLVED if name == "read" or not certain else None)
        elif name == "set":
            self._options(rest)
        else:
            argv = tuple(part for word in words[count:] for part in self.scope.fields(word))
            yield Command(argv, {**self.scope.environ(), **before}, missing=self.missing)

    def _past_reserved(self, words: list[Word]) -> list[Word]:
        """The command behind reserved words; loops and branches are counted on the way."""
        while words:
            word = words[0].plain
            if word in CLOSES:
                if self.blocks:
                    self.blocks.pop()
                return []
            if word in OPENS:
                forever = word == "while" and len(words) > 1 and words[1].plain in ("true", ":", "1")
                self.blocks.append(not forever)
                if word in ("for", "case", "select"):
                    self._forget(words[1:2], UNRESOLVED)
                    return []
            elif word not in PASSED_OVER:
                return words
            words = words[1:]
        return words

    def _assign(self, word: Word, *, certain: bool) -> str:
        name, value = self._assigned(word)
        old = self.scope.values.get(name)
        if not certain and value != old:
            # An array that may have got more items ends in what may be any words.
            value = (*old, MAYBE_WORDS) if isinstance(old, tuple) else UNRESOLVED
        self.scope.set(name, value)
        return name

    def _assigned(self, word: Word) -> tuple[str, Value]:
        """The name and the new value of `NAME=value`, `NAME+=value`, `NAME=(items)`."""
        match = word.assigns
        assert match is not None  # noqa: S101 - callers ask before.
        name, adds = match[1], bool(match[2])
        old = self.scope.values.get(name)
        if word.items is not None:
            items = tuple(part for item in word.items for part in self.scope.fields(item))
            return name, (*(((old,) if isinstance(old, str) else old or ()) if adds else ()), *items)
        written = self.scope.text(word)[match.end() :]
        if not adds:
            return name, written
        return name, UNRESOLVED if old is None else (*old, written) if isinstance(old, tuple) else old + written

    def _declare(self, how: str, words: Sequence[Word], *, certain: bool) -> None:
        options = [word.plain for word in words if word.plain.startswith("-")]
        exports = how == "export" or any("x" in option for option in options)
        for word in words:
            name = self._assign(word, certain=certain) if word.assigns is not None else word.plain
            if exports and name and not name.startswith("-"):
                self.scope.exported.add(name)
                self.scope.values.setdefault(name, UNRESOLVED)

    def _source(self, words: Sequence[Word]) -> None:
        text = "".join(piece.text for word in words for piece in word.pieces)
        if not any(part in text for part in HARMLESS):
            self.missing = (NOT_READ,)
            self.scope.doubt()

    def _forget(self, words: Sequence[Word], value: str | None) -> None:
        for word in words:
            if value is None:
                self.scope.values.pop(word.plain, None)
                self.scope.exported.discard(word.plain)
            elif word.plain:
                self.scope.values[word.plain] = value

    def _options(self, words: Sequence[Word]) -> None:
        for word in words:
            if word.plain.startswith("-") and "a" in word.plain.removeprefix("-"):
                self.scope.exports_all = True
            elif word.plain.startswith("+") and "a" in word.plain:
                self.scope.exports_all = False
        if any(word.plain == "--" for word in words):
            self._forget([Word((piece,)) for word in words for piece in word.pieces if piece.text in ("@", "*")], UNRESOLVED)
            for name in [name for name in self.scope.values if name.isdigit() or name in "@*"]:
                self.scope.values[name] = UNRESOLVED
