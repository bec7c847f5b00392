"""`inspector watch`: a live screen of targets, which it polls itself as the daemon does."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio
from anyio.abc import TaskGroup
from rich.console import Console
from rich.live import Live

from inspector.alerting import Alerting
from inspector.alerts.alerts import Alerts
from inspector.board import Board
from inspector.cli.ending import leave_stuck_threads
from inspector.cli.keyboard import Key, pressed, unbuffered
from inspector.cli.refusal import RefusedError
from inspector.cli.screen import Screen
from inspector.cli.targets import choose, discover
from inspector.config import Config, Target
from inspector.config.types import duration
from inspector.discovering import DISCOVER_EVERY, Discovering
from inspector.journal import Secrets, set_up
from inspector.metrics import OwnStatus
from inspector.registry import Registry, load_adapters
from inspector.verbosity import LogLevel
from inspector.watching import Watching
from inspector.wiring import Job, Wiring, assessor, jobs, timing

REFRESH = 1.0
"""Seconds between two drawings of the screen; a target is polled at its own pace."""

ENDS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT}

NO_TERMINAL = "the live screen needs a terminal on standard output; to look once, or from a script: inspector check"


@dataclass(frozen=True, slots=True)
class Watched:
    """What is to be watched. `discovers`: whatever model servers run on this machine, now or later."""

    config: Config
    adapters: Registry
    discovers: bool


def watch(words: Sequence[str], file: Path | None, every: str | None) -> int:
    """Runs until q, SIGINT or SIGTERM. Raises RefusedError without a terminal, and for a word, a file or a time that cannot be used."""
    interval = _interval(every)
    if not sys.stdout.isatty():
        raise RefusedError([NO_TERMINAL])
    console = _console()
    watched = _watched(words, file, interval)
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        set_up(Secrets(), level=LogLevel.ERROR, stream=nowhere)  # Lines between those of the screen would tear it; the screen shows every state itself.
        anyio.run(_run, watched, console)
    leave_stuck_threads()
    return 0


def _console() -> Console:
    """The terminal, whose own size counts, now and whenever it changes. Raises RefusedError for one that has no screen."""
    for fixed in ("COLUMNS", "LINES"):
        os.environ.pop(fixed, None)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # A name that the terminal's encoding lacks is no reason to end.
    console = Console(highlight=False, markup=False, emoji=False, force_terminal=True)
    if console.is_dumb_terminal:
        raise RefusedError([f"TERM={os.environ.get('TERM', '')} names a terminal without a screen; set TERM to what yours is, or look once: inspector check"])
    return console


def _interval(every: str | None) -> float | None:
    """Seconds of `--every`. Raises RefusedError."""
    try:
        interval = duration(float(every) if every and every.replace(".", "", 1).isdecimal() else every)
    except ValueError as error:
        raise RefusedError([f"--every {error}"]) from None
    if interval is not None and interval < REFRESH:
        raise RefusedError([f"--every must be at least {REFRESH:g}s, because the screen is drawn no faster"])
    return interval


def _watched(words: Sequence[str], file: Path | None, interval: float | None) -> Watched:
    if not words and file is None:
        return Watched(_paced(Config(), interval), load_adapters(), discovers=True)
    chosen = choose(words, file)
    targets = tuple(job.target for job in chosen.jobs)
    return Watched(_paced(chosen.config.model_copy(update={"targets": targets}), interval), chosen.adapters, discovers=False)


def _paced(config: Config, interval: float | None) -> Config:
    """With `--every` all targets are polled at that pace, whatever the file says."""
    if interval is None:
        return config
    targets = tuple(target.model_copy(update={"interval": None}) for target in config.targets)
    return config.model_copy(update={"targets": targets, "poll": config.poll.model_copy(update={"interval": interval})})


async def _run(watched: Watched, console: Console) -> None:
    board, own = Board(assessor(watched.config)), OwnStatus()
    keyboard = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else None
    empty = f"No model server found on this machine yet; looking again every {DISCOVER_EVERY:.0f} s. To name one: inspector watch http://127.0.0.1:8080"
    screen = Screen(board.entries, keys=keyboard is not None, empty=empty, bugs=lambda: own.task_failures)
    # The signals first and last: whatever comes in between, the terminal is given back.
    with (
        anyio.open_signal_receiver(signal.SIGWINCH, *ENDS) as signals,
        unbuffered(keyboard) if keyboard is not None else contextlib.nullcontext(),
        Live(get_renderable=lambda: screen, console=console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False) as live,
    ):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_keep_drawing, live)
            if keyboard is not None:
                tasks.start_soon(_obey, keyboard, screen, live, tasks.cancel_scope)
            await _begin(tasks, watched, board, own)
            await _until_told_to_end(signals, live)
            tasks.cancel_scope.cancel()


async def _begin(tasks: TaskGroup, watched: Watched, board: Board, own: OwnStatus) -> None:
    """As the daemon does: polls the targets, those that it finds where none is named, and evaluates their alerts."""
    adapters = watched.adapters.adapters
    watching: Watching[Job] = Watching(tasks, board, Wiring(adapters).build, own)
    alerting = Alerting(board, Alerts(timing(watched.config)), lambda: watching.wanted)
    tasks.start_soon(alerting.run, REFRESH)

    async def watch_these(targets: Sequence[Target]) -> None:
        await watching.apply(jobs(watched.config.model_copy(update={"targets": tuple(targets)}), adapters))

    if watched.discovers:
        tasks.start_soon(Discovering(partial(anyio.to_thread.run_sync, discover, watched.adapters), watch_these, own).run)
    else:
        await watch_these(watched.config.targets)


async def _keep_drawing(live: Live) -> None:
    while True:
        live.refresh()
        await anyio.sleep(REFRESH)


async def _until_told_to_end(signals: AsyncIterator[signal.Signals], live: Live) -> None:
    async for number in signals:
        if number in ENDS:
            return
        live.refresh()  # The window has another size.


async def _obey(keyboard: int, screen: Screen, live: Live, all_tasks: anyio.CancelScope) -> None:
    async for key in pressed(keyboard):
        if key is Key.QUIT:
            break
        screen.scroll(1 if key is Key.NEXT else -1)
        live.refresh()
    all_tasks.cancel()
