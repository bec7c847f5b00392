"""An `Ask` that answers from a script and remembers what it was asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from inspector.contract import LaunchView, LogView, ProcessView, Reply, Route
from inspector.reading import Known, Reason, Unknown

NOW = 1_800_000_000.0
"""The moment (Unix seconds) of a scripted poll."""

NO_LOG = Unknown(Reason.NO_SOURCE, "no log is followed; set `logs` for this target")
NO_LAUNCH = Unknown(Reason.NO_SOURCE, "the server's process was not looked at")


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server says: body, status, headers with lower-case names."""

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


NOT_FOUND = Answer(b"not found", 404)


@dataclass(frozen=True, slots=True)
class Asked:
    """One request: its route, and its path with its query."""

    route: Route
    target: str


@dataclass(slots=True)
class ScriptedAsk:
    """`inspector.contract.Ask` over `answers`: path and query (sorted by name), or the path alone, to an `Answer` or to an Unknown (no answer came).

    `otherwise` answers the rest. As in the daemon, what is not among `routes` or not allowed by its route is a ValueError; it stands in `violations` too,
    so that an adapter that swallows the error is still found out.
    """

    routes: tuple[Route, ...]
    answers: Mapping[str, Answer | Unknown] = field(default_factory=dict)
    otherwise: Answer | Unknown = NOT_FOUND
    now: float = NOW
    log: LogView | Unknown = NO_LOG
    launch: LaunchView | Unknown = NO_LAUNCH
    launch_file: LaunchView | Unknown = NO_LAUNCH
    process: ProcessView | Unknown = NO_LAUNCH
    stated: Mapping[str, Known[Any]] = field(default_factory=dict)
    may_wake: bool = False
    may_scrape: bool = True
    asked: list[Asked] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)

    async def get(self, route: Route, /, **query: str) -> Reply | Unknown:
        target = target_of(route, query)
        problem = self._problem(route, query)
        if problem:
            self.violations.append(f"{target}: {problem}")
            raise ValueError(self.violations[-1])
        self.asked.append(Asked(route, target))
        answer = self.answers.get(target, self.answers.get(route.path, self.otherwise))
        return answer if isinstance(answer, Unknown) else Reply(route, answer.status, answer.headers, answer.body, self.now)

    def _problem(self, route: Route, query: Mapping[str, str]) -> str:
        if route not in self.routes:
            return "this route is not among those that the adapter lists"
        surplus = sorted(query.keys() - route.allowed)
        return f"its route does not allow the query parameter {surplus[0]}" if surplus else ""


def target_of(route: Route, query: Mapping[str, str]) -> str:
    """Path and query of a request, its parameters sorted by name."""
    parameters = sorted([*query.items(), *route.required])
    return f"{route.path}?{urlencode(parameters)}" if parameters else route.path
