"""`inspector check`: one poll of each target, told as a table or as JSON, and by the exit code."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import anyio

from inspector.alerts.alerts import Alerts
from inspector.board import Board, Entry
from inspector.cli.targets import Chosen, choose
from inspector.cli.telling import Terminal
from inspector.judge import Level, worst
from inspector.report import targets_report
from inspector.wiring import Job, Wiring, assessor, timing


def check(words: Sequence[str], file: Path | None, *, as_json: bool) -> int:
    """Polls each target once and returns the exit code. Raises RefusedError."""
    entries = anyio.run(look, choose(words, file))
    if as_json:
        json.dump(targets_report(entries), sys.stdout, indent=1, ensure_ascii=False)
        sys.stdout.write("\n")
    else:
        terminal = Terminal()
        for entry in entries:
            terminal.target(entry, time.time())
    return exit_code(entries)


def exit_code(entries: Iterable[Entry]) -> int:
    """Of the worst target; one without an assessment is an unknown."""
    return worst([entry.assessment.level if entry.assessment else Level.UNKNOWN for entry in entries]).exit_code


async def look(chosen: Chosen) -> tuple[Entry, ...]:
    """Polls all targets at once; their entries in the order in which they were named. The first poll reads a target's log to its end."""
    board = Board(assessor(chosen.config))
    wiring = Wiring(chosen.adapters.adapters)
    async with anyio.create_task_group() as tasks:
        for job in chosen.jobs:
            tasks.start_soon(_look_at, job, wiring, board)
    _judge_alerts(board, Alerts(timing(chosen.config)))
    return board.entries()


def _judge_alerts(board: Board, alerts: Alerts) -> None:
    """The alerts by this one look: what is bad is pending, unless it fires at once."""
    for entry in board.entries():
        now, at = time.monotonic(), time.time()
        statuses, _ = alerts.look(entry.info.name, entry.snapshot, entry.assessment, stale=entry.stale, now=now, at=at)
        board.put_alerts(entry.info.name, statuses)


async def _look_at(job: Job, wiring: Wiring, board: Board) -> None:
    watcher = wiring.build(job)
    board.add(watcher.info)
    try:
        board.put(await watcher.poll())
    finally:
        await watcher.aclose()
