"""The daemon: the web server and one task for each target in one task group, signals, reload, and discovery where no target is named."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import anyio
import structlog
from anyio.abc import TaskGroup, TaskStatus

from inspector import __version__
from inspector.alerting import EVALUATE_EVERY, Alerting
from inspector.alerts.alerts import Alerts
from inspector.board import Board
from inspector.config import Config, ConfigError, Target, Web
from inspector.delivering import Delivering
from inspector.discovering import DISCOVER_EVERY, FORGET_AFTER, Discover, Discovering
from inspector.journal import Secrets
from inspector.judge import Assessment
from inspector.metrics import OwnStatus
from inspector.model import Snapshot
from inspector.registry import Registry
from inspector.server import address_of, serve
from inspector.watching import Watching, place_of
from inspector.web.app import Services, application
from inspector.wiring import Job, Wiring, alertmanager_client, assessor, jobs, secrets_of, timing


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds: between two looks for servers of this machine, for which one that has gone stays on the board as unreachable, between two looks at alerts."""

    discovery: float = DISCOVER_EVERY
    forget: float = FORGET_AFTER
    alerts: float = EVALUATE_EVERY


class Daemon:
    """`load` gives the configuration, at start and at each reload; it may block and raises ConfigError. None: there is nothing to reload.

    `discover` finds targets while the configuration names none; `listener` is a bound socket, which the daemon closes.
    """

    def __init__(
        self,
        config: Config,
        adapters: Registry,
        secrets: Secrets,
        listener: socket.socket,
        *,
        load: Callable[[], Config] | None = None,
        discover: Discover | None = None,
        pace: Pace = Pace(),
    ) -> None:
        self._config = self._bound = config
        self._token = config.web.bearer_token
        self._wiring = Wiring(adapters.adapters)
        self._secrets = secrets
        self._listener = listener
        self._load = load
        self._discover = discover
        self._pace = pace
        self._assess = assessor(config)
        self._own = OwnStatus()
        self._log = structlog.get_logger()
        self._reloading = anyio.Lock()
        self._looked = False
        self._board = Board(self._judged)
        self._alerts = Alerts(timing(config))

    @property
    def board(self) -> Board:
        return self._board

    def _judged(self, snapshot: Snapshot) -> Assessment:
        """By the configuration of now: a reload changes it."""
        return self._assess(snapshot)

    async def run(self, *, task_status: TaskStatus[str] = anyio.TASK_STATUS_IGNORED) -> None:
        """Runs until cancelled, or until SIGINT, SIGTERM, or a SIGHUP with nothing to load again. Tells HOST:PORT by `task_status` once it answers."""
        async with anyio.create_task_group() as tasks:
            self._watching: Watching[Job] = Watching(tasks, self._board, self._wiring.build, self._own)
            alerting = Alerting(self._board, self._alerts, lambda: self._watching.wanted)
            self._delivering = Delivering(tasks, alerting, self._own, alertmanager_client)
            address = address_of(self._listener)
            with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
                await tasks.start(serve, application(self._board, self._services(), slot_series=self._config.web.slot_series), self._listener)
                self._log.info("inspector started", version=__version__, address=f"http://{address}/", targets=len(self._config.targets))
                await self._begin(tasks)
                self._delivering.tell(self._config.alertmanager)
                tasks.start_soon(alerting.run, self._pace.alerts)
                task_status.started(address)
                async for number in signals:
                    if number != signal.SIGHUP or self._load is None:
                        break  # Without a file there is nothing to load again: a hang-up is the terminal's, and ends it.
                    self._start_reload(tasks)
            self._log.info("inspector stops", signal=signal.Signals(number).name)
            tasks.cancel_scope.cancel()

    def _start_reload(self, tasks: TaskGroup) -> None:
        """Beside the signals, so that a file that hangs keeps none of them waiting. One reload that waits will see all that changed meanwhile."""
        if self._reloading.statistics().tasks_waiting == 0:
            tasks.start_soon(self.reload)

    async def reload(self) -> Sequence[str]:
        """Loads the configuration again. A bad one is refused with all its problems, which are returned, and the old one stays."""
        if self._load is None:
            self._log.info("nothing to reload: the targets were given on the command line")
            return ()
        async with self._reloading:
            try:
                config = await anyio.to_thread.run_sync(self._load, abandon_on_cancel=True)
                self._secrets.add(*secrets_of(config))
                wanted = jobs(config, self._wiring.adapters)
            except ConfigError as error:
                self._own.reloaded = False
                for problem in error.problems:
                    self._log.error("configuration refused, the old one stays", problem=str(problem))
                return [str(problem) for problem in error.problems]
            except Exception as error:
                self._own.reloaded = False
                self._log.error("configuration not loaded, the old one stays", error=type(error).__name__, place=place_of(error))
                return [f"loading failed: {type(error).__name__}"]
            await self._take(config, wanted)
            return ()

    async def _begin(self, tasks: TaskGroup) -> None:
        if self._discover is not None and not self._config.targets:
            discovering = Discovering(self._discover, self._watch, self._own, every=self._pace.discovery, forget=self._pace.forget)
            tasks.start_soon(discovering.run)
        else:
            await self._watch(self._config.targets)

    async def _watch(self, targets: Sequence[Target]) -> None:
        await self._watching.apply(jobs(self._config.model_copy(update={"targets": tuple(targets)}), self._wiring.adapters))
        self._looked = True

    async def _take(self, config: Config, wanted: Sequence[Job]) -> None:
        if config.listen != self._bound.listen or _without_token(config) != _without_token(self._bound):
            self._log.warning("a change of `listen` or `web` counts from the next start on; only the bearer token of an unchanged `listen` counts at once")
        self._config = config
        if config.listen == self._bound.listen:  # Without a token a file may be right for its own address, and wrong for the one that is open.
            self._token = config.web.bearer_token
        self._assess = assessor(config)
        self._alerts.timing = timing(config)
        self._delivering.tell(config.alertmanager)
        await self._watching.apply(wanted)
        self._own.reloaded, self._own.reloaded_at = True, time.time()
        self._log.info("configuration reloaded", targets=len(wanted))

    def _services(self) -> Services:
        return Services(
            probe=self._watching.probe,
            missing=self._missing,
            reload=self.reload if self._config.web.reload else None,
            token=lambda: self._token.get_secret_value() if self._token else None,
            own=self._own,
        )

    def _missing(self) -> str:
        if not self._looked:
            return "still looking for the servers of this machine"
        waiting = self._watching.not_polled()
        return f"{waiting} of {len(self._watching.names)} targets have not been polled yet" if waiting else ""


def _without_token(config: Config) -> Web:
    return config.web.model_copy(update={"bearer_token_file": None})
