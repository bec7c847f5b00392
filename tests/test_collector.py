"""The collector: one poll at a time, errors as data, generations, and work that stands still."""

from __future__ import annotations

import threading
from dataclasses import replace
from types import SimpleNamespace

import anyio
import anyio.from_thread
import anyio.lowlevel
import pytest

import inspector.collector
from fakes import HEALTH, NOON, REFUSED, FakeAdapter, FakeClock, FakeSources, known, process, reply
from inspector.collector import TargetCollector, Watched
from inspector.contract import GENERATION, Observation, Route
from inspector.generation import Seen
from inspector.judge import assess
from inspector.model import Drift, Fault, Memory, Pool, State
from inspector.reading import NOT_OFFERED, Known, Reason, Unknown

pytestmark = pytest.mark.anyio

SECRET = "sk-prompt-or-key"
POOL = Pool(slots=known(4), slots_busy=known(1), kv_used_tokens=known(900))
READY = Observation(State.READY, version=known("b1"), pools=(POOL,))


def watched_by(*script, clock=None, sources=None, **changes) -> SimpleNamespace:
    """A collector over fakes."""
    clock = clock or FakeClock()
    sources = sources or FakeSources(clock)
    adapter = FakeAdapter(list(script))
    collector = TargetCollector(Watched("chat", adapter, **changes), sources, {}, clock=clock)
    return SimpleNamespace(collector=collector, adapter=adapter, sources=sources, clock=clock)


@pytest.fixture
def alive(monkeypatch) -> set[int]:
    """The process ids that the operating system calls alive."""
    pids: set[int] = set()
    monkeypatch.setattr(inspector.collector, "still_running", lambda seen: seen.pid in pids)
    return pids


async def refusing(*_, **__):
    return REFUSED


async def done():
    return None


# --- One poll -----------------------------------------------------------------------------------------------------------------------


async def test_a_snapshot_is_what_the_adapter_observed_and_when():
    target = watched_by(replace(READY, drift=(Drift("0", "slots", "log", "argv", "4 and 8"),), faults=(Fault("/slots", "invalid", "n_ctx is null"),)))
    snapshot = await target.collector.poll()
    assert (snapshot.target, snapshot.engine, snapshot.state, snapshot.pools) == ("chat", "fake", State.READY, (POOL,))
    assert snapshot.observed_at == NOON
    assert snapshot.offered == target.adapter.offered
    assert [d.field for d in snapshot.drift] == ["slots"]
    assert [f.source for f in snapshot.faults] == ["/slots"]


@pytest.mark.parametrize(("state", "reason"), [(State.LOADING, Reason.LOADING), (State.SLEEPING, Reason.SLEEPING)])
async def test_a_server_that_does_not_work_shows_its_static_facts_alone(state, reason):
    """Whatever live figures an adapter hands on: while the model sleeps they are not true."""
    observation = replace(READY, state=state, memory=Memory(total_bytes=known(9), used_bytes=known(5)))
    snapshot = await watched_by(observation).collector.poll()
    (pool,) = snapshot.pools
    assert pool.slots == known(4)
    assert pool.slots_busy.reason is pool.kv_used_tokens.reason is reason
    assert pool.preemptions_total == NOT_OFFERED
    assert snapshot.memory.total_bytes == known(9)
    assert snapshot.memory.used_bytes.reason is reason


@pytest.mark.parametrize("state", [State.UNAUTHORIZED, State.NOT_RECOGNIZED, State.UNREACHABLE])
async def test_a_target_that_did_not_answer_shows_nothing(state):
    """Not even static facts: another server may listen there by now."""
    snapshot = await watched_by(replace(READY, state=state, drift=(Drift("0", "slots", "a", "b", ""),), memory=Memory(used_bytes=known(5)))).collector.poll()
    assert snapshot.pools == ()
    assert snapshot.memory == Memory()
    assert snapshot.drift == ()


def failing_start() -> None:
    raise ValueError(SECRET)


@pytest.mark.parametrize(
    "break_it",
    [
        lambda target: target.adapter.script.__setitem__(0, ValueError(SECRET)),
        lambda target: target.adapter.script.__setitem__(0, KeyError(SECRET)),
        lambda target: target.adapter.script.__setitem__(0, ExceptionGroup(SECRET, [ValueError(SECRET)])),
        lambda target: target.adapter.script.__setitem__(0, lambda ask, recall: ask.get(Route(f"/{SECRET}"))),
        lambda target: setattr(target.adapter, "start", failing_start),
        lambda target: setattr(target.adapter, "offers", lambda version: failing_start()),
        lambda target: setattr(target.sources, "find_process", lambda table: failing_start()),
    ],
)
async def test_whatever_fails_becomes_data_without_its_text(break_it):
    """An error's text may repeat a payload, and with it a prompt or a key: kind and place of the error are told, not its words."""
    target = watched_by(READY)
    break_it(target)
    snapshot = await target.collector.poll()
    assert snapshot.state is State.NOT_RECOGNIZED
    assert snapshot.pools == ()
    assert snapshot.faults[0].reason == "bug"
    assert ".py:" in snapshot.state_detail
    assert SECRET not in repr(snapshot)
    assert SECRET not in repr(assess(snapshot))


async def test_after_a_failure_the_next_poll_is_an_ordinary_one():
    target = watched_by(ValueError(SECRET), READY)
    assert (await target.collector.poll()).state is State.NOT_RECOGNIZED
    assert (await target.collector.poll()).state is State.READY


# --- Two callers --------------------------------------------------------------------------------------------------------------------


class Gate:
    """An observation that waits until it is let through."""

    def __init__(self) -> None:
        self.open, self.entered = anyio.Event(), anyio.Event()

    async def observe(self, ask, recall) -> Observation:
        self.entered.set()
        await self.open.wait()
        return READY


async def poll_into(target, found: list) -> None:
    found.append(await target.collector.poll())


async def test_a_poll_joins_the_one_in_flight():
    """A server never has two of our requests at once, and both callers get one and the same snapshot."""
    gate = Gate()
    target, found = watched_by(gate.observe), []
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(poll_into, target, found)
            await gate.entered.wait()
            await anyio.wait_all_tasks_blocked()
            gate.open.set()
    assert len(found) == 3
    assert found[0] is found[1] is found[2]
    assert len(target.adapter.seen) == 1


async def test_polls_one_after_another_are_fresh():
    target = watched_by(READY)
    first = await target.collector.poll()
    target.clock.advance(5)
    assert (await target.collector.poll()).observed_at == first.observed_at + 5
    assert len(target.adapter.seen) == 2


async def test_a_cancelled_poll_does_not_hang_those_that_joined_it():
    """The browser that asked for `/probe` went away; the regular poll goes on with a poll of its own, and only one of those who waited makes it."""
    gate = Gate()

    async def slowly(ask, recall):
        await anyio.lowlevel.checkpoint()
        return READY

    target, found = watched_by(gate.observe, slowly), []
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            leaver = anyio.CancelScope()

            async def leave() -> None:
                with leaver:
                    await poll_into(target, found)

            tasks.start_soon(leave)
            await gate.entered.wait()
            tasks.start_soon(poll_into, target, found)
            tasks.start_soon(poll_into, target, found)
            await anyio.wait_all_tasks_blocked()
            leaver.cancel()
    assert len(found) == 2
    assert found[0] is found[1]
    assert len(target.adapter.seen) == 2


async def test_one_who_joined_may_leave_without_harm():
    gate = Gate()
    target, found = watched_by(gate.observe), []
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(poll_into, target, found)
            await gate.entered.wait()
            with anyio.move_on_after(0):
                await target.collector.poll()
            gate.open.set()
    assert len(found) == 1
    assert (await target.collector.poll()).state is State.READY


@pytest.mark.parametrize("hangs", ["finding the process", "looking at it"])
async def test_a_look_at_the_process_that_hangs_does_not_keep_a_target_from_ending(hangs, alive):
    """Its model may lie on a dead mount: nothing that reads there comes back."""
    alive.add(1)
    begun, released, ended = anyio.Event(), threading.Event(), []

    def hang(*_):
        anyio.from_thread.run_sync(begun.set)
        ended.append(released.wait(10))
        return Seen()

    clock = FakeClock()
    sources = FakeSources(clock, process=process(1))
    if hangs == "finding the process":
        sources.find_process = hang
    inspection = SimpleNamespace(look=hang)
    collector = TargetCollector(Watched("chat", FakeAdapter([READY])), sources, {}, inspect=lambda *_: inspection, clock=clock)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(collector.poll)
            await begun.wait()
            tasks.cancel_scope.cancel()
        assert not ended
    finally:
        released.set()


# --- Generations --------------------------------------------------------------------------------------------------------------------


async def test_one_process_keeps_its_memory():
    target = watched_by(READY)
    for _ in range(3):
        await target.collector.poll()
    assert len(target.adapter.recalls) == 1
    assert target.adapter.recalls[0].polls == 3


async def test_a_refused_connection_ends_the_generation():
    """The next server on this port may be another one: it gets fresh memory, and nothing that was kept of the old one."""
    once = Route("/version", every=GENERATION)

    async def ask_version(ask, recall):
        return replace(READY, version=known((await ask.get(once)).body.decode()))

    async def ask_in_vain(ask, recall):
        ask.fetch = refusing
        return Observation(State.UNREACHABLE, (await ask.get(HEALTH)).detail)

    target = watched_by(ask_version, ask_in_vain, ask_version)
    target.adapter.routes = (once, HEALTH)
    target.sources.answer = b"old"
    first = await target.collector.poll()
    await target.collector.poll()
    target.sources.answer = b"new"
    second = await target.collector.poll()
    assert (first.version.value, second.version.value) == ("old", "new")
    assert second.generation == first.generation + 1
    assert len(target.adapter.recalls) == 2
    assert target.adapter.seen[2] is target.adapter.recalls[1]


async def test_a_time_out_is_no_sign_of_a_new_process():
    """A busy server is the same server: what its log and its start told holds on."""
    target = watched_by(READY, Observation(State.UNREACHABLE, "timed out"), READY)
    for _ in range(3):
        await target.collector.poll()
    assert len(target.adapter.recalls) == 1


async def test_a_new_start_in_the_log_begins_a_generation():
    target = watched_by(READY, READY, READY)
    target.collector._follower = log = SimpleNamespace(starts=3, catch_up=done, view=lambda **_: Unknown(Reason.NO_SOURCE, "nothing"))
    await target.collector.poll()
    await target.collector.poll()
    assert len(target.adapter.recalls) == 1
    log.starts = 4
    await target.collector.poll()
    assert len(target.adapter.recalls) == 2


async def test_another_engine_at_the_address_is_recognized_afresh():
    """A target without a configured engine is not tied to the first one that answered there."""
    first, second = FakeAdapter([READY, Observation(State.NOT_RECOGNIZED, "another server")]), FakeAdapter([READY])
    first.name, second.name = "first", "second"
    there = [first, second]
    first.recognize = lambda replies: there[0] is first
    second.recognize = lambda replies: there[0] is second
    clock = FakeClock()
    sources = FakeSources(clock, answer=200)
    collector = TargetCollector(Watched("chat"), sources, {"first": first, "second": second}, clock=clock)
    seen = [(await collector.poll()).engine]
    there.pop(0)
    seen += [(await collector.poll()).state, (await collector.poll()).engine]
    assert seen == ["first", State.NOT_RECOGNIZED, "second"]


async def test_a_process_that_still_runs_keeps_its_generation_though_it_did_not_answer(alive):
    """The operating system says that it is the same one: it was only busy."""
    alive.add(7)
    target = watched_by(READY, Observation(State.UNREACHABLE, "timed out"), READY, sources=None)
    target.sources.process = process(7)
    for _ in range(3):
        await target.collector.poll()
    assert len(target.adapter.recalls) == 1


async def test_a_dead_process_ends_its_generation_though_the_port_answers(alive):
    """Restarted between two polls: no connection was ever refused."""
    alive.update({7, 8})
    target = watched_by(READY)
    target.sources.process = process(7)
    first = await target.collector.poll()
    alive.remove(7)
    target.sources.process = process(8)
    second = await target.collector.poll()
    third = await target.collector.poll()
    assert second.generation == third.generation == first.generation + 1
    assert target.adapter.seen[1] is target.adapter.recalls[1]


async def test_a_counter_that_fell_is_observed_again_with_fresh_memory():
    """Not one snapshot mixes the old process's facts with the new one's."""

    def counted(value: float, slots: int) -> Observation:
        return replace(READY, pools=(Pool(slots=known(slots)),), counters={"decodes": value})

    target = watched_by(counted(50, 4), counted(3, 4), counted(4, 8))
    first = await target.collector.poll()
    second = await target.collector.poll()
    assert second.pools[0].slots == known(8)
    assert second.generation == first.generation + 1
    assert [recall is target.adapter.recalls[0] for recall in target.adapter.seen] == [True, True, False]
    assert (await target.collector.poll()).generation == second.generation


async def test_a_server_whose_counters_fall_all_the_time_is_observed_twice_at_most():
    """Two servers behind one address: a poll ends nevertheless."""
    falling = iter(range(1000, 0, -1))
    target = watched_by(lambda ask, recall: replace(READY, counters={"decodes": float(next(falling))}))
    await target.collector.poll()
    for polls in range(1, 4):
        await target.collector.poll()
        assert len(target.adapter.seen) == 1 + 2 * polls


async def test_another_stated_start_is_another_generation():
    target = watched_by(replace(READY, born=NOON - 900), replace(READY, born=NOON - 5))
    assert [(await target.collector.poll()).generation for _ in range(3)] == [1, 2, 2]


async def test_the_process_is_not_looked_for_at_every_poll():
    """A look costs a scan of the machine's processes."""
    target = watched_by(READY)
    for _ in range(12):
        await target.collector.poll()
        target.clock.advance(5)
    assert target.sources.looked == 1
    target.clock.advance(30)
    await target.collector.poll()
    assert target.sources.looked == 2


# --- Work that stands still ---------------------------------------------------------------------------------------------------------


def working(moved: float, busy: int = 1) -> Observation:
    return replace(READY, pools=(replace(POOL, slots_busy=known(busy)),), progress={"0": (moved,)})


WATCHED = (15, 30, 45)
"""Seconds between which somebody watched: a longer silence is not held against a server."""


async def states(target, seconds: list[float]) -> list[State]:
    found = []
    for second in seconds:
        target.clock.now = NOON + second
        found.append((await target.collector.poll()).state)
    return found


async def test_work_that_does_not_move_is_stalled_and_ready_when_it_moves():
    target = watched_by(*[working(1)] * (3 + len(WATCHED)), working(2), working(2))
    *watched, stalled, moved, still = await states(target, [0, *WATCHED, 59.9, 60, 65, 70])
    assert set(watched) == {State.READY}
    assert (stalled, moved, still) == (State.STALLED, State.READY, State.READY)


async def test_a_machine_that_slept_with_work_in_hand_does_not_hang():
    """Nobody polled meanwhile, and nothing moved, because the server slept with it."""
    target = watched_by(working(1))
    assert await states(target, [0, 3600, *(3600 + t for t in WATCHED), 3660]) == [State.READY] * (2 + len(WATCHED)) + [State.STALLED]


@pytest.mark.parametrize("step", [-3600.0, 3600.0])
async def test_a_clock_that_is_set_neither_stalls_a_server_nor_hides_a_hang(step):
    target, ticks = watched_by(working(1)), FakeClock()
    target.collector = TargetCollector(Watched("chat", target.adapter), target.sources, {}, clock=target.clock, monotonic=ticks)
    assert (await target.collector.poll()).state is State.READY
    target.clock.advance(step)
    found = []
    for ticks.now in (*(NOON + t for t in WATCHED), NOON + 60):
        snapshot = await target.collector.poll()
        found.append(snapshot.state)
        assert snapshot.observed_at == NOON + step
    assert found == [State.READY] * len(WATCHED) + [State.STALLED]
    assert target.sources.looked == 2, "the process is looked for again after a minute"


async def test_a_stalled_engine_shows_its_static_facts_alone_and_is_critical():
    """Its live figures are those of the moment when it froze."""
    target = watched_by(working(1))
    await states(target, [0, *WATCHED])
    target.clock.now = NOON + 60
    snapshot = await target.collector.poll()
    (pool,) = snapshot.pools
    assert pool.slots == known(4)
    assert pool.slots_busy.reason is pool.kv_used_tokens.reason is Reason.STALLED
    assert assess(snapshot).level.exit_code == 2


async def test_an_idle_server_is_never_stalled():
    target = watched_by(working(1, busy=0))
    assert set(await states(target, [0, 60, 600, 6000])) == {State.READY}


async def test_a_pool_that_cannot_tell_is_never_stalled():
    target = watched_by(replace(working(1), progress={}))
    assert set(await states(target, [0, 60, 600])) == {State.READY}


async def test_hours_of_silence_are_no_hang(alive):
    """Unreachable for an hour, the same process answers with the old counters and new work in hand."""
    alive.add(7)
    target = watched_by(working(1), Observation(State.UNREACHABLE, "timed out"), working(1))
    target.sources.process = process(7)
    assert await states(target, [0, 3500, 3600]) == [State.READY, State.UNREACHABLE, State.READY]


async def test_what_a_loading_server_does_not_move_is_no_hang():
    loading = Observation(State.LOADING, "loading the model")
    target = watched_by(loading)
    assert set(await states(target, [0, 600])) == {State.LOADING}


# --- Recognition --------------------------------------------------------------------------------------------------------------------


async def test_no_key_goes_to_a_stranger():
    """Before its engine is known a server gets no key; afterwards it gets it."""

    async def ask(asking, recall):
        await asking.get(HEALTH)
        return READY

    clock = FakeClock()
    sources, adapter = FakeSources(clock), FakeAdapter([ask])
    sources.answer = lambda route: reply(route, 200, headers={"server": "fake"})
    collector = TargetCollector(Watched("chat"), sources, {"fake": adapter}, clock=clock)
    snapshot = await collector.poll()
    assert snapshot.engine == "fake"
    *recognizing, observing = sources.asked
    assert recognizing
    assert not any(asked.send_key for asked in recognizing)
    assert observing.send_key


@pytest.mark.parametrize(
    ("answer", "state"), [(REFUSED, State.UNREACHABLE), (404, State.NOT_RECOGNIZED), (b"<html>", State.NOT_RECOGNIZED), (401, State.UNAUTHORIZED)]
)
async def test_a_stranger_that_is_no_engine_gets_no_key_however_often_it_is_polled(answer, state):
    clock = FakeClock()
    sources = FakeSources(clock, answer)
    collector = TargetCollector(Watched("chat"), sources, {"fake": FakeAdapter([READY])}, clock=clock)
    for _ in range(3):
        snapshot = await collector.poll()
        assert snapshot.state is state
        assert snapshot.engine == ""
        assert snapshot.pools == ()
    assert sources.asked
    assert not any(asked.send_key for asked in sources.asked)


async def test_a_server_that_was_down_is_recognized_when_it_comes_up():
    clock = FakeClock()
    sources = FakeSources(clock, REFUSED)
    collector = TargetCollector(Watched("chat"), sources, {"fake": FakeAdapter([READY])}, clock=clock)
    assert (await collector.poll()).state is State.UNREACHABLE
    sources.answer = lambda route: reply(route, 200, headers={"server": "fake"})
    assert (await collector.poll()).state is State.READY


# --- The beat -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("durations", "began"),
    [
        ([0, 0, 0], [0, 5, 10, 15]),
        ([2, 3, 1], [0, 5, 10, 15]),
        ([7, 0, 0], [0, 10, 15, 20]),
        ([16, 4, 5], [0, 20, 25, 35]),
        ([5, 0, 0], [0, 10, 15, 20]),
    ],
)
async def test_polls_keep_a_fixed_beat_and_skip_what_they_missed(monkeypatch, durations, began):
    """A slow poll shifts no later one, and no burst of polls catches up."""
    time = SimpleNamespace(now=0.0)

    async def sleep(seconds: float) -> None:
        assert seconds >= 0
        time.now += seconds

    monkeypatch.setattr(inspector.collector.anyio, "sleep", sleep)
    monkeypatch.setattr(inspector.collector.anyio, "current_time", lambda: time.now)
    starts: list[float] = []

    def observe(ask, recall) -> Observation:
        starts.append(time.now)
        if len(starts) > len(durations):
            raise KeyboardInterrupt
        time.now += durations[len(starts) - 1]
        return READY

    target = watched_by(observe)
    with pytest.raises(KeyboardInterrupt):
        await target.collector.run(lambda snapshot: None)
    assert starts == began


async def test_the_interval_is_the_operators_else_the_adapters():
    assert watched_by(READY).collector.interval == 5.0
    assert watched_by(READY, interval=2.0).collector.interval == 2.0
    assert TargetCollector(Watched("chat"), FakeSources(FakeClock()), {}).interval == 5.0


async def test_a_route_that_may_block_has_less_time_than_a_poll_interval():
    """So that it never holds up the next poll's fast ones."""
    target = watched_by(READY, interval=2.0, timeout=3.0)
    seen = []
    target.adapter.script[0] = lambda ask, recall: seen.append(ask.deadlines) or READY
    await target.collector.poll()
    assert seen == [{"fast": 3.0, "may_block": 1.6}]


async def test_what_the_operator_states_and_permits_reaches_the_adapter():
    seen = []
    stated = {"slots": known(4)}
    target = watched_by(lambda ask, recall: seen.append(ask) or READY, stated=stated, may_wake=True, may_scrape=False)
    await target.collector.poll()
    (ask,) = seen
    assert (ask.stated, ask.may_wake, ask.may_scrape) == (stated, True, False)
    assert isinstance(ask.log, Unknown)
    assert not isinstance(ask.launch, Known)


# --- What a target's settings lead one to expect ------------------------------------------------------------------------------------------


async def test_a_key_that_is_refused_is_not_asked_for():
    """Whoever has set a key is not helped by being told to set one."""
    refused = Observation(State.UNAUTHORIZED, "set a key", faults=(Fault("/props", "unauthorized", "set a key"), Fault("/x", "invalid", "broken")))
    without, wrong = await watched_by(refused).collector.poll(), await watched_by(refused, has_key=True).collector.poll()
    assert [without.state_detail, *(fault.detail for fault in without.faults)] == ["set a key", "set a key", "broken"]
    assert "correct it" in wrong.state_detail
    assert [fault.detail for fault in wrong.faults] == [wrong.state_detail, "broken"]


async def test_memory_of_a_named_process_that_is_not_there_is_unknown_and_not_missing():
    snapshot = await watched_by(READY, names_process=True).collector.poll()
    assert {reading.reason for reading in (snapshot.memory.used_bytes, snapshot.memory.ceiling_bytes)} == {Reason.NO_SOURCE}
    assert "used_bytes" in snapshot.offered
    assert (await watched_by(READY).collector.poll()).memory == Memory()


async def test_memory_that_was_shown_is_unknown_of_a_process_that_cannot_be_looked_at(alive):
    """Its alert neither ends nor is forgotten: what it is about is still expected."""
    seen = Seen(memory=Memory(total_bytes=known(9), used_bytes=known(5)))
    target = watched_by(READY)
    target.collector._inspect = lambda process, adapter: SimpleNamespace(look=lambda now: seen)
    target.sources.process = process(7)
    alive.add(7)
    assert (await target.collector.poll()).memory.used_bytes == known(5)
    alive.clear()
    target.sources.process = Unknown(Reason.NO_SOURCE, "a proxy listens there")
    assert (await target.collector.poll()).memory.used_bytes == Unknown(Reason.NO_SOURCE, "a proxy listens there")


async def test_a_stranger_at_the_address_of_a_recognized_engine_is_no_bug():
    """The engine is forgotten while its own last word is still to be told."""
    clock = FakeClock()
    sources = FakeSources(clock, answer=as_fake)
    adapter = FakeAdapter([Observation(State.NOT_RECOGNIZED, "another server listens there")])
    collector = TargetCollector(Watched("chat", None), sources, {"fake": adapter}, clock=clock)
    snapshot = await collector.poll()
    assert (snapshot.state, snapshot.engine, snapshot.state_detail, snapshot.faults) == (State.NOT_RECOGNIZED, "fake", "another server listens there", ())


def as_fake(route):
    return reply(route, headers={"server": "fake"})
