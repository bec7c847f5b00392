"""The targets that are watched: one task each, started, restarted after a bug, and swapped whole when the configuration changes."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Generic, Protocol, TypeVar

import anyio
import structlog
from anyio.abc import TaskGroup

from inspector.board import Board, TargetInfo
from inspector.journal import Changes
from inspector.metrics import OwnStatus
from inspector.model import Snapshot

RESTART_DELAY = 5.0
"""Seconds before a target's task that ended with a bug is started again."""

SPREAD = 0.05
"""Seconds between the first polls of two targets, so that many of them do not all fall into one moment."""


class Watcher(Protocol):
    """What polls one target: `inspector.wiring.TargetWatcher`. `info` is its entry on the board, as far as it is known."""

    @property
    def info(self) -> TargetInfo: ...
    async def run(self, publish: Callable[[Snapshot], None], *, delay: float = 0.0) -> None: ...
    async def poll(self) -> Snapshot: ...
    async def aclose(self) -> None: ...


class Job(Protocol):
    """All that makes one target what it is: two equal jobs are watched the same way."""

    @property
    def name(self) -> str: ...


J = TypeVar("J", bound=Job)


@dataclass(slots=True)
class _Watch(Generic[J]):
    """One target's task. `ended` is set when it holds nothing any more."""

    job: J
    watcher: Watcher
    newest: Snapshot | None = None
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    ended: anyio.Event = field(default_factory=anyio.Event)


class Watching(Generic[J]):
    """Keeps one task for each job in `tasks` and puts what they see on the board. `build` makes what polls a target.

    `wanted`: the names of all that is to be watched, also while a changed one is begun anew."""

    def __init__(
        self,
        tasks: TaskGroup,
        board: Board,
        build: Callable[[J], Watcher],
        own: OwnStatus,
        changes: Changes | None = None,
        *,
        restart_delay: float = RESTART_DELAY,
    ) -> None:
        self._tasks = tasks
        self._board = board
        self._build = build
        self._own = own
        self._changes = changes or Changes()
        self._restart_delay = restart_delay
        self._log = structlog.get_logger()
        self._watches: dict[str, _Watch[J]] = {}
        self.wanted: frozenset[str] = frozenset()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._watches)

    async def apply(self, jobs: Sequence[J]) -> None:
        """Watches these targets and no others. One that is as before goes on undisturbed, with all that is known of it; a changed one begins anew."""
        wanted = {job.name: job for job in jobs}
        self.wanted = frozenset(wanted)
        for name, watch in list(self._watches.items()):
            if wanted.get(name) != watch.job:
                await self._stop(name)
        fresh = [job for job in jobs if job.name not in self._watches]
        for number, job in enumerate(fresh):
            self._start(job, delay=number * SPREAD)

    async def probe(self, name: str) -> bool:
        """Puts a fresh snapshot on the board, that of the poll in flight if there is one. False when the target is not watched."""
        watch = self._watches.get(name)
        if watch is None:
            return False
        self._publish(watch, await watch.watcher.poll())
        return True

    def not_polled(self) -> int:
        """How many targets have not completed a poll yet."""
        return sum(entry.snapshot is None for entry in self._board.entries())

    def _start(self, job: J, delay: float) -> None:
        watch = _Watch(job, self._build(job))
        self._watches[job.name] = watch
        self._board.add(watch.watcher.info)
        self._tasks.start_soon(self._keep_running, watch, delay)

    async def _stop(self, name: str) -> None:
        watch = self._watches.pop(name)
        watch.scope.cancel()
        await watch.ended.wait()
        self._board.remove(name)
        self._changes.forget(name)

    async def _keep_running(self, watch: _Watch[J], delay: float) -> None:
        try:
            with watch.scope:
                while True:
                    await self._run_once(watch, delay)
                    await anyio.sleep(self._restart_delay)
        finally:
            with anyio.CancelScope(shield=True):
                await self._close(watch)
            watch.ended.set()

    async def _run_once(self, watch: _Watch[J], delay: float) -> None:
        """The one place where a bug in a target's task ends: it is counted and told, and no other target notices."""
        try:
            await watch.watcher.run(lambda snapshot: self._publish(watch, snapshot), delay=delay)
        except Exception as error:
            self._note_bug(watch, error)

    async def _close(self, watch: _Watch[J]) -> None:
        try:
            await watch.watcher.aclose()
        except Exception as error:
            self._note_bug(watch, error)

    def _note_bug(self, watch: _Watch[J], error: Exception) -> None:
        self._own.task_failures += 1
        # Without the error's own text: it may repeat what the server said.
        self._log.error("target task failed", target=watch.job.name, error=type(error).__name__, place=place_of(error))

    def _publish(self, watch: _Watch[J], snapshot: Snapshot) -> None:
        """Puts a snapshot on the board once, however many waited for its poll."""
        if self._watches.get(watch.job.name) is not watch or snapshot is watch.newest:
            return
        watch.newest = snapshot
        # The poll interval, and with it what is stale, may be the adapter's: it is known only after the first contact.
        self._board.add(replace(watch.watcher.info, engine=snapshot.engine))
        self._board.put(snapshot)
        self._changes.note(snapshot)


def place_of(error: BaseException) -> str:
    """The innermost frames of an error: file and line, without its text, which may repeat what a server said."""
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    return " < ".join(f"{PurePath(frame.filename).name}:{frame.lineno}" for frame in reversed(frames))
