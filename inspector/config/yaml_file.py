"""YAML text -> plain data, with the line of every key and list item. Takes text from anywhere: sizes, depth and aliases are bounded."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from inspector.config.errors import ConfigError, Finding, Path, Problem

LARGEST_FILE = 1024 * 1024
MOST_NODES = 50_000
"""Values in a file once every alias is written out: thousands of targets, and an end to files that grow as they are read."""

DEEPEST = 20
TAGS = {f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null", "map", "seq", "merge", "timestamp", "value")}


@dataclass
class Document:
    """The data of a file, the line of each value (counted from 1), and what was wrong with single values; there the data is None."""

    data: Any = None
    lines: dict[Path, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)


def read_yaml(raw: bytes, file: str) -> Document:
    """The document in a file's bytes. Raises ConfigError when it is no YAML, or more of it than a configuration is."""
    if len(raw) > LARGEST_FILE:
        raise ConfigError([Problem(file, None, "", "is larger than 1 MiB", "name the inspector's own YAML file")])
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise ConfigError([Problem(file, line, "", "is not UTF-8 text", "save the file as UTF-8")]) from None
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
    except yaml.YAMLError as error:
        raise ConfigError([_unreadable(error, file, text)]) from None
    except RecursionError:
        raise ConfigError([Problem(file, None, "", "is nested too deeply")]) from None
    if node is None:
        return Document()
    if _expanded(node, {}, 0) > MOST_NODES:
        raise ConfigError([Problem(file, None, "", "is too large or too deep once its aliases are written out", "write the file without nested aliases")])
    reader = _Reader(loader)
    reader.document.data = reader.value(node, node, ())
    return reader.document


class _Reader:
    """Builds data from nodes. Unlike PyYAML's own constructor it remembers lines, refuses duplicate keys and tags, and takes dates as text."""

    def __init__(self, loader: yaml.SafeLoader) -> None:
        self._loader = loader
        self._flat: set[int] = set()
        self.document = Document()

    def value(self, marked: yaml.Node, node: yaml.Node, path: Path) -> Any:
        """The data of a node whose line is that of `marked`: its key, or itself."""
        self.document.lines[path] = marked.start_mark.line + 1
        if node.tag not in TAGS:
            return self._refuse(path, "has a YAML tag", "write plain values")
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, item, (*path, index)) for index, item in enumerate(node.value)]
        return self._scalar(node, path)

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any] | None:
        if id(node) not in self._flat:
            self._flat.add(id(node))
            self._find_duplicates(node, path)
            try:
                self._loader.flatten_mapping(node)
            except yaml.YAMLError:
                self._refuse(path, "merges (<<) something that is not a mapping", "merge an anchored mapping")
                return None
        built: dict[str, Any] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self._refuse(path, "has a key that is not text", "put keys in quotes")
                continue
            built[key.value] = self.value(key, value, (*path, key.value))
        return built

    def _find_duplicates(self, node: yaml.MappingNode, path: Path) -> None:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen and not key.tag.endswith(":merge"):
                self._refuse((*path, key.value), "is given twice", "keep one of the two")
            seen.add(str(key.value))

    def _scalar(self, node: yaml.Node, path: Path) -> Any:
        try:
            value = self._loader.construct_object(node)
        except (yaml.YAMLError, ValueError, TypeError, LookupError, AttributeError):
            return self._refuse(path, "cannot be read as the value that it looks like", "put text in quotes")
        return node.value if isinstance(value, datetime.date) else value

    def _refuse(self, path: Path, message: str, remedy: str) -> None:
        self.document.findings.append(Finding(path, message, remedy))


def _expanded(node: yaml.Node, known: dict[int, int], depth: int) -> int:
    """How many nodes there are once aliases are written out; a great many for a node that holds itself, or is too deep."""
    if depth > DEEPEST:
        return MOST_NODES + 1
    if id(node) not in known:
        known[id(node)] = MOST_NODES + 1  # A node that is met again while it is counted holds itself.
        inner = (
            node.value if isinstance(node, yaml.SequenceNode) else [part for pair in node.value for part in pair] if isinstance(node, yaml.MappingNode) else []
        )
        known[id(node)] = 1 + sum(_expanded(part, known, depth + 1) for part in inner)
    return known[id(node)]


def _unreadable(error: yaml.YAMLError, file: str, text: str) -> Problem:
    """What is wrong, by its kind, and the line. PyYAML's own text would repeat what stands there, which may be a secret."""
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        kind = next((said for words, said in KINDS.items() if words in (error.problem or "")), UNREADABLE)
        where = f" at column {mark.column + 1}" if mark else ""
        message, _, remedy = kind.partition("; ")
        return Problem(file, mark.line + 1 if mark else None, "", f"is not valid YAML: {message}{where}", remedy)
    position = getattr(error, "position", 0)
    return Problem(file, text[:position].count("\n") + 1, "", "has a character that YAML does not allow", "save the file as plain UTF-8 text")


UNREADABLE = "something is out of place; look for a missing quote, bracket or space"

KINDS: Mapping[str, str] = {
    "undefined alias": "an alias (*) without its anchor; put text that begins with * in quotes",
    "second occurrence": "an anchor (&) is given twice; put text that begins with & in quotes",
    "undefined tag handle": "a tag (!) that is not defined; put text that begins with ! in quotes",
    "another document": "a second document begins; keep one, without ---",
    "but found another": "a second document begins; keep one, without ---",
    "'\\t'": "a tab; indent with spaces",
    "cannot start any token": "a character that begins no value; put text that begins with it in quotes",
    "mapping values are not allowed": "a colon where none may be; look for a missing quote, or a line that is indented too far",
    "could not find expected ':'": "a key without a colon; look for a missing colon or quote",
    "found unexpected end of stream": "a quote that is not closed; close it",
    "unknown escape character": "a backslash that means nothing in double quotes; use single quotes",
    "expected <block end>": "a line that does not go with those above; look for a missing quote, bracket or space",
    "expected ',' or": "a list or mapping in brackets that is not closed; look for a missing comma, quote or bracket",
}
"""Words of PyYAML's problems, the first that fit: the finding in ours, and the remedy."""
