"""A generation: one life of a server process, as far as we can tell, and all that we remember of it.

Static facts belong to a generation and die with it. Signs of a new process: another pid or create time, another stated start, a counter that fell, another
identity over HTTP, a connection that was refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any, Protocol

from inspector.contract import LaunchView, Observation, ProcessView, Reply
from inspector.local.process import Process
from inspector.model import Memory, Pool, State
from inspector.reading import Known, Reason, Unknown

BORN_TOLERANCE = 2.0
"""Seconds by which two readings of one process's start may differ (rounding, clock steps)."""

NOT_LOOKED_AT = Unknown(Reason.NO_SOURCE, "the server's process was not looked at")


class Inspects(Protocol):
    """`inspector.inspection.Inspection`: looks at one process for the length of its life."""

    def look(self, now: float) -> Seen: ...


@dataclass(frozen=True, slots=True)
class Seen:
    """One look at the server's process. Without a process nothing is offered of its memory."""

    process: ProcessView | Unknown = NOT_LOOKED_AT
    memory: Memory = field(default_factory=Memory)


@dataclass(slots=True)
class Progress:
    """The series of one pool that move while its engine works, and since when (monotonic seconds) they have stood still."""

    values: tuple[float, ...]
    since: float


@dataclass(frozen=True, slots=True)
class BackOff:
    """How often in a row a route that may block has timed out, and until when (monotonic seconds) it is left alone."""

    times: int
    until: float


@dataclass(frozen=True, slots=True)
class Kept:
    """A reply that is handed out again, and when it was asked for (monotonic seconds): its own time is Unix time, which may be set."""

    reply: Reply
    asked_at: float


@dataclass(slots=True)
class Generation:
    """Memory of one life of a server process. `after`: log lines read before this moment (Unix seconds) belong to an earlier life."""

    number: int
    recall: Any
    process: Process | Unknown = NOT_LOOKED_AT
    launch: LaunchView | Unknown = NOT_LOOKED_AT
    inspection: Inspects | None = None
    after: float | None = None
    born: float | None = None
    counters: Mapping[str, float] = field(default_factory=dict)
    identity: str = ""
    replies: dict[tuple[str, str], Kept] = field(default_factory=dict)
    progress: dict[str, Progress] = field(default_factory=dict)
    learned_at: float | None = None
    """When the newest observation was made (monotonic seconds)."""
    unwatched_after: float = inf
    """Seconds between two observations after which nobody can say what happened meanwhile."""
    starts: int = 0
    """Starts of a server process that the log had shown when this generation began."""
    refused: bool = False
    """A connection was refused since the last success: the process is gone, or was."""
    blocked: dict[tuple[str, str], BackOff] = field(default_factory=dict)
    """For each path and query of the routes that may block: neither routes nor a router's models wait for one another."""

    @property
    def started(self) -> float | None:
        """When the process started (Unix seconds), by the operating system's word or its own."""
        return self.process.created if not isinstance(self.process, Unknown) else self.born

    def process_seen(self, seen: Seen) -> ProcessView | Unknown:
        """A look at the process, or why there is no process to look at."""
        return self.process if isinstance(self.process, Unknown) else seen.process

    def contradicted_by(self, observation: Observation) -> bool:
        """Whether an observation can only come from another process than the one we remember."""
        if self.born is not None and observation.born is not None and abs(self.born - observation.born) > BORN_TOLERANCE:
            return True
        if self.identity and observation.identity and self.identity != observation.identity:
            return True
        return any(name in self.counters and value < self.counters[name] for name, value in observation.counters.items())

    def learn(self, observation: Observation, moment: float) -> None:
        """Keeps what the next observation is compared with. `moment` is in monotonic seconds."""
        if self.learned_at is not None and moment - self.learned_at > self.unwatched_after:
            self.progress.clear()  # The machine slept, or we did: that is no time of standing still.
        if observation.born is not None:
            self.born = observation.born
        self.counters = {**self.counters, **observation.counters}
        self.identity = observation.identity or self.identity
        self.learned_at = moment
        self.refused = False
        # A pool that was not seen at work meanwhile, asleep or silent, starts afresh: nobody watched it stand still.
        self.progress = {pool_id: self._moved(pool_id, values, moment) for pool_id, values in observation.progress.items() if observation.state is State.READY}

    def _moved(self, pool_id: str, values: tuple[float, ...], moment: float) -> Progress:
        seen = self.progress.get(pool_id)
        return Progress(values, moment) if seen is None or seen.values != values else seen

    def standing_still(self, observation: Observation, moment: float) -> float | None:
        """Seconds for which a pool that has work in hand did not move; None when none stands still or none can tell. Call after `learn`."""
        longest: float | None = None
        for pool in observation.pools:
            if pool.id not in observation.progress:
                continue
            if not has_work(pool):
                self.progress[pool.id].since = moment
                continue
            still = moment - self.progress[pool.id].since
            longest = still if longest is None else max(longest, still)
        return longest


def has_work(pool: Pool) -> bool:
    """Whether requests surely run or wait in this pool."""
    readings = (pool.slots_busy, pool.requests_running, pool.requests_waiting, pool.requests_in_flight)
    return any(isinstance(r, Known) and r.value > 0 for r in readings)
