"""What is wrong with an adapter in itself, before any server is looked at."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from inspector.contract import Adapter, ReadsLaunch, ReadsLog, Recognizes, Reply, Route
from inspector.discovery import RECOGNITION_ROUTES
from inspector.model import MEMORY_FIELDS, POOL_FIELDS
from inspector.testing import hostile
from inspector.testing.scripted import NOW

NAME = re.compile(r"[a-z][a-z0-9_]*")
PATH = re.compile(r"(/[A-Za-z0-9_.~-]+)+/?|/")
FIELDS = frozenset(POOL_FIELDS) | frozenset(MEMORY_FIELDS)


def shape_problems(adapter: Adapter[Any]) -> Iterator[str]:
    """Attributes, routes, offered fields and optional abilities."""
    if not NAME.fullmatch(adapter.name):
        yield f"the name {adapter.name!r} is not lower-case letters, digits and underscores"
    if not adapter.title.strip():
        yield "it has no title"
    if not 0 < adapter.interval <= 3600:
        yield f"a poll interval of {adapter.interval} s"
    yield from _route_problems(adapter.routes)
    for version in (None, "b1", "0.0.0", "not a version"):
        surplus = adapter.offers(version) - FIELDS
        if surplus:
            yield f"it offers what is no field of the model: {', '.join(sorted(surplus))}"
    first, second = adapter.start(), adapter.start()
    if first is second and first is not None:
        yield "`start` hands out one memory twice: two targets would share it"
    yield from _ability_problems(adapter)


def _ability_problems(adapter: Adapter[Any]) -> Iterator[str]:
    if isinstance(adapter, ReadsLaunch):
        yield from _repeated("flag", [flag.name for flag in adapter.flags.flags])
        yield from _repeated("spelling", [s for flag in adapter.flags.flags for s in {*flag.spellings, *flag.off}])
        if not adapter.flags.commands:
            yield "its flag table names no command"
    if isinstance(adapter, ReadsLog):
        yield from _repeated("log pattern", [pattern.name for pattern in adapter.log_patterns])
        yield from (f"the log pattern {p.name} has no needle" for p in adapter.log_patterns if not p.needle)
        yield from (f"the log pattern {p.name} has no group {p.key!r}" for p in adapter.log_patterns if p.key and p.key not in p.regex.groupindex)
    if isinstance(adapter, Recognizes):
        yield from _recognition_problems(adapter)


def _route_problems(routes: tuple[Route, ...]) -> Iterator[str]:
    if not routes:
        yield "it lists no route"
    yield from _repeated("route", [str(route) for route in routes])
    for route in routes:
        if not PATH.fullmatch(route.path) or "/../" in f"{route.path}/":
            yield f"the route {route.path!r} is not a plain path from the root"
        if route.allowed & {name for name, _ in route.required}:
            yield f"the route {route.path} lets an adapter change a query parameter that it requires"


def _recognition_problems(adapter: Recognizes) -> Iterator[str]:
    for told, replies in _strangers():
        try:
            answer = adapter.recognize(replies)
        except Exception as error:
            yield f"`recognize` raises {type(error).__name__} for {told}"
            continue
        if answer is not False:
            yield f"`recognize` says {answer!r} of {told}"


def _strangers() -> Iterator[tuple[str, Mapping[str, Reply]]]:
    yield "a server that said nothing", {}
    bodies = {**hostile.WHOLE, "ok": b'{"status":"ok"}', "a version": b'{"version":"1"}', "no models": b'{"object":"list","data":[]}'}
    for name, body in bodies.items():
        for status in (200, 404, 503):
            replies = {route.path: Reply(route, status, {}, body, NOW) for route in RECOGNITION_ROUTES}
            yield f"a server that answers everything with {status} and {name}", replies


def _repeated(what: str, names: Sequence[str]) -> Iterator[str]:
    yield from (f"the {what} {name} stands there twice" for name in dict.fromkeys(names) if names.count(name) > 1)
