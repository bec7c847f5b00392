"""The contract between the core and an adapter, one adapter an engine.

The core owns sockets, deadlines, size caps, keys, cadence, generations and ageing. An adapter decides what to ask next and turns replies, log lines and launch
settings into readings. It never sees a client, never raises for a bad payload, and keeps nothing outside the `Recall` that the core hands it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol, TypeVar, runtime_checkable

from pydantic_core import from_json

from inspector.layout import Layout
from inspector.model import Drift, Fault, Memory, Pool, State
from inspector.reading import Kind, Known, Origin, Reading, Reason, Unknown

Recall = TypeVar("Recall")

# --- HTTP ---------------------------------------------------------------------------------------------------------------------------


class Deadline(StrEnum):
    """FAST routes answer at once on a healthy server; MAY_BLOCK ones can wait behind a decode, and their silence says busy, not down."""

    FAST = "fast"
    MAY_BLOCK = "may_block"


@dataclass(frozen=True, slots=True)
class Cadence:
    """How often a route is really asked: every `seconds`, 0 for every poll, None for once in a generation.

    Between, the kept reply is handed out with its own time."""

    seconds: float | None


POLL = Cadence(0.0)
GENERATION = Cadence(None)


@dataclass(frozen=True, slots=True)
class Route:
    """A path that may be asked with GET. `required` query parameters are always sent; an adapter may add those named in `allowed`, nothing else."""

    path: str
    required: tuple[tuple[str, str], ...] = ()
    allowed: frozenset[str] = frozenset()
    deadline: Deadline = Deadline.FAST
    every: Cadence = POLL


@dataclass(frozen=True, slots=True)
class Reply:
    """What a server answered, whatever the status. `headers` holds lower-case names of the few headers that the core passes on; `at` is Unix seconds."""

    route: Route
    status: int
    headers: Mapping[str, str]
    body: bytes
    at: float

    @property
    def origin(self) -> Origin:
        return Origin(Kind.HTTP, self.route.path, self.at)

    def json(self) -> Reading[Any]:
        """The body as JSON, or `invalid`: empty, truncated, too deeply nested, or of another kind."""
        if not self.body.strip():
            return Unknown(Reason.INVALID, f"{self.route.path} answered {self.status} with an empty body")
        try:
            return Known(from_json(self.body, cache_strings="none"), self.origin)
        except (ValueError, RecursionError, OverflowError):
            return Unknown(Reason.INVALID, f"{self.route.path} answered {self.status} with a body that is not JSON")


# --- Log lines ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LogPattern:
    """A kind of log line. `needle` is a literal that every such line holds (checked first); `regex` is searched in the line. `begins`: a server process starts
    here, so facts and counts of earlier lines belong to another one. `key` names a group that parts rows of one pattern, such as an engine's number."""

    name: str
    needle: str
    regex: re.Pattern[str]
    begins: bool = False
    key: str = ""


@dataclass(frozen=True, slots=True)
class LogLine:
    """The named groups of a line that matched, and when it was written (by its own stamp if it has one) or read. The line itself is not kept."""

    groups: Mapping[str, str]
    at: float


@dataclass(frozen=True, slots=True)
class LogView:
    """What the followed log says of the running process. `path` is the base name of the file, or the journal's unit."""

    path: str
    lines: Mapping[str, Mapping[str, LogLine]]
    counts: Counter[str]
    at: float

    def newest(self, name: str, key: str = "") -> LogLine | None:
        """The newest line of a pattern, None when there was none."""
        return self.lines.get(name, {}).get(key)

    def rows(self, name: str) -> Mapping[str, LogLine]:
        """The newest line of a pattern for each key."""
        return self.lines.get(name, {})

    def total(self, name: str) -> Known[int]:
        """How many lines of a pattern this process wrote. A followed log without such a line is a measured zero."""
        return Known(self.counts[name], Origin(Kind.LOG, self.path, self.at))

    def origin(self, line: LogLine) -> Origin:
        return Origin(Kind.LOG, self.path, line.at)


# --- Launch settings ----------------------------------------------------------------------------------------------------------------


class FlagKind(StrEnum):
    INTEGER = "integer"
    NUMBER = "number"
    SIZE = "size"
    WORD = "word"
    SWITCH = "switch"
    GIVEN = "given"
    """Only whether it was given may be known: a path, a key, a name."""
    NAME = "name"
    """A model's path or repository id, of which the last part may be known."""
    DECIMAL_SIZE = "decimal_size"
    """Bytes, with M, G, MB or GB in either case for powers of 1000, as mlx-lm reads them."""


@dataclass(frozen=True, slots=True)
class Flag:
    """One launch setting: its spellings on the command line, those that switch it off, its environment names, and for words the values that may be shown."""

    name: str
    kind: FlagKind
    spellings: tuple[str, ...]
    off: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    env_off: tuple[str, ...] = ()
    words: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class FlagTable:
    """An engine's launch settings. `commands` are base names by which its server is recognized in an argv (a program or `python -m` module);
    `unique_prefixes`: the engine's parser accepts shortened long flags; `dashes`: it reads `_` in flag names as `-`; `weights`: names of the flags whose
    values are a model's files or folder, which the core measures and never shows; `images`: how the names of container images begin whose entry point
    is the server, without registry and organization; `positional`: name of the flag that a first argument without a dash stands for, and overrules."""

    commands: frozenset[str]
    flags: tuple[Flag, ...]
    unique_prefixes: bool = False
    dashes: bool = False
    weights: tuple[str, ...] = ("model",)
    images: tuple[str, ...] = ()
    positional: str = ""


@dataclass(frozen=True, slots=True)
class LaunchView:
    """Launch settings of one source. `settings` holds those that are set: Known, or Unknown where the text does not settle the value.
    `missing` names what could not be read (an environment file, an unresolved variable): then a setting that is not there is unknown, not absent."""

    path: str
    live: bool
    settings: Mapping[str, Reading[Any]]
    at: float
    missing: str = ""

    def get(self, name: str) -> Reading[Any] | None:
        """The setting; None when it is surely not set, so that the engine's default holds."""
        if name in self.settings:
            return self.settings[name]
        if self.missing:
            return Unknown(Reason.NO_SOURCE, f"{self.path}: {self.missing}")
        return None

    @property
    def origin(self) -> Origin:
        return Origin(Kind.LAUNCH, self.path, self.at)


# --- The server's process --------------------------------------------------------------------------------------------------------------


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


# --- Asking and observing -----------------------------------------------------------------------------------------------------------


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
    the engine says so. `progress` holds, for each pool that can tell, the series that move while the engine works; a pool that is not there is never
    called stalled.
    """

    state: State
    detail: str = ""
    version: Reading[str] = NO_VERSION
    pools: tuple[Pool, ...] = ()
    memory: Memory = field(default_factory=Memory)
    born: float | None = None
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


# --- Planning from files ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ModelFile:
    """What a model's own file says of it: `kind` "gguf" (metadata keys as in the file) or "config" (a Hugging Face config.json). Only plain data."""

    kind: str
    architecture: str
    values: Mapping[str, Any]
    weights_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class PlanSettings:
    """How a server would be started. None: as the engine does it by default, where that is known. Sizes in bytes, contexts in tokens."""

    context_tokens: int | None = None
    slots: int | None = None
    unified: bool | None = None
    cache_type_k: str | None = None
    cache_type_v: str | None = None
    memory_bytes: int | None = None
    more: Mapping[str, int] = field(default_factory=dict)
    """Settings of one engine, by its flag's name: `ubatch_size`, `block_size`, `prefill_step_size`."""


@dataclass(frozen=True, slots=True)
class CacheShape:
    """Bytes of one session's KV cache: `token_bytes` for each token in layers that keep all, `window_bytes` for each token in layers that keep the last
    `window_tokens` of them, and `session_bytes` whatever its length."""

    token_bytes: int
    window_bytes: int = 0
    window_tokens: int = 0
    session_bytes: int = 0

    def of(self, tokens: int) -> int:
        """Bytes that a session of so many tokens holds."""
        return self.token_bytes * tokens + self.window_bytes * min(tokens, self.window_tokens) + self.session_bytes


@runtime_checkable
class Plans(Protocol):
    """Tells from a model's file what its KV cache takes. An architecture that was not proved against the engine is Unknown, by name."""

    def cache_shape(self, model: ModelFile, settings: PlanSettings) -> CacheShape | Unknown: ...

    def cache_bytes(self, model: ModelFile, settings: PlanSettings) -> int | Unknown:
        """What the engine sets aside for the KV cache when it starts with these settings; Unknown where it grows with its sessions."""

    def plan_layout(self, model: ModelFile, settings: PlanSettings) -> Layout | Unknown:
        """The layout that a server with these settings would have."""
