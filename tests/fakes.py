"""Fakes that several tests share: readings in one word, a clock that is set, an adapter and sources that do as they are told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from inspector.contract import Deadline, FlagTable, LaunchView, LogPattern, Observation, Reply, Route
from inspector.local.process import Process
from inspector.model import Memory, Pool, Snapshot, State
from inspector.reading import Kind, Known, Origin, Reason, Unknown

NOON = 1_800_000_000.0
"""A moment (Unix seconds) that tests call now."""

HEALTH = Route("/health")
SLOW = Route("/slow", deadline=Deadline.MAY_BLOCK)
NO_PROCESS = Unknown(Reason.NO_SOURCE, "the server is not on this machine")
REFUSED = Unknown(Reason.UNREACHABLE, "the connection was refused")
TIMED_OUT = Unknown(Reason.TIMEOUT, "no answer in time")


def known(value: Any, path: str = "/slots", at: float = NOON, kind: Kind = Kind.HTTP) -> Known[Any]:
    return Known(value, Origin(kind, path, at))


def unknown(reason: Reason = Reason.NOT_REPORTED, detail: str = "it was not said", bounds: tuple[float | None, float | None] | None = None) -> Unknown:
    return Unknown(reason, detail, bounds)


def snapshot(*pools: Pool, state: State = State.READY, at: float = NOON, **changes: Any) -> Snapshot:
    """A snapshot of the target `chat`."""
    facts: dict[str, Any] = {
        "target": "chat",
        "engine": "fake",
        "state": state,
        "state_detail": "",
        "version": known("b1", "/props", at),
        "pools": pools,
        "memory": Memory(),
        "observed_at": at,
        "duration": 0.25,
    }
    return Snapshot(**{**facts, **changes})


@dataclass
class FakeClock:
    """A clock that moves only when it is told."""

    now: float = NOON

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


@dataclass
class FakeRecall:
    """The memory of one generation; each is another object."""

    polls: int = 0


Script = Observation | BaseException | Callable[[Any, FakeRecall], Any]


@dataclass
class FakeAdapter:
    """Observes what `script` says: one entry a call, the last one again and again. A callable gets (ask, recall) and may be a coroutine function."""

    script: list[Script]
    name: str = "fake"
    title: str = "Fake engine"
    interval: float = 5.0
    routes: tuple[Route, ...] = (HEALTH, SLOW)
    offered: frozenset[str] = frozenset({"slots", "slots_busy", "kv_used_tokens"})
    recalls: list[FakeRecall] = field(default_factory=list)
    seen: list[FakeRecall] = field(default_factory=list)

    def offers(self, version: str | None) -> frozenset[str]:
        return self.offered

    def start(self) -> FakeRecall:
        self.recalls.append(FakeRecall())
        return self.recalls[-1]

    async def observe(self, ask: Any, recall: FakeRecall) -> Observation:
        step = self.script[min(len(self.seen), len(self.script) - 1)]
        self.seen.append(recall)
        recall.polls += 1
        if isinstance(step, BaseException):
            raise step
        if isinstance(step, Observation):
            return step
        made = step(ask, recall)
        return made if isinstance(made, Observation) else await made

    def recognize(self, replies: Mapping[str, Reply]) -> bool:
        return any(reply.headers.get("server") == self.name for reply in replies.values())


@dataclass
class Asked:
    path: str
    query: dict[str, str]
    deadline: float
    send_key: bool


@dataclass
class FakeSources:
    """`answer` is what every GET gets, or a function of the route that says it."""

    clock: FakeClock
    answer: Any = REFUSED
    process: Process | Unknown = NO_PROCESS
    asked: list[Asked] = field(default_factory=list)
    looked: int = 0

    async def get(self, route: Route, query: Mapping[str, str], /, *, deadline: float, send_key: bool = True) -> Reply | Unknown:
        self.asked.append(Asked(route.path, dict(query), deadline, send_key))
        answer = self.answer(route) if callable(self.answer) else self.answer
        return answer if isinstance(answer, Unknown) else reply(route, answer, at=self.clock())

    def follower(self, patterns: tuple[LogPattern, ...]) -> None:
        return None

    def find_process(self, table: FlagTable | None) -> Process | Unknown:
        self.looked += 1
        return self.process

    def launch_file(self, table: FlagTable) -> LaunchView | Unknown:
        return Unknown(Reason.NO_SOURCE, "no launch file is named")


def reply(route: Route, answer: int | bytes | Reply = 200, *, at: float = NOON, headers: Mapping[str, str] | None = None) -> Reply:
    """A reply from a status, a body, or itself."""
    if isinstance(answer, Reply):
        return answer
    status, body = (200, answer) if isinstance(answer, bytes) else (answer, b"{}")
    return Reply(route, status, dict(headers or {}), body, at)


def process(pid: int, created: float = NOON - 3600) -> Process:
    """A server's process without a command line that anyone knows."""
    return Process(pid=pid, created=created, argv=(), environ=NO_PROCESS)
