"""Kubernetes manifests -> the command of each container. Pure.

Containers are found wherever a `containers` list stands, so that pods, their templates and the kinds of operators are read alike.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from inspector.launch.files.command import UNRESOLVED, Command, Growth
from inspector.launch.files.yaml_text import Data, mapping, sequence, texts

VARIABLE = re.compile(r"\$(?:\$|\(([^()$\s]+)\))")
LISTS = ("containers", "initContainers")
MOST_PLACES = 20_000
"""Mappings and lists of one file that are looked into."""


def kubernetes_commands(docs: Sequence[Data]) -> Iterator[Command]:
    """The commands of all containers in all documents. Raises UnreadableError when variables grow too large."""
    maps = {name: mapping(doc.get("data")) for doc in docs if isinstance(doc, dict) and doc.get("kind") == "ConfigMap" and (name := _name(doc)) is not None}
    growth = Growth()
    for doc in docs:
        for workload, container in _containers(doc):
            yield _command(container, workload, maps, growth)


def _command(container: Mapping[str, Data], workload: str | None, maps: Mapping[str, Mapping[str, Data]], growth: Growth) -> Command:
    environ, missing = _environment(container, maps, growth)
    program, arguments = texts(container.get("command")), texts(container.get("args"))
    words = tuple(expanded(word, environ, growth) for word in (*program, *arguments))
    name, image = container.get("name"), container.get("image")
    names = frozenset(text for text in (name, workload) if isinstance(text, str))
    # Without an image it is that of a template which an operator fills in.
    return Command(words, environ, names, None if program else image if isinstance(image, str) else "unknown", missing)


def _environment(container: Mapping[str, Data], maps: Mapping[str, Mapping[str, Data]], growth: Growth) -> tuple[dict[str, str], tuple[str, ...]]:
    """`env` counts over `envFrom`; a value may refer to those before it."""
    environ: dict[str, str] = {}
    missing: tuple[str, ...] = ()
    for source in sequence(container.get("envFrom")):
        data = maps.get(str(mapping(mapping(source).get("configMapRef")).get("name")))
        if data is None:
            missing = ("a ConfigMap or Secret that sets the environment was not read",)
            environ = dict.fromkeys(environ, UNRESOLVED)
        else:
            prefix = mapping(source).get("prefix")
            environ |= {f"{prefix or ''}{name}": value if isinstance(value, str) else UNRESOLVED for name, value in data.items()}
    for item in map(mapping, sequence(container.get("env"))):
        name, value = item.get("name"), item.get("value")
        if isinstance(name, str):
            environ[name] = expanded(value, environ, growth) if isinstance(value, str) else _referred(item, maps)
    return environ, missing


def _referred(item: Mapping[str, Data], maps: Mapping[str, Mapping[str, Data]]) -> str:
    if "valueFrom" not in item:
        return ""
    key = mapping(mapping(item.get("valueFrom")).get("configMapKeyRef"))
    value = maps.get(str(key.get("name")), {}).get(str(key.get("key")))
    return value if isinstance(value, str) else UNRESOLVED


def expanded(text: str, environ: Mapping[str, str], growth: Growth) -> str:
    """`$(NAME)` becomes the variable's value and stays as it is where there is none; `$$` is a dollar."""

    def value(found: re.Match[str]) -> str:
        return "$" if found[1] is None else growth.spend(environ.get(found[1], found[0]))

    return growth.spend(VARIABLE.sub(value, text))


def _containers(doc: Data) -> Iterator[tuple[str | None, Mapping[str, Data]]]:
    """Every container of a document, with the name of the workload around it."""
    waiting: list[tuple[str | None, Data]] = [(None, doc)]
    seen: set[int] = set()
    while waiting and len(seen) < MOST_PLACES:
        workload, value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, list):
            waiting += [(workload, item) for item in reversed(value) if isinstance(item, dict | list)]
        elif isinstance(value, dict):
            workload = _name(value) if "kind" in value else workload
            found = [item for key in LISTS for item in sequence(value.get(key)) if isinstance(item, dict)]
            yield from ((workload, item) for item in found)
            waiting += [(workload, inner) for key, inner in value.items() if key not in LISTS and isinstance(inner, dict | list)]


def _name(doc: Mapping[str, Data]) -> str | None:
    name = mapping(doc.get("metadata")).get("name")
    return name if isinstance(name, str) else None
