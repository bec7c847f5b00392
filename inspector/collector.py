"""The collector: polls one target and turns what its adapter observed into a snapshot. A poll never raises; whatever goes wrong becomes data here."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Any, TypeVar

import anyio

from inspector.asking import PollAsk
from inspector.clocks import Clock, monotonic_beside
from inspector.contract import Adapter, Deadline, LogView, Observation, ReadsLaunch, ReadsLog, Reply, Route
from inspector.discovery import recognize
from inspector.follow import Follower
from inspector.generation import NOT_LOOKED_AT, Generation, Inspects, Seen
from inspector.inspection import launch_of
from inspector.launch import with_launch_drift
from inspector.local.process import Process, still_running
from inspector.model import MEMORY_FIELDS, Fault, Memory, Snapshot, State, memory_without_live, without_live
from inspector.reading import NOT_OFFERED, Reason, Unknown
from inspector.watched import NO_LAUNCH_FILE, Sources, Watched

A = TypeVar("A")
R = TypeVar("R")

KEY_REFUSED = "the server refused the key that is set for this target: correct it"
NO_LOG = Unknown(Reason.NO_SOURCE, "no log is followed; set `logs` for this target")

STATE_REASONS: Mapping[State, Reason] = {State.LOADING: Reason.LOADING, State.SLEEPING: Reason.SLEEPING, State.STALLED: Reason.STALLED}
"""States in which only static facts are shown, and the reason that the live ones get."""

STRANGER_STATES: Mapping[Reason, State] = {Reason.INVALID: State.NOT_RECOGNIZED, Reason.UNAUTHORIZED: State.UNAUTHORIZED}
"""What a target whose engine was not recognized is said to be, by the reason; otherwise it is unreachable."""

LOOK_AGAIN = 60.0
"""Seconds between two looks for the server's process when the last one found none."""

MISSED_POLLS = 3
"""So many polls, each with its timeout, may pass unseen; after more (the machine slept) nobody watched what happened meanwhile."""


class TargetCollector:
    """Polls one target. `poll` may be called at any time: a call during a poll joins it, so that a server never has two of our requests at once."""

    def __init__(
        self,
        watched: Watched,
        sources: Sources,
        adapters: Mapping[str, Adapter[Any]],
        *,
        inspect: Callable[[Process, Adapter[Any]], Inspects] | None = None,
        clock: Clock = time.time,
        monotonic: Clock | None = None,
    ) -> None:
        """`inspect` makes what looks at memory and connections of the server's process; None: nobody does. `monotonic` measures what `clock` may not."""
        self.watched = watched
        self._inspect = inspect
        self._sources = sources
        self._adapters = adapters
        self._clock = clock
        self._monotonic = monotonic or monotonic_beside(clock)
        self._began = float("-inf")
        self._adapter = watched.adapter
        self._generation: Generation | None = None
        self._generations = 0
        self._last_success: float | None = None
        self._follower: Follower | None = None
        self._looked_at = float("-inf")
        self._shows_memory = watched.names_process
        self._stack = AsyncExitStack()
        self._flight: _Flight | None = None

    @property
    def interval(self) -> float:
        """Seconds between two polls."""
        return self.watched.interval or (self._adapter.interval if self._adapter else 5.0)

    async def run(self, publish: Callable[[Snapshot], None], *, delay: float = 0.0) -> None:
        """Polls until cancelled, on a fixed beat that skips what it missed. `delay` seconds before the first poll spread many targets out."""
        await anyio.sleep(delay)
        beat = anyio.current_time()
        while True:
            publish(await self.poll())
            missed = max(0.0, anyio.current_time() - beat) // self.interval
            beat += (missed + 1) * self.interval
            await anyio.sleep(max(0.0, beat - anyio.current_time()))

    async def poll(self) -> Snapshot:
        """A fresh snapshot, or that of the poll in flight."""
        while self._flight is not None:
            flight = self._flight
            await flight.ended.wait()
            if flight.snapshot is not None:
                return flight.snapshot
        self._flight = flight = _Flight()
        try:
            flight.snapshot = await self._poll()
            return flight.snapshot
        finally:
            self._flight = None
            flight.ended.set()

    async def aclose(self) -> None:
        """Lets go of the log."""
        await self._stack.aclose()

    async def _poll(self) -> Snapshot:
        self._began, now = self._monotonic(), self._clock()
        try:
            return await self._seen(now)
        except Exception as error:
            return self._failed(error, now)

    async def _seen(self, now: float) -> Snapshot:
        if self._adapter is None:
            found = await recognize(self._keyless, self._adapters)
            if isinstance(found, Unknown):
                return self._unseen(STRANGER_STATES.get(found.reason, State.UNREACHABLE), found.detail, now)
            self._adapter = found
        adapter = self._adapter  # What it observes may show that another engine has the address, which is recognized anew then.
        return self._snapshot(adapter, await self._observe(adapter, now), now)

    def _elapsed(self) -> float:
        return self._monotonic() - self._began

    async def _keyless(self, route: Route) -> Reply | Unknown:
        """For strangers: a key goes only to a server whose engine is known."""
        return await self._sources.get(route, {}, deadline=self.watched.timeout, send_key=False)

    async def _observe(self, adapter: Adapter[Any], now: float) -> Observation:
        await self._catch_up(adapter)
        generation = await self._current(adapter, now)
        observation = await self._observe_generation(adapter, generation, now)
        if observation.state.is_up and generation.contradicted_by(observation):
            generation = await self._begin(adapter, now)
            generation.born = observation.born
            observation = await self._observe_generation(adapter, generation, now)
        elif observation.state.is_up and self._believed_a_former_log(generation, observation):
            generation.born = observation.born
            observation = await self._observe_generation(adapter, generation, now)
        if observation.state.is_up:
            generation.learn(observation, self._began)
            self._last_success = now
            return observation
        generation.progress.clear()
        if generation.refused and not _is_alive(generation):
            self._generation = None
        if observation.state is State.NOT_RECOGNIZED and self.watched.adapter is None:
            await self._forget_engine()
        return observation

    async def _observe_generation(self, adapter: Adapter[Any], generation: Generation, now: float) -> Observation:
        """What the adapter makes of one poll. The process is looked at before it is asked, so that our own connection is not among those seen."""
        seen = Seen() if generation.inspection is None else await _in_thread(generation.inspection.look, now)
        ask = self._ask(adapter, generation, seen, now)
        observation = with_launch_drift(await adapter.observe(ask, generation.recall), ask.launch, ask.launch_file)
        return replace(observation, memory=self._memory(generation, seen)) if observation.memory == Memory() else observation

    def _memory(self, generation: Generation, seen: Seen) -> Memory:
        """What was shown of a former process, or belongs to a named one, is unknown of one that cannot be looked at: it is still expected."""
        if seen.memory != Memory():
            self._shows_memory = True
        elif isinstance(generation.process, Unknown) and self._shows_memory:
            why = generation.process
            return Memory(why, why, why, why)
        return seen.memory

    async def _forget_engine(self) -> None:
        """Another engine may have taken over the address: the next poll looks afresh who answers."""
        self._adapter = self._generation = self._follower = None
        await self._stack.aclose()
        self._stack = AsyncExitStack()

    async def _current(self, adapter: Adapter[Any], now: float) -> Generation:
        """The running generation; a new one when there is none, or when its process is gone."""
        generation = self._generation
        if generation is None:
            return await self._begin(adapter, now)
        if isinstance(generation.process, Unknown):
            if self._starts() > generation.starts:
                return await self._begin(adapter, now)
            if self._began - self._looked_at >= LOOK_AGAIN:
                await self._look(adapter, generation, now)
            return generation
        return generation if still_running(generation.process) else await self._begin(adapter, now)

    async def _begin(self, adapter: Adapter[Any], now: float) -> Generation:
        """Forgets all that belonged to the former process."""
        self._generations += 1
        generation = Generation(self._generations, adapter.start(), after=self._last_success, starts=self._starts())
        generation.unwatched_after = MISSED_POLLS * (self.interval + self.watched.timeout)
        self._generation = generation
        await self._look(adapter, generation, now)
        return generation

    async def _look(self, adapter: Adapter[Any], generation: Generation, now: float) -> None:
        """Finds the server's process and reads its launch settings."""
        self._looked_at = self._began
        table = adapter.flags if isinstance(adapter, ReadsLaunch) else None
        generation.process = process = await _in_thread(self._sources.find_process, table)
        if isinstance(process, Unknown):
            generation.launch, generation.inspection = process, None
            return
        if table is not None:
            generation.launch = launch_of(process, table, now)
        generation.inspection = self._inspect(process, adapter) if self._inspect is not None else None

    async def _catch_up(self, adapter: Adapter[Any]) -> None:
        if self._follower is None and isinstance(adapter, ReadsLog):
            follower = self._sources.follower(adapter.log_patterns)
            if follower is not None:
                self._follower = await self._stack.enter_async_context(follower)
        if self._follower is not None:
            await self._follower.catch_up()

    def _starts(self) -> int:
        """Starts of a server process in the followed log so far: one more is the sign of a new process."""
        return self._follower.starts if self._follower is not None else 0

    def _believed_a_former_log(self, generation: Generation, observation: Observation) -> bool:
        """Whether the log was believed only because nobody knew yet when the process had started."""
        if self._follower is None or generation.started is not None or observation.born is None or isinstance(self._log(generation), Unknown):
            return False
        return isinstance(self._follower.view(born=observation.born, after=None), Unknown)

    def _log(self, generation: Generation) -> LogView | Unknown:
        if self._follower is None:
            return NO_LOG
        # A known start of the process settles which lines are its own; without one, what was read before the last success of the former process is not.
        after = None if generation.started is not None else generation.after
        return self._follower.view(born=generation.started, after=after)

    def _ask(self, adapter: Adapter[Any], generation: Generation, seen: Seen, now: float) -> PollAsk:
        return PollAsk(
            fetch=self._sources.get,
            routes=adapter.routes,
            generation=generation,
            now=now,
            monotonic=self._monotonic,
            interval=self.interval,
            deadlines=self._deadlines(),
            log=self._log(generation),
            launch_file=self._sources.launch_file(adapter.flags) if isinstance(adapter, ReadsLaunch) else NO_LAUNCH_FILE,
            process=generation.process_seen(seen),
            stated=self.watched.stated,
            may_wake=self.watched.may_wake,
            may_scrape=self.watched.may_scrape,
        )

    def _deadlines(self) -> Mapping[Deadline, float]:
        """Routes that may block get less than a poll interval, so that they never hold up the next poll's fast ones."""
        timeout = self.watched.timeout
        return {Deadline.FAST: timeout, Deadline.MAY_BLOCK: min(timeout, max(0.5, 0.8 * self.interval))}

    def _snapshot(self, adapter: Adapter[Any], observation: Observation, now: float) -> Snapshot:
        state, detail = self._judged_state(observation)
        pools, memory = observation.pools, observation.memory
        if not state.is_up:
            pools, memory = (), Memory()
        elif state in STATE_REASONS:
            why = Unknown(STATE_REASONS[state], detail or f"the server is {state}")
            pools, memory = without_live(pools, why), memory_without_live(memory, why)
        version = None if isinstance(observation.version, Unknown) else observation.version.value
        return Snapshot(
            target=self.watched.name,
            engine=adapter.name,
            state=state,
            state_detail=detail,
            version=observation.version,
            pools=pools,
            memory=memory,
            observed_at=now,
            duration=self._elapsed(),
            offered=adapter.offers(version) | _shown(memory),
            drift=observation.drift if state.is_up else (),
            faults=tuple(replace(f, detail=detail) if f.reason == Reason.UNAUTHORIZED and self.watched.has_key else f for f in observation.faults),
            generation=self._generations,
        )

    def _judged_state(self, observation: Observation) -> tuple[State, str]:
        """The adapter's state, or `stalled`: work in hand and nothing moved for too long."""
        generation = self._generation
        if observation.state is State.READY and generation is not None:
            still = generation.standing_still(observation, self._began)
            if still is not None and still >= self.watched.stalled_after:
                return State.STALLED, f"requests are in hand and nothing has moved for {still:.0f} s; the engine may hang"
        if observation.state is State.UNAUTHORIZED and self.watched.has_key:
            return observation.state, KEY_REFUSED
        return observation.state, observation.detail

    def _failed(self, error: Exception, now: float) -> Snapshot:
        """An adapter's bug, or our own, is a fault of this target alone."""
        if self._generation is not None:
            self._generation.progress.clear()
        engine = self._adapter.name if self._adapter else ""
        detail = f"reading this target failed: {type(error).__name__} at {_place(error)}; please report it"
        return replace(self._unseen(State.NOT_RECOGNIZED, detail, now), engine=engine, faults=(Fault("adapter", "bug", detail),))

    def _unseen(self, state: State, detail: str, now: float) -> Snapshot:
        """The snapshot of a target whose engine is not known yet."""
        return Snapshot(self.watched.name, "", state, detail, NOT_OFFERED, (), Memory(), now, self._elapsed())


async def _in_thread(look: Callable[[A], R], argument: A) -> R:
    """A blocking look. One that hangs, at a file on a dead mount, say, keeps neither this target nor the inspector from ending."""
    return await anyio.to_thread.run_sync(look, argument, abandon_on_cancel=True)


@dataclass(slots=True)
class _Flight:
    """A poll under way. `snapshot` stays None when it was cancelled."""

    ended: anyio.Event = field(default_factory=anyio.Event)
    snapshot: Snapshot | None = None


def _shown(memory: Memory) -> frozenset[str]:
    """Memory fields that the core gives, whatever the adapter offers."""
    return frozenset(name for name in MEMORY_FIELDS if memory.reading(name) != NOT_OFFERED)


def _is_alive(generation: Generation) -> bool:
    """Whether the operating system says that the generation's process still runs."""
    process = generation.process
    return process is not NOT_LOOKED_AT and not isinstance(process, Unknown) and still_running(process)


def _place(error: BaseException) -> str:
    """File and line of an error, without its text: that may repeat a payload."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{PurePath(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "an unknown place"
