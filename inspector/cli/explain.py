"""`inspector explain`: one poll, with everything that was asked, what came back (masked), and what it became."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
from rich.table import Table
from rich.text import Text

from inspector import __version__
from inspector.asking import Get
from inspector.board import Board, Entry
from inspector.cli.refusal import RefusedError
from inspector.cli.targets import Chosen, choose
from inspector.cli.telling import Terminal
from inspector.collector import NO_LOG
from inspector.contract import Adapter, LaunchView, LogView, ReadsLaunch
from inspector.generation import NOT_LOOKED_AT
from inspector.inspection import launch_of
from inspector.reading import Known, Unknown
from inspector.recording import Exchange, Recorder
from inspector.report import reading, target_report
from inspector.wiring import TargetSources, Wiring, assessor

SHORTEN = 1000
"""Characters of a body that are shown on the screen; a bundle holds it whole."""

PLAIN = re.compile(r"[\w.,:+%-]{1,40}")
"""What a group of a log line may show: a number or a word, no path and no sentence."""


@dataclass(frozen=True, slots=True)
class Explained:
    """One poll of one target: its entry, the exchanges with the server, and what the other sources said."""

    entry: Entry
    exchanges: tuple[Exchange, ...]
    log: LogView | Unknown
    launch: LaunchView | Unknown
    launch_file: LaunchView | Unknown


def explain(word: str, file: Path | None, save: Path | None) -> int:
    """Polls once and tells all about it; `save` is written as a masked bundle. Raises RefusedError."""
    explained = anyio.run(_look, choose([word], file))
    _tell(Terminal(), explained)
    if save is not None:
        try:
            save.write_text(json.dumps(bundle(explained), indent=1, ensure_ascii=False) + "\n")
        except OSError as error:
            raise RefusedError([f"{save} cannot be written: {error.strerror}"], exit_code=1) from error
    return 0


def bundle(explained: Explained) -> dict[str, Any]:
    """The poll as JSON: what a test needs to replay it, without prompts, keys and paths."""
    return {
        "version": __version__,
        "engine": explained.entry.info.engine,
        "requests": [_request(exchange) for exchange in explained.exchanges],
        "log": _unknown_or(explained.log, log_facts),
        "launch": _unknown_or(explained.launch, _settings),
        "launch_file": _unknown_or(explained.launch_file, _settings),
        "report": target_report(explained.entry),
    }


def log_facts(view: LogView) -> dict[str, Any]:
    """Which lines of which pattern were seen, how many, and what their groups hold where that is a number or a word."""
    return {name: {"count": view.counts[name], "newest": [_groups(line.groups) for line in rows.values()]} for name, rows in view.lines.items()}


async def _look(chosen: Chosen) -> Explained:
    recorders: list[Recorder] = []

    def listening(get: Get) -> Get:
        recorders.append(Recorder(get))
        return recorders[-1]

    board = Board(assessor(chosen.config))
    watcher = Wiring(chosen.adapters.adapters, listening).build(chosen.jobs[0])
    board.add(watcher.info)
    try:
        board.put(await watcher.poll())
        (entry,) = board.entries()
        adapter = chosen.adapters.adapters.get(entry.info.engine)
        exchanges = tuple(exchange for recorder in recorders for exchange in recorder.exchanges)
        return Explained(entry, exchanges, *_other_sources(watcher.sources, adapter))
    finally:
        await watcher.aclose()


def _other_sources(sources: TargetSources, adapter: Adapter[Any] | None) -> tuple[LogView | Unknown, LaunchView | Unknown, LaunchView | Unknown]:
    process = sources.process
    log = NO_LOG if sources.log is None else sources.log.view(born=None if isinstance(process, Unknown) else process.created, after=None)
    if not isinstance(adapter, ReadsLaunch):
        return log, NOT_LOOKED_AT, NOT_LOOKED_AT
    launch = process if isinstance(process, Unknown) else launch_of(process, adapter.flags, time.time())
    return log, launch, sources.launch_file(adapter.flags)


def _tell(terminal: Terminal, explained: Explained) -> None:
    terminal.heading("What was asked")
    _tell_requests(terminal, explained)
    terminal.heading("What came back (masked)")
    for exchange in explained.exchanges:
        _tell_body(terminal, exchange)
    terminal.heading("What else was looked at")
    _tell_log(terminal, explained.log)
    _tell_launch(terminal, "process", explained.launch)
    _tell_launch(terminal, "launch file", explained.launch_file)
    terminal.heading("What it became")
    terminal.target(explained.entry, time.time(), every_field=True)


def _tell_requests(terminal: Terminal, explained: Explained) -> None:
    table = Table(box=None, show_header=False, padding=(0, 1, 0, 2))
    for exchange in explained.exchanges:
        came = str(exchange.status) if exchange.failure is None else str(exchange.failure.reason)
        key = "" if exchange.with_key else "no key sent"
        table.add_row(Text(f"GET {exchange.target}"), came, f"{exchange.seconds * 1000:.1f} ms", f"{exchange.size:,} bytes", key)
    terminal.console.print(table)


def _tell_body(terminal: Terminal, exchange: Exchange) -> None:
    headers = ", ".join(f"{name}: {value}" for name, value in (exchange.headers or {}).items())
    terminal.console.print(Text(f"  {exchange.target}").append(f"  {headers}", "dim"))
    if exchange.failure is not None:
        said = exchange.failure.detail
    elif exchange.body is None:
        said = f"({exchange.size:,} bytes that may hold anything, not shown)"
    else:
        said = exchange.body if len(exchange.body) <= SHORTEN else f"{exchange.body[:SHORTEN]} … (--save writes all of it)"
    for line in said.splitlines():
        terminal.console.print(Text(f"    {line}"))


def _tell_log(terminal: Terminal, log: LogView | Unknown) -> None:
    if isinstance(log, Unknown):
        terminal.console.print(Text(f"  log: unknown ({log.reason})  {log.detail}"))
        return
    terminal.console.print(Text(f"  log {log.path}: {len(log.lines)} kinds of line of the running server"))
    for name, facts in log_facts(log).items():
        newest = "; ".join(" ".join(f"{key}={value}" for key, value in groups.items()) for groups in facts["newest"])
        terminal.console.print(Text(f"    {name}: {facts['count']} times, newest {newest}"))


def _tell_launch(terminal: Terminal, what: str, launch: LaunchView | Unknown) -> None:
    if isinstance(launch, Unknown):
        terminal.console.print(Text(f"  {what}: unknown ({launch.reason})  {launch.detail}"))
        return
    terminal.console.print(Text(f"  {what} {launch.path}: {len(launch.settings)} settings that count{'; ' + launch.missing if launch.missing else ''}"))
    for name, setting in launch.settings.items():
        value = setting.value if isinstance(setting, Known) else f"unknown ({setting.reason})  {setting.detail}"
        terminal.console.print(Text(f"    {name}: {value}"))


def _request(exchange: Exchange) -> dict[str, Any]:
    asked = {"path": exchange.path, "query": exchange.query, "seconds": round(exchange.seconds, 4)}
    if exchange.failure is not None:
        return asked | {"status": None, "reason": str(exchange.failure.reason), "detail": exchange.failure.detail}
    return asked | {"status": exchange.status, "headers": dict(exchange.headers or {}), "size": exchange.size, "body": exchange.body}


def _settings(launch: LaunchView) -> dict[str, Any]:
    return {"path": launch.path, "missing": launch.missing, "settings": {name: reading(setting) for name, setting in launch.settings.items()}}


def _unknown_or(view: Any, told: Any) -> Any:
    return reading(view) if isinstance(view, Unknown) else told(view)


def _groups(groups: Mapping[str, str]) -> dict[str, str]:
    return {name: value if PLAIN.fullmatch(value) else "(text)" for name, value in groups.items()}
