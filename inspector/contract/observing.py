"""One poll as an adapter sees it, what it makes of it, and what an adapter is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, runtime_checkable

from inspector.contract.http import Reply, Route
from inspector.contract.launch import FlagTable, LaunchView
from inspector.contract.log import LogPattern, LogView
from inspector.model import Drift, Fault, Memory, Pool, State
from inspector.reading import Known, Reading, Reason, Unknown

Recall = TypeVar("Recall")


@dataclass(frozen=True, slots=True)
class ProcessView:
    """What the operating system says of the server's process in this poll, before anything was asked. `connections`: established ones to its listening port,
    ours not counted. `package_version`: of the engine's Python package where the process's interpreter finds it. `model_type`, `model_context`: of the
    `config.json` beside the model's weights, the latter in tokens."""

    pid: int
    connections: Reading[int]
    package_version: Reading[str]
    model_type: Reading[str]
    model_context: Reading[int]


class Ask(Protocol):
    """One poll of one target, as an adapter sees it."""

    @property
    def now(self) -> float:
        """Unix seconds."""

    @property
    def log(self) -> LogView | Unknown:
        """Facts of the followed log, for this generation only."""

    @property
    def launch(self) -> LaunchView | Unknown:
        """Settings of the running process: its argv and environment."""

    @property
    def launch_file(self) -> LaunchView | Unknown:
        """Settings of the launch file that the operator named. It may differ from what runs."""

    @property
    def process(self) -> ProcessView | Unknown:
        """The server's process, where it is on this machine; looked at for adapters that are `LooksAtProcess` only."""

    @property
    def stated(self) -> Mapping[str, Known[Any]]:
        """Facts that the operator states in the configuration, by field name."""

    @property
    def may_wake(self) -> bool:
        """The operator accepts that looking wakes a sleeping model or keeps it awake."""

    @property
    def may_scrape(self) -> bool:
        """The operator lets the engine's own metrics endpoint be read."""

    async def get(self, route: Route, /, **query: str) -> Reply | Unknown:
        """The server's answer whatever its status; Unknown when there was none (unreachable, timeout) or it broke a cap (invalid)."""


NO_VERSION = Unknown(Reason.NOT_REPORTED, "the server does not state a version")


@dataclass(frozen=True, slots=True)
class Observation:
    """What an adapter made of one poll.

    `counters` must not fall while the process lives: if one does, the core starts a new generation. `born` is the process's start (Unix seconds) where
    the engine says so. `identity` is what the server states over HTTP and must not change while the process lives (build, model, slots, context), as one text;
    "" where it was not to be had. `progress` holds, for each pool that can tell, the series that move while the engine works; a pool that is not there is never
    called stalled.
    """

    state: State
    detail: str = ""
    version: Reading[str] = NO_VERSION
    pools: tuple[Pool, ...] = ()
    memory: Memory = field(default_factory=Memory)
    born: float | None = None
    identity: str = ""
    counters: Mapping[str, float] = field(default_factory=dict)
    progress: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    drift: tuple[Drift, ...] = ()
    faults: tuple[Fault, ...] = ()


class Adapter(Protocol[Recall]):
    """One engine. `interval` is the default poll interval in seconds; `routes` are all that may ever be asked of a server of this engine."""

    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def interval(self) -> float: ...
    @property
    def routes(self) -> tuple[Route, ...]: ...

    def offers(self, version: str | None) -> frozenset[str]:
        """Fields of `POOL_FIELDS` and `MEMORY_FIELDS` that this engine can ever offer, at this version."""

    def start(self) -> Recall:
        """Fresh memory for one generation of one target."""

    async def observe(self, ask: Ask, recall: Recall) -> Observation: ...


@runtime_checkable
class Recognizes(Protocol):
    """Tells from the replies to the core's harmless recognition routes, by path, whether a server is of this engine."""

    def recognize(self, replies: Mapping[str, Reply]) -> bool: ...


@runtime_checkable
class ReadsLaunch(Protocol):
    @property
    def flags(self) -> FlagTable: ...


@runtime_checkable
class LooksAtProcess(Protocol):
    """Wants a `ProcessView`. `package` is the name of the engine's Python distribution, such as "mlx-lm"."""

    @property
    def package(self) -> str: ...


@runtime_checkable
class ReadsLog(Protocol):
    @property
    def log_patterns(self) -> tuple[LogPattern, ...]: ...
