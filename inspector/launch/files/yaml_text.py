"""YAML -> plain mappings, lists and text, as written: no types, no tags. Pure; sizes, depth and aliases are bounded.

Built from the parser's events: an alias is the same object once more, so a file cannot grow as it is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import yaml

from inspector.launch.files.command import UnreadableError

Data: TypeAlias = Any
"""dict[str, Data] | list[Data] | str | None."""

MOST_NODES = 50_000
DEEPEST = 40
NULLS = frozenset({"", "~", "null", "Null", "NULL"})
MERGE = "<<"

TOO_LARGE = ("is too large or too deep", "write the file without nested aliases, or name the one that starts the server")


def documents(text: str) -> list[Data]:
    """All documents of a file. Raises UnreadableError."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return list(_Builder().documents(yaml.parse(text, Loader=loader)))
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError):
        # PyYAML's own text would repeat the line of the file.
        raise UnreadableError("is not valid YAML", "look for a missing quote, bracket or space, or for a template that was not filled in") from None


class _Builder:
    def __init__(self) -> None:
        self.left = MOST_NODES
        self.anchors: dict[str, Data] = {}

    def documents(self, events: Iterator[yaml.Event]) -> Iterator[Data]:
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                self.anchors = {}
                yield self._value(next(events), events, 0)

    def _value(self, event: yaml.Event, events: Iterator[yaml.Event], depth: int) -> Data:
        self._count(depth)
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self.anchors:
                raise UnreadableError("has an alias for something that is not there, or that holds the alias", "look for a slip in its name")
            return self.anchors[event.anchor]
        value: Data
        if isinstance(event, yaml.MappingStartEvent):
            value = self._mapping(events, depth)
        elif isinstance(event, yaml.SequenceStartEvent):
            value = []
            while not isinstance(item := next(events), yaml.SequenceEndEvent):
                value.append(self._value(item, events, depth + 1))
        elif isinstance(event, yaml.ScalarEvent):
            value = None if event.style is None and event.value in NULLS else event.value
        else:
            raise UnreadableError(*TOO_LARGE)
        if event.anchor is not None:
            self.anchors[event.anchor] = value
        return value

    def _mapping(self, events: Iterator[yaml.Event], depth: int) -> dict[str, Data]:
        own: dict[str, Data] = {}
        merged: dict[str, Data] = {}
        while not isinstance(event := next(events), yaml.MappingEndEvent):
            key = self._value(event, events, depth + 1)
            value = self._value(next(events), events, depth + 1)
            if key == MERGE:
                for part in reversed(value if isinstance(value, list) else [value]):
                    merged |= self._merged(part)
            elif isinstance(key, str):
                own[key] = value
        return merged | own

    def _merged(self, part: Data) -> dict[str, Data]:
        if not isinstance(part, dict):
            raise UnreadableError("merges (<<) something that is not a mapping", "merge an anchored mapping")
        self.left -= len(part)
        self._count(0)
        return part

    def _count(self, depth: int) -> None:
        self.left -= 1
        if self.left < 0 or depth > DEEPEST:
            raise UnreadableError(*TOO_LARGE)


def mapping(value: Data) -> dict[str, Data]:
    """The mapping that a value is; an empty one where it is something else."""
    return value if isinstance(value, dict) else {}


def sequence(value: Data) -> list[Data]:
    """The list that a value is; an empty one where it is something else."""
    return value if isinstance(value, list) else []


def texts(value: Data) -> list[str]:
    """The text items of a list."""
    return [item for item in sequence(value) if isinstance(item, str)]
