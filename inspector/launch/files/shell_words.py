"""Shell text -> words and operators, unexpanded. Pure; no shell is ever run.

Quotes, escapes, comments, continuations, here-documents (left out), redirections (left out) and simple arrays are understood as in POSIX shells and bash.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from inspector.launch.files.command import UnreadableError, unclosed

PLAIN = re.compile(r"[^\s\\'\"$`;&|<>()]+")
PLAIN_IN_QUOTES = re.compile(r"[^\\\"$`]+")
BLANK = re.compile(r"(?:[ \t\r\f\v]|\\\n)+")
COMMENT = re.compile(r"#[^\n]*")
OPERATOR = re.compile(r"&&|\|\||;;&|;;|;&|<<<|<<-|<<|&>>|&>|>>|>\||>&|<&|<>|\|&|[;&|()<>\n]")
NAME = re.compile(r"[A-Za-z_]\w*|[0-9]|[@*#?$!-]")
ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=")
MOST_PIECES = 30_000
"""Pieces of words and operators in one script: far more than any launch script has."""

BRACKETS = {"{": "}", "(": ")"}


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a word: plain text, the inside of a `${…}`, or a command's output, which is never had."""

    kind: str  # text | variable | output
    text: str
    quoted: bool


@dataclass(frozen=True, slots=True)
class Word:
    pieces: tuple[Piece, ...]
    items: tuple[Word, ...] | None = None
    """The items of `NAME=(…)`."""

    @property
    def plain(self) -> str:
        """The word where it is written without quotes and variables, else nothing: so are reserved words."""
        return self.pieces[0].text if len(self.pieces) == 1 and self.pieces[0].kind == "text" and not self.pieces[0].quoted else ""

    @property
    def assigns(self) -> re.Match[str] | None:
        first = self.pieces[0] if self.pieces else None
        return ASSIGNMENT.match(first.text) if first is not None and first.kind == "text" and not first.quoted else None


Token: TypeAlias = Word | str
"""A word, or an operator."""


def tokens(text: str) -> Iterator[Token]:
    """The words and operators of a script. Raises UnreadableError for quotes and brackets that are not closed."""
    yield from _Lexer(text).tokens()


class _Lexer:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.left = MOST_PIECES
        self.heredocs: list[tuple[str, bool]] = []

    def tokens(self) -> Iterator[Token]:
        held: tuple[Word, int] | None = None  # A number just before a redirection is part of it.
        while self._next_starts():
            operator = OPERATOR.match(self.text, self.at)
            if operator is None:
                if held is not None:
                    yield held[0]
                held = self.word(), self.at
                continue
            self.at = operator.end()
            self._count()
            redirects = operator[0][0] in "<>" or operator[0].startswith("&>")
            if held is not None and not (redirects and held[1] == operator.start() and held[0].plain.isdigit()):
                yield held[0]
            held = None
            if redirects:
                self._redirection(operator[0])
            else:
                yield operator[0]
                if operator[0] == "\n":
                    self._skip_heredocs()
        if held is not None:
            yield held[0]

    def _count(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise UnreadableError("is longer than a launch script is", "name the script that starts the server, alone")

    def _next_starts(self) -> bool:
        """Goes to the next token; False at the end."""
        while found := BLANK.match(self.text, self.at) or COMMENT.match(self.text, self.at):
            self.at = found.end()
        return self.at < len(self.text)

    def _redirection(self, operator: str) -> None:
        self._next_starts()
        if self.at < len(self.text) and OPERATOR.match(self.text, self.at) is None:
            word = self.word()
            if operator in ("<<", "<<-"):
                self.heredocs.append(("".join(piece.text for piece in word.pieces), operator == "<<-"))

    def _skip_heredocs(self) -> None:
        for delimiter, tabs in self.heredocs:
            while self.at < len(self.text):
                end = self.text.find("\n", self.at)
                end = len(self.text) if end < 0 else end
                line = self.text[self.at : end]
                self.at = end + 1
                if (line.lstrip("\t") if tabs else line) == delimiter:
                    break
        self.heredocs = []

    def word(self, *, arrays: bool = True) -> Word:
        pieces: list[Piece] = []
        while self.at < len(self.text):
            self._count()
            if plain := PLAIN.match(self.text, self.at):
                pieces.append(Piece("text", plain[0], quoted=False))
                self.at = plain.end()
                continue
            mark = self.text[self.at]
            if mark == "(" and arrays and pieces and pieces[-1].text.endswith("=") and ASSIGNMENT.fullmatch(Word(tuple(pieces)).plain):
                return Word(tuple(pieces), self._items())
            if mark.isspace() or mark in ";&|<>()":
                break
            pieces.extend(self._marked(mark))
        return Word(tuple(pieces))

    def _marked(self, mark: str) -> list[Piece]:
        """The pieces that begin with a quote, a backslash, a dollar or a backquote."""
        if mark == "'":
            return [Piece("text", self._until("'", "a quote"), quoted=True)]
        if mark == '"':
            return self._in_quotes()
        if mark == "\\":
            text = self.text[self.at + 1 : self.at + 2]
            self.at += 2
            return [] if text == "\n" else [Piece("text", text, quoted=True)]
        return [self._expansion(quoted=False)]

    def _in_quotes(self) -> list[Piece]:
        pieces = [Piece("text", "", quoted=True)]
        self.at += 1
        while self.at < len(self.text):
            self._count()
            mark = self.text[self.at]
            if mark == '"':
                self.at += 1
                return pieces
            if plain := PLAIN_IN_QUOTES.match(self.text, self.at):
                pieces.append(Piece("text", plain[0], quoted=True))
                self.at = plain.end()
            elif mark == "\\":
                escaped = self.text[self.at + 1 : self.at + 2]
                self.at += 2
                pieces.append(Piece("text", "" if escaped == "\n" else escaped if escaped in '$`"\\' else mark + escaped, quoted=True))
            else:
                pieces.append(self._expansion(quoted=True))
        raise unclosed("a quote")

    def _expansion(self, *, quoted: bool) -> Piece:
        if self.text[self.at] == "`":
            return Piece("output", self._until("`", "a backquote"), quoted)
        after = self.text[self.at + 1 : self.at + 2]
        if after in BRACKETS:
            end = closing(self.text, self.at + 1)
            inside = self.text[self.at + 2 : end]
            self.at = end + 1
            return Piece("variable" if after == "{" else "output", inside, quoted)
        if after == "'" and not quoted:
            self.at += 1
            return Piece("text", self._until("'", "a quote"), quoted=True)
        name = NAME.match(self.text, self.at + 1)
        self.at = name.end() if name else self.at + 1
        return Piece("variable", name[0], quoted) if name else Piece("text", "$", quoted)

    def _until(self, mark: str, what: str) -> str:
        end = self.text.find(mark, self.at + 1)
        if end < 0:
            raise unclosed(what)
        text, self.at = self.text[self.at + 1 : end], end + 1
        return text

    def _items(self) -> tuple[Word, ...]:
        items: list[Word] = []
        self.at += 1
        while self._next_starts():
            if self.text[self.at] == ")":
                self.at += 1
                return tuple(items)
            if self.text[self.at] in "\n;&|<>(":
                self.at += 1
            else:
                items.append(self.word(arrays=False))
        raise unclosed("an array")


def closing(text: str, start: int) -> int:
    """Where the bracket at `start` is closed, past brackets and quotes inside it. Raises UnreadableError."""
    opened, closed = text[start], BRACKETS[text[start]]
    depth, at, quote = 0, start, ""
    while at < len(text):
        mark = text[at]
        if mark == "\\" and quote != "'":
            at += 1
        elif quote:
            quote = "" if mark == quote else quote
        elif mark in "'\"":
            quote = mark
        elif mark in (opened, closed):
            depth += 1 if mark == opened else -1
            if depth == 0:
                return at
        at += 1
    raise unclosed("a bracket")
