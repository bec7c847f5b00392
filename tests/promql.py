"""What a PromQL expression names: its metrics, the labels that it matches, and those that it groups or joins by. For rules and dashboards alike."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

AGGREGATIONS = frozenset(
    ("sum", "min", "max", "avg", "group", "stddev", "stdvar", "count", "count_values", "bottomk", "topk", "quantile", "limitk", "limit_ratio")
)
GROUPINGS = frozenset(("by", "without", "on", "ignoring", "group_left", "group_right"))
WORDS = frozenset(("and", "or", "unless", "bool", "offset", "start", "end", "atan2", "inf", "nan"))
"""Words of the language that are neither a metric nor a function."""

TOKEN = re.compile(
    r"""(?P<text>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|`[^`]*`)
      | (?P<skip>\s+|\#[^\n]*|\[[^\]]*\]|\$\{[^}]*\}|\$\w+)      # blanks, comments, ranges, variables of a dashboard
      | (?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[a-z]*(?:\d+[a-z]+)*)    # durations too
      | (?P<word>[a-zA-Z_:][\w:]*)
      | (?P<sign>=~|!~|!=|==|<=|>=|[-+*/%^<>=(){},@])""",
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Selector:
    """One selector of series. `name` is "" where only matchers choose; `matchers`: (label, operator, value)."""

    name: str
    matchers: tuple[tuple[str, str, str], ...] = ()


@dataclass(slots=True)
class Named:
    """All that an expression names. `grouped`: labels after `by`, `on`, `without` and the like."""

    selectors: list[Selector] = field(default_factory=list)
    grouped: set[str] = field(default_factory=set)


def names(expr: str) -> set[str]:
    """The metrics of an expression."""
    return {selector.name for selector in read(expr).selectors if selector.name}


def labels(expr: str) -> set[str]:
    """The labels of an expression: matched, grouped or joined by."""
    found = read(expr)
    return found.grouped | {label for selector in found.selectors for label, _, _ in selector.matchers}


def read(expr: str) -> Named:
    """Raises ValueError for what is no PromQL."""
    tokens, found, at = list(_tokens(expr)), Named(), 0
    while at < len(tokens):
        kind, text = tokens[at]
        follows = tokens[at + 1][1] if at + 1 < len(tokens) else ""
        if kind == "word" and text in GROUPINGS and follows == "(":
            at, inside = _until(tokens, at + 2, ")")
            found.grouped |= {word for kind, word in inside if kind == "word"}
        elif text == "{":
            at, inside = _until(tokens, at + 1, "}")
            found.selectors.append(Selector("", _matchers(inside)))
        elif kind == "word" and _is_metric(text, follows):
            inside = []
            if follows == "{":
                at, inside = _until(tokens, at + 2, "}")
            found.selectors.append(Selector(text, _matchers(inside)))
        at += 1
    return found


def _is_metric(word: str, follows: str) -> bool:
    return follows != "(" and word.lower() not in WORDS and word not in AGGREGATIONS | GROUPINGS


def _tokens(expr: str) -> Iterator[tuple[str, str]]:
    at = 0
    while at < len(expr):
        match = TOKEN.match(expr, at)
        if match is None:
            raise ValueError(f"not PromQL at {expr[at : at + 20]!r}")
        if match.lastgroup != "skip":
            yield str(match.lastgroup), match.group()
        at = match.end()


def _until(tokens: Sequence[tuple[str, str]], start: int, closing: str) -> tuple[int, list[tuple[str, str]]]:
    """Where the next `closing` stands, and the tokens before it."""
    end = next((i for i in range(start, len(tokens)) if tokens[i] == ("sign", closing)), None)
    if end is None:
        raise ValueError(f"{closing} is missing")
    return end, list(tokens[start:end])


def _matchers(tokens: Sequence[tuple[str, str]]) -> tuple[tuple[str, str, str], ...]:
    parts = [token for token in tokens if token != ("sign", ",")]
    if len(parts) % 3 or any(kind != "text" for kind, _ in parts[2::3]):
        raise ValueError(f"no matchers: {' '.join(text for _, text in tokens)}")
    return tuple((parts[i][1], parts[i + 1][1], parts[i + 2][1][1:-1]) for i in range(0, len(parts), 3))
