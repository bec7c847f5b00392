"""Problems of a configuration, all of them at once: file, line, field, what is wrong and what to do. No value of the file is ever repeated."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, TypeAlias, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

Path: TypeAlias = tuple[str | int, ...]
"""Where a value is: keys and positions from the top, such as ("targets", 0, "url")."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake. `line` is None where there is no file."""

    file: str
    line: int | None
    field: str
    message: str
    remedy: str = ""

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        told = ": ".join(part for part in (place, self.field, "; ".join(filter(None, (self.message, self.remedy)))) if part)
        return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in told)


class ConfigError(Exception):
    """A configuration that is refused, with every problem found in it."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(sorted(problems, key=lambda p: (p.line is None, p.line or 0)))
        super().__init__("\n".join(map(str, self.problems)))


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem before it has a place: where in the data, the message, the remedy."""

    path: Path
    message: str
    remedy: str = ""


def field_name(path: Path) -> str:
    """`("targets", 0, "url")` as `targets[0].url`. A key that looks like none may be a secret: `targets[0].headers.…`."""
    name = ""
    for position, key in enumerate(path):
        step = key if isinstance(key, int) or (CHOSEN if path[position - 1 : position] in (("headers",), ("env",)) else PLAIN).fullmatch(key) else HIDDEN_KEY
        name += f"[{step}]" if isinstance(step, int) else f".{step}" if name else step
    return name


PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,40}")
CHOSEN = re.compile(r"(?=.{1,40}$)[A-Za-z]+(?:[-_][A-Za-z]+)*")
"""The name of a header or a variable: words without digits, which keys rarely are."""
HIDDEN_KEY = "…"


def finding(error: ErrorDetails, model: type[BaseModel]) -> Finding:
    """One of pydantic's errors in our words; `model` is that of the whole file. Steps of a path in angle brackets are names of alternatives, not keys."""
    path = tuple(step for step in error["loc"] if not (isinstance(step, str) and (step.startswith("<") or step == "[key]")))
    kind, context = error["type"], error.get("ctx", {})
    if kind == "extra_forbidden":
        known = keys_at(model, path[:-1])
        if path[-1] in known:
            return Finding(path, "does not go with the key beside it", "keep one of the two")
        return Finding(path, "unknown key", did_you_mean(str(path[-1]), known))
    if kind == "value_error":
        message, _, remedy = str(context["error"]).partition("; ")
        return Finding(path, message, remedy)
    message, _, remedy = MESSAGES.get(kind, UNUSABLE).partition("; ")
    return Finding(path, message.format_map(context), remedy.format_map(context))


def did_you_mean(word: str, candidates: Iterable[str]) -> str:
    """The candidate that the word is likely a slip of, else all of them if they are few."""
    candidates = sorted(candidates)
    close = get_close_matches(word, candidates, n=1, cutoff=0.6)
    if close:
        return f'did you mean "{close[0]}"?'
    if len(candidates) > 8:
        return "see docs/configuration.md"
    return f"known here: {', '.join(candidates)}" if candidates else ""


UNUSABLE = "is not usable; see docs/configuration.md"

MESSAGES: Mapping[str, str] = {
    "missing": "required key is missing",
    "model_type": "must be a mapping of keys",
    "dict_type": "must be a mapping of keys",
    "tuple_type": "must be a list",
    "string_type": "must be text; put it in quotes",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "finite_number": "must be a finite number",
    "greater_than": "must be above {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "literal_error": "must be {expected}",
    "string_too_short": "must not be empty",
    "too_short": "must not be empty",
    "launch": "must be auto, none, {{pid: NUMBER}}, {{file: PATH}} or {{argv: [WORD, …]}}",
}
"""pydantic's kinds of error in our words, with its context; what stands behind the semicolon is the remedy."""


def keys_at(model: type[BaseModel], path: Path) -> set[str]:
    """The keys that the mapping at `path` may have."""
    models = {model}
    for step in path:
        fields = [known[step] for known in map(_fields, models) if isinstance(step, str) and step in known]
        if fields:
            models = set().union(*(models_in(info.annotation) for info in fields))
    return {name for inner in models for name in _fields(inner)}


def _fields(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """A model's fields by the keys that they have in the file."""
    return {info.alias or name: info for name, info in model.model_fields.items()}


def models_in(annotation: Any) -> set[type[BaseModel]]:
    """The models that a type is made of: itself, or those inside an optional, a list, a mapping or a union."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return {annotation}
    return set().union(*map(models_in, get_args(annotation)))


def place(findings: Iterable[Finding], file: str, lines: Mapping[Path, int]) -> list[Problem]:
    """The findings with file and line: that of the value, or of the nearest mapping around it."""
    return [Problem(file, _line(item.path, lines), field_name(item.path), item.message, item.remedy) for item in findings]


def _line(path: Path, lines: Mapping[Path, int]) -> int | None:
    for end in range(len(path), -1, -1):
        if path[:end] in lines:
            return lines[path[:end]]
    return None
