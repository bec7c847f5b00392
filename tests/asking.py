"""An `Ask` out of what a test lays down: replies by path and query, a log as text, launch settings, the operator's statements."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from inspector.contract import LaunchView, LogLine, LogPattern, LogView, ProcessView, Reply, Route
from inspector.reading import Kind, Known, Origin, Reason, Unknown

NOON = 1_800_000_000.0
NO_LOG = Unknown(Reason.NO_SOURCE, "no log is followed")
NO_LAUNCH = Unknown(Reason.NO_SOURCE, "the server is not on this machine")
REFUSED = Unknown(Reason.UNREACHABLE, "the connection was refused")
TIMED_OUT = Unknown(Reason.TIMEOUT, "no answer in time")
NOT_FOUND = (404, b'{"error":{"code":404,"message":"File Not Found","type":"not_found_error"}}')


@dataclass
class FakeAsk:
    """`replies` maps "/path" or "/path?model=x" to (status, body) or to an Unknown; what is not there answers 404 as llama.cpp does. `asked` is the record."""

    routes: tuple[Route, ...]
    replies: Mapping[str, tuple[int, bytes] | Unknown]
    log: LogView | Unknown = NO_LOG
    launch: LaunchView | Unknown = NO_LAUNCH
    launch_file: LaunchView | Unknown = NO_LAUNCH
    process: ProcessView | Unknown = NO_LAUNCH
    stated: Mapping[str, Known[Any]] = field(default_factory=dict)
    may_wake: bool = False
    may_scrape: bool = True
    now: float = NOON
    asked: list[str] = field(default_factory=list)

    async def get(self, route: Route, /, **query: str) -> Reply | Unknown:
        if route not in self.routes or not query.keys() <= route.allowed:
            raise AssertionError(f"{route.path} with {sorted(query)} is not among the routes")
        self.asked.append(path_of(route.path, (*route.required, *query.items())))
        answer = self.replies.get(path_of(route.path, query.items()), NOT_FOUND)
        if isinstance(answer, Unknown):
            return answer
        status, body = answer
        return Reply(route, status, {}, body, self.now)


def path_of(path: str, query: Iterable[tuple[str, str]]) -> str:
    pairs = sorted(query)
    return f"{path}?{urlencode(pairs)}" if pairs else path


def log_view(patterns: Iterable[LogPattern], lines: Iterable[str], at: float = NOON) -> LogView:
    """What a log says of the process that wrote its last part, by the contract's words on patterns."""
    found: dict[str, dict[str, LogLine]] = {}
    counts: Counter[str] = Counter()
    rules = tuple(patterns)
    for number, line in enumerate(lines):
        for rule in rules:
            match = rule.regex.search(line) if rule.needle in line else None
            if match is None:
                continue
            if rule.begins:
                found.clear()
                counts.clear()
            groups = {name: text for name, text in match.groupdict().items() if text is not None}
            found.setdefault(rule.name, {})[groups.get(rule.key, "")] = LogLine(groups, at - 3600 + number / 1000)
            counts[rule.name] += 1
    return LogView("server.log", found, counts, at)


def launch_view(settings: Mapping[str, Any], *, live: bool = True, missing: str = "") -> LaunchView:
    name = "pid 77" if live else "llama.service"
    origin = Origin(Kind.LAUNCH, name, NOON)
    return LaunchView(name, live, {key: Known(value, origin) for key, value in settings.items()}, NOON, missing)


def stated(**facts: Any) -> dict[str, Known[Any]]:
    return {name: Known(value, Origin(Kind.OPERATOR, "facts", NOON)) for name, value in facts.items()}


def load_case(folder: Path, routes: tuple[Route, ...], patterns: Iterable[LogPattern]) -> FakeAsk:
    """The ask of a case folder: `case.json` names replies (with `file` beside it or `body`), `log`, `launch`, `launch_file`, `stated` and permissions."""
    case = json.loads((folder / "case.json").read_text())
    ask = FakeAsk(routes, {path: _reply(entry, folder) for path, entry in case.get("replies", {}).items()})
    if "log" in case:
        ask.log = log_view(patterns, (folder / case["log"]).read_text().splitlines())
    if "launch" in case:
        ask.launch = launch_view(case["launch"])
    if "launch_file" in case:
        ask.launch_file = launch_view(case["launch_file"], live=False)
    ask.stated = stated(**case.get("stated", {}))
    ask.may_wake = case.get("may_wake", False)
    ask.may_scrape = case.get("may_scrape", True)
    return ask


def _reply(entry: Mapping[str, Any], folder: Path) -> tuple[int, bytes] | Unknown:
    if entry.get("timeout"):
        return TIMED_OUT
    if entry.get("refused"):
        return REFUSED
    body = entry.get("body", "")
    content = (folder / entry["file"]).read_bytes() if "file" in entry else body.encode() if isinstance(body, str) else json.dumps(body).encode()
    return entry.get("status", 200), content
