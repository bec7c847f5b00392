"""Asking: how often a route is really asked, and what happens to one that may block behind a decode."""

from __future__ import annotations

from itertools import pairwise

import pytest

from fakes import NOON, FakeClock, FakeSources, reply, unknown
from inspector.asking import LONGEST_BACK_OFF, PollAsk
from inspector.contract import GENERATION, Cadence, Deadline, Reply, Route
from inspector.generation import NOT_LOOKED_AT, Generation
from inspector.reading import Reason, Unknown

pytestmark = pytest.mark.anyio

FAST = Route("/health")
SLOW = Route("/slots", deadline=Deadline.MAY_BLOCK)
OTHER_SLOW = Route("/metrics", deadline=Deadline.MAY_BLOCK)
ONCE = Route("/version", every=GENERATION)
MINUTELY = Route("/v1/models", every=Cadence(60.0))
PER_MODEL = Route("/props", required=(("autoload", "false"),), allowed=frozenset({"model"}), every=GENERATION)
ROUTES = (FAST, SLOW, OTHER_SLOW, ONCE, MINUTELY, PER_MODEL)
TIMEOUT = Unknown(Reason.TIMEOUT, "no answer within 3 s")


class Server:
    """A target with one generation; each `poll` is another ask of it."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.sources = FakeSources(self.clock, answer=200)
        self.generation = Generation(1, recall=None)

    def poll(self) -> PollAsk:
        deadlines = {Deadline.FAST: 3.0, Deadline.MAY_BLOCK: 4.0}
        return PollAsk(self.sources.get, ROUTES, self.generation, self.clock(), self.clock, 5.0, deadlines, log=NOT_LOOKED_AT, launch_file=NOT_LOOKED_AT)

    def times(self, route: Route) -> int:
        return sum(asked.path == route.path for asked in self.sources.asked)


@pytest.fixture
def server() -> Server:
    return Server()


async def test_a_route_that_is_not_listed_is_refused_before_anything_is_sent(server):
    """An adapter may ask what it lists, nothing that merely has the same path."""
    for route in (Route("/completion"), Route("/health", required=(("x", "1"),)), Route("/slots")):
        with pytest.raises(ValueError, match=route.path):
            await server.poll().get(route)
    assert server.sources.asked == []


async def test_a_live_route_is_asked_at_every_poll(server):
    for _ in range(3):
        await server.poll().get(FAST)
    assert server.times(FAST) == 3


async def test_a_route_of_a_generation_is_asked_once_and_keeps_its_time(server):
    """What was read an hour ago is not dated now."""
    first = await server.poll().get(ONCE)
    server.clock.advance(3600)
    again = await server.poll().get(ONCE)
    assert server.times(ONCE) == 1
    assert again == first
    assert again.at == NOON
    assert again.origin.at == NOON


@pytest.mark.parametrize("answer", [500, 503, 404, 401, 204, TIMEOUT])
async def test_only_a_good_reply_is_kept(server, answer):
    """A server that was loading when it was asked is asked again."""
    server.sources.answer = answer
    for route in (ONCE, MINUTELY):
        await server.poll().get(route)
        await server.poll().get(route)
        assert server.times(route) == 2
    server.sources.answer = 200
    await server.poll().get(ONCE)
    await server.poll().get(ONCE)
    assert server.times(ONCE) == 3


async def test_a_slow_cadence_is_kept_by_the_clock(server):
    moments = []
    for seconds in (0, 30, 29.9, 0.1, 59.9):
        server.clock.advance(seconds)
        moments.append((await server.poll().get(MINUTELY)).at - NOON)
    assert moments == [0, 0, 0, 60, 60]
    assert server.times(MINUTELY) == 2


async def test_a_refusal_after_the_cadence_is_told_and_not_hidden_behind_the_kept_reply(server):
    await server.poll().get(MINUTELY)
    server.clock.advance(61)
    server.sources.answer = 401
    assert (await server.poll().get(MINUTELY)).status == 401


async def test_replies_are_kept_for_each_query(server):
    """One model's answer is not another's."""
    for model in ("a", "b", "a"):
        await server.poll().get(PER_MODEL, model=model)
    assert [asked.query for asked in server.sources.asked] == [{"model": "a"}, {"model": "b"}]


async def test_a_new_generation_knows_no_reply_of_the_old_one(server):
    await server.poll().get(ONCE)
    server.generation = Generation(2, recall=None)
    await server.poll().get(ONCE)
    assert server.times(ONCE) == 2


async def test_each_kind_of_route_has_its_deadline(server):
    ask = server.poll()
    await ask.get(FAST)
    await ask.get(SLOW)
    assert [asked.deadline for asked in server.sources.asked] == [3.0, 4.0]


async def polls_asked(server: Server, polls: int, took: float = 4.0) -> list[bool]:
    """For each of some polls, five seconds apart, whether `/slots` was really asked."""
    asked = []
    for number in range(polls):
        server.clock.now = NOON + 5.0 * number
        before = server.times(SLOW)
        # The time that the deadline takes passes while the server is asked.
        server.sources.answer = lambda route: (server.clock.advance(took), TIMEOUT)[1]
        answer = await server.poll().get(SLOW)
        assert answer.reason is Reason.TIMEOUT
        assert "busy" in answer.detail
        asked.append(server.times(SLOW) > before)
    return asked


async def test_after_a_time_out_no_further_request_is_queued_behind_it_too_soon(server):
    """Each time-out leaves a request in the server's queue: 1, 2, then at most 4 polls are left out between two tries."""
    asked = await polls_asked(server, 25)
    tries = [number for number, real in enumerate(asked) if real]
    gaps = [b - a - 1 for a, b in pairwise(tries)]
    assert gaps == [1, 2, 4, 4, 4]
    assert max(gaps) <= LONGEST_BACK_OFF


async def test_a_blocked_route_does_not_hold_up_the_fast_ones(server):
    await polls_asked(server, 4)
    server.sources.answer = 200
    before = server.times(SLOW)
    ask = server.poll()
    assert (await ask.get(FAST)).status == 200
    assert isinstance(await ask.get(SLOW), Unknown)
    assert server.times(SLOW) == before


async def test_routes_that_may_block_are_left_alone_each_for_itself(server):
    """One that answers must not end the pause of the other, nor one that does not begin it."""
    for number in range(12):
        server.clock.now = NOON + 5.0 * number
        server.sources.answer = lambda route: (server.clock.advance(4.0), TIMEOUT)[1] if route is SLOW else 200
        assert (await server.poll().get(OTHER_SLOW)).status == 200
        await server.poll().get(SLOW)
    assert server.times(SLOW) == 4, "at 0, 2, 5 and 10"


@pytest.mark.parametrize("step", [-3600.0, 3600.0])
async def test_a_clock_that_is_set_changes_nothing_about_how_often_is_asked(server, step):
    """Unix time is for stamps only."""
    server.clock.advance(1)
    ticks, server.sources.clock = server.clock, FakeClock()
    await server.poll().get(MINUTELY)
    await polls_asked(server, 1)
    server.sources.clock.advance(step)
    server.sources.answer = 200
    ticks.now = NOON + 9.0
    assert isinstance(await server.poll().get(SLOW), Reply)
    await server.poll().get(MINUTELY)
    assert server.times(MINUTELY) == 1
    ticks.now = NOON + 62.0
    assert (await server.poll().get(MINUTELY)).at == NOON + step
    assert server.times(MINUTELY) == 2


async def test_an_answer_ends_the_back_off(server):
    await polls_asked(server, 20)
    server.sources.answer = 200
    server.clock.advance(60)
    assert (await server.poll().get(SLOW)).status == 200
    assert (await server.poll().get(SLOW)).status == 200
    asked = await polls_asked(server, 3)
    assert asked == [True, False, True], "the next time-out begins with the shortest pause"


async def test_a_refused_connection_is_no_busy_server(server):
    """It is told as it is, and asked again at the next poll."""
    server.sources.answer = unknown(Reason.UNREACHABLE, "refused")
    for _ in range(2):
        assert (await server.poll().get(SLOW)).reason is Reason.UNREACHABLE
    assert server.times(SLOW) == 2


async def test_a_fast_route_that_timed_out_is_told_as_it_is_and_asked_again(server):
    server.sources.answer = TIMEOUT
    for _ in range(3):
        assert await server.poll().get(FAST) == TIMEOUT
    assert server.times(FAST) == 3


async def test_an_ask_counts_what_it_really_sent(server):
    ask = server.poll()
    for _ in range(3):
        await ask.get(ONCE)
    await ask.get(FAST)
    assert ask.asked == 2


async def test_a_reply_is_handed_out_whatever_its_status(server):
    server.sources.answer = lambda route: reply(route, 501)
    assert (await server.poll().get(FAST)).status == 501
