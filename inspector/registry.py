"""The adapters that are installed: entry points of the group `inspector.adapters`. One that does not work is listed with its problem, never raised."""

from __future__ import annotations

import importlib.metadata
import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from inspector.contract import Adapter, FlagTable, LogPattern, ReadsLaunch, ReadsLog, Route

GROUP = "inspector.adapters"

METHODS = ("offers", "start", "observe")

LONGEST_PROBLEM = 200


@dataclass(frozen=True, slots=True)
class Broken:
    """An adapter that cannot be used: its entry point's name, what is wrong, and the distribution that ships it ("" if unknown)."""

    name: str
    problem: str
    distribution: str


@dataclass(frozen=True, slots=True)
class Registry:
    """The adapters by name, and those that cannot be used."""

    adapters: Mapping[str, Adapter[Any]]
    broken: tuple[Broken, ...]


class EntryPoint(Protocol):
    """What is needed of `importlib.metadata.EntryPoint`."""

    @property
    def name(self) -> str: ...
    @property
    def value(self) -> str: ...
    @property
    def dist(self) -> Any: ...
    def load(self) -> Any: ...


def load_adapters(entry_points: Iterable[EntryPoint] | None = None) -> Registry:
    """Imports every adapter that is installed (or that the given entry points name)."""
    points = importlib.metadata.entry_points(group=GROUP) if entry_points is None else entry_points
    adapters: dict[str, Adapter[Any]] = {}
    broken: list[Broken] = []
    # One distribution that is found twice, installed and in the working directory, is no clash.
    distinct = {(point.name, point.value, _distribution(point)): point for point in points}
    for point in distinct.values():
        adapter, problem = _loaded(point)
        if not problem and point.name in adapters:
            problem = "another installed adapter has this name and is used: uninstall one of them"
        if problem:
            broken.append(Broken(point.name, problem, _distribution(point)))
        elif adapter is not None:
            adapters[point.name] = adapter
    return Registry(dict(sorted(adapters.items())), tuple(broken))


def _loaded(point: EntryPoint) -> tuple[Adapter[Any] | None, str]:
    try:
        adapter = point.load()
        return adapter, _problem(adapter, point.name)
    except (Exception, SystemExit) as error:
        text = f"{type(error).__name__}: {error}".splitlines()[0]
        return None, f"it cannot be imported: {text[:LONGEST_PROBLEM]}"


def _problem(adapter: Any, name: str) -> str:
    """What keeps an object from being an adapter; empty when nothing does."""
    lacking = [a for a in ("name", "title", "interval", "routes", *METHODS) if not hasattr(adapter, a)]
    if lacking:
        return f"it is no adapter, it lacks {', '.join(lacking)}"
    if inspect.isclass(adapter):
        return "its entry point names a class; it must name an object of it"
    checks = (
        (adapter.name == name, "its name is not that of its entry point"),
        (isinstance(adapter.title, str) and adapter.title != "", "its title is not a text"),
        (_is_positive(adapter.interval), "its interval is not a number of seconds above zero"),
        (_all_are(adapter.routes, Route) and len(adapter.routes) > 0, "its routes are not a tuple of Route"),
        (all(callable(getattr(adapter, m)) for m in METHODS), f"{', '.join(METHODS)} are not all methods"),
        (inspect.iscoroutinefunction(adapter.observe), "its observe is not an async method"),
        (not isinstance(adapter, ReadsLaunch) or isinstance(adapter.flags, FlagTable), "its flags are not a FlagTable"),
        (not isinstance(adapter, ReadsLog) or _all_are(adapter.log_patterns, LogPattern), "its log_patterns are not a tuple of LogPattern"),
    )
    return next((text for holds, text in checks if not holds), "")


def _is_positive(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def _all_are(value: object, kind: type) -> bool:
    return isinstance(value, tuple) and all(isinstance(item, kind) for item in value)


def _distribution(point: EntryPoint) -> str:
    name = getattr(point.dist, "name", None)
    return name if isinstance(name, str) else ""
