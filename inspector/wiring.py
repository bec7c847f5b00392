"""From a configured target to what polls it: client, log, process and launch file, put together."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inspector.alerts.machine import Timing
from inspector.asking import Get
from inspector.board import TargetInfo
from inspector.budget import Shape
from inspector.collector import TargetCollector
from inspector.config import Alertmanager, Config, ConfigError, Poll, Problem, Target, target_from_argument
from inspector.config.target import LaunchArgv, LaunchFile, LaunchPid
from inspector.contract import Adapter, FlagTable, LaunchView, LogPattern
from inspector.discovery import Found
from inspector.fetch import Client, tls_context
from inspector.follow import FileSource, Follower, JournalSource
from inspector.generation import NOT_LOOKED_AT
from inspector.inspection import Inspection
from inspector.judge import Assessment, Rules, Threshold, assess
from inspector.launch import server_argv, settings
from inspector.local.process import Process, process_of, process_on
from inspector.model import Snapshot
from inspector.notify import AlertmanagerClient, Server
from inspector.reading import Reason, Unknown
from inspector.watched import NO_LAUNCH_FILE, Watched

if TYPE_CHECKING:
    from inspector.launch.files import LaunchFileReader

NOT_LOOKED_FOR = Unknown(Reason.NO_SOURCE, "the configuration says not to look at the server's process (`launch`)")
ELSEWHERE = Unknown(Reason.NO_SOURCE, "the server is not on this machine, so its process cannot be looked at; run the inspector beside it, or state `facts`")
BEHIND_SOCKET = Unknown(Reason.NO_SOURCE, "the process behind a unix socket is not looked for; name it with `launch: {pid: …}`, or state `facts`")
NOT_SERVING = "its command line is not that of this engine's server: name the server's process with `launch: {pid: …}`, or state `facts`"
NOT_THIS_SERVER = Unknown(Reason.INVALID, "`launch.argv` is not the command line of this engine's server; begin it with the server's command")

Adapters = Mapping[str, Adapter[Any]]


@dataclass(frozen=True, slots=True)
class Job:
    """All that makes one target what it is: two equal jobs are watched the same way."""

    target: Target
    poll: Poll

    @property
    def name(self) -> str:
        return self.target.name


def jobs(config: Config, adapters: Adapters) -> list[Job]:
    """A job for each target. Raises ConfigError for an engine that no installed adapter knows."""
    problems = [_no_adapter(target, adapters) for target in config.targets if target.engine is not None and target.engine not in adapters]
    if problems:
        raise ConfigError(problems)
    return [Job(target, config.poll) for target in config.targets]


def assessor(config: Config) -> Callable[[Snapshot], Assessment]:
    """What follows from a snapshot by this configuration's thresholds and session shapes."""
    limits = _thresholds(config)
    shapes = {name: Shape(shape.prompt, shape.output) for name, shape in config.sessions.items()}
    sessions = {name: Threshold(t.warning, t.critical) for name, t in config.thresholds.sessions.items()}
    asked = {target.name: config.sessions_of(target) for target in config.targets}

    def judged(snapshot: Snapshot) -> Assessment:
        named = asked.get(snapshot.target, shapes)
        return assess(snapshot, Rules(limits, {name: shapes[name] for name in named}, sessions))

    return judged


def _thresholds(config: Config) -> Mapping[str, Threshold]:
    """Thresholds by resource, as `judge` takes them."""
    configured = {"kv": config.thresholds.kv, "memory": config.thresholds.memory, "slots": config.thresholds.slots, "context": config.thresholds.context}
    given = {name: Threshold(t.warning, t.critical) for name, t in configured.items()}
    return {name: t for name, t in given.items() if t != Threshold()}


def timing(config: Config) -> Timing:
    """The clocks of the alerts."""
    return Timing(config.alerts.before_firing, config.alerts.keep_firing_for, config.alerts.unknown_after)


def alertmanager_client(settings: Alertmanager) -> AlertmanagerClient:
    """The client for the Alertmanager of a configuration."""
    username = settings.basic_auth.username if settings.basic_auth else None
    tls = settings.tls
    return AlertmanagerClient(
        Server(settings.url, settings.bearer_token, username, settings.password), lambda: tls_context(tls.ca_file, tls.cert_file, tls.key_file)
    )


def secrets_of(config: Config) -> Iterator[str]:
    """Every secret that a configuration holds, for the journal to mask."""
    server = config.alertmanager
    for secret in (config.web.bearer_token, server.bearer_token if server else None, server.password if server else None):
        if secret is not None:
            yield secret.get_secret_value()
    for target in config.targets:
        if target.endpoint.api_key is not None:
            yield target.endpoint.api_key.get_secret_value()
        yield from (value.get_secret_value() for value in target.endpoint.headers.values())


class Wiring:
    """Makes what polls a target. `wrap` is put around each client's `get`, to listen in."""

    def __init__(self, adapters: Adapters, wrap: Callable[[Get], Get] = lambda get: get) -> None:
        self.adapters = adapters
        self._wrap = wrap

    @cached_property
    def _ssl_context(self) -> ssl.SSLContext:
        """Trust in the system's authorities: large, so there is one for all, and only once an https target asks for it."""
        return tls_context()

    def build(self, job: Job) -> TargetWatcher:
        shared = self._ssl_context if job.target.address.scheme == "https" else None
        client = Client(job.target.endpoint, ssl_context=shared)
        return TargetWatcher(job, client, TargetSources(job.target, self._wrap(client.get)), self.adapters)


class TargetSources:
    """Where one target's facts come from: `inspector.collector.Sources`. `log` and `process` are what was opened and found last."""

    def __init__(self, target: Target, get: Get, clock: Callable[[], float] = time.time) -> None:
        self.get = get
        self.log: Follower | None = None
        self.process: Process | Unknown = NOT_LOOKED_AT
        self._target = target
        self._clock = clock
        self._launch_file: LaunchFileReader | None = None

    def follower(self, patterns: tuple[LogPattern, ...]) -> Follower | None:
        logs = self._target.logs
        if logs is not None:
            self.log = Follower(JournalSource(logs.name) if logs.kind == "journal" else FileSource(Path(logs.name)), patterns)
        return self.log

    def find_process(self, table: FlagTable | None) -> Process | Unknown:
        self.process = self._find_process(table)
        return self.process

    def launch_file(self, table: FlagTable) -> LaunchView | Unknown:
        launch = self._target.launch
        if isinstance(launch, LaunchFile):
            # Only who names a launch file pays for what reads so many kinds of them.
            from inspector.launch.files import LaunchFileReader  # noqa: PLC0415

            self._launch_file = self._launch_file or LaunchFileReader(launch.file, launch.pick, self._clock)
            return self._launch_file.view(table)
        if not isinstance(launch, LaunchArgv):
            return NO_LAUNCH_FILE
        arguments = server_argv(launch.argv, table)
        if arguments is None:
            return NOT_THIS_SERVER
        return settings(arguments, launch.env, table, path="launch.argv", live=False, at=self._clock())

    def _find_process(self, table: FlagTable | None) -> Process | Unknown:
        launch, address = self._target.launch, self._target.address
        if isinstance(launch, LaunchPid):
            return process_of(launch.pid)
        if launch == "none":
            return NOT_LOOKED_FOR
        if not self._target.looks_at_process:
            return ELSEWHERE
        if address.socket is not None:
            return BEHIND_SOCKET
        found = process_on((address.host, address.port))
        if isinstance(found, Unknown) or table is None or server_argv(found.argv, table) is not None:
            return found
        # What forwards a port, a proxy or a container's runtime, has another life and other memory than the server.
        return Unknown(Reason.NO_SOURCE, f"process {found.pid} listens on port {address.port}, but {NOT_SERVING}")


class TargetWatcher:
    """A target's collector with all that it holds open: `inspector.watching.Watcher`."""

    def __init__(self, job: Job, client: Client, sources: TargetSources, adapters: Adapters) -> None:
        self.sources = sources
        self._job = job
        self._client = client
        self._collector = TargetCollector(watched(job, adapters), sources, adapters, inspect=self._inspection)

    @property
    def info(self) -> TargetInfo:
        target = self._job.target
        interval = self._collector.interval
        # A poll is as old as its beginning: with a short interval, two that ran into their deadlines must still fit.
        stale_after = max(self._job.poll.stale_after * interval, interval + 2 * self._job.poll.timeout)
        return TargetInfo(target.name, target.engine or "", target.address.label, stale_after, target.labels)

    def _inspection(self, process: Process, adapter: Adapter[Any]) -> Inspection:
        return Inspection(process, self._job.target.address.port, adapter)

    async def run(self, publish: Callable[[Snapshot], None], *, delay: float = 0.0) -> None:
        await self._collector.run(publish, delay=delay)

    async def poll(self) -> Snapshot:
        return await self._collector.poll()

    async def aclose(self) -> None:
        try:
            await self._collector.aclose()
        finally:
            await self._client.aclose()


def watched(job: Job, adapters: Adapters) -> Watched:
    """What the collector has to know of a target."""
    target, poll = job.target, job.poll
    return Watched(
        name=target.name,
        adapter=adapters[target.engine] if target.engine is not None else None,
        interval=target.interval or poll.interval,
        timeout=poll.timeout,
        may_wake=target.may_wake,
        may_scrape=target.metrics == "auto",
        stated=target.stated(time.time()),
        has_key=target.endpoint.api_key is not None or bool(target.headers),
        names_process=isinstance(target.launch, LaunchPid),
    )


def found_targets(found: Sequence[Found]) -> tuple[Target, ...]:
    """The targets for servers that were found on this machine, named by engine and port, and by address where two share both."""
    targets = [target_from_argument(f"{one.engine}={one.url}") for one in found]
    short = [f"{target.engine}-{target.address.port}" for target in targets]
    names = [
        name if short.count(name) == 1 else f"{target.engine}-{target.address.host}-{target.address.port}" for name, target in zip(short, targets, strict=True)
    ]
    return tuple(target.model_copy(update={"name": name}) for name, target in zip(names, targets, strict=True))


def _no_adapter(target: Target, adapters: Adapters) -> Problem:
    remedy = f"installed: {', '.join(adapters) or 'none'}; see: inspector adapters"
    return Problem("configuration", None, f"target {target.name}: engine", f"no adapter for {target.engine} is installed", remedy)
