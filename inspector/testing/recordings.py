"""Recordings: what a real server of an engine answered in one situation, kept as files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from inspector.contract import Adapter, LaunchView, LogView
from inspector.reading import Known, Reason, Unknown
from inspector.testing.scripted import NO_LAUNCH, NO_LOG, Answer, ScriptedAsk

INDEX = "http.json"
"""File of a recording that maps a path, with its query if need be, to the answer."""

REFUSED = Unknown(Reason.UNREACHABLE, "the connection was refused")
TIMED_OUT = Unknown(Reason.TIMEOUT, "no answer in time")


@dataclass(frozen=True, slots=True)
class Recording:
    """One situation of a server: `answers` as `ScriptedAsk` takes them, and what else an adapter may look at."""

    name: str
    answers: Mapping[str, Answer | Unknown]
    log: LogView | Unknown = NO_LOG
    launch: LaunchView | Unknown = NO_LAUNCH
    stated: Mapping[str, Known[Any]] = field(default_factory=dict)
    may_wake: bool = False
    may_scrape: bool = True

    def ask(self, adapter: Adapter[Any], **changes: Answer | Unknown) -> ScriptedAsk:
        """An ask for one poll. `changes`, by path and query, replace answers."""
        return ScriptedAsk(
            routes=adapter.routes,
            answers={**self.answers, **changes},
            log=self.log,
            launch=self.launch,
            stated=self.stated,
            may_wake=self.may_wake,
            may_scrape=self.may_scrape,
        )


def load_recordings(folder: str | Path) -> tuple[Recording, ...]:
    """The recordings in the folders of a folder, by name. Raises FileNotFoundError when there is none: a kit without recordings would prove nothing."""
    found = tuple(load_recording(index.parent) for index in sorted(Path(folder).glob(f"*/{INDEX}")))
    if not found:
        raise FileNotFoundError(f"no recording in {folder}: expected folders with an {INDEX}")
    return found


def load_recording(folder: str | Path) -> Recording:
    """A recording from a folder: `http.json` maps path and query to {"status", "headers", and "file" or "body"}, {"timeout": true} or {"refused": true}."""
    folder = Path(folder)
    index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
    return Recording(folder.name, {target: _answer(folder, told) for target, told in index.items()})


def _answer(folder: Path, told: Mapping[str, Any]) -> Answer | Unknown:
    if told.get("timeout"):
        return TIMED_OUT
    if told.get("refused"):
        return REFUSED
    body = (folder / told["file"]).read_bytes() if "file" in told else _body(told.get("body", ""))
    return Answer(body, told.get("status", 200), {name.lower(): value for name, value in told.get("headers", {}).items()})


def _body(told: Any) -> bytes:
    return told.encode() if isinstance(told, str) else json.dumps(told).encode()


def paths_of(recordings: Iterable[Recording]) -> frozenset[str]:
    """Paths that some recording answers."""
    return frozenset(target.partition("?")[0] for recording in recordings for target in recording.answers)
