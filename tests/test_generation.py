"""Generations: the signs of a new server process, and work that stands still."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes import NOON, known, unknown
from inspector.contract import Observation
from inspector.generation import Generation, has_work
from inspector.model import Pool, State


def observed(state: State = State.READY, busy: int | None = 1, moved: float = 1.0, **changes) -> Observation:
    pools = () if busy is None else (Pool(slots_busy=known(busy)),)
    return Observation(state, pools=pools, **{"progress": {"0": (moved,)}, **changes})


@pytest.fixture
def generation() -> Generation:
    return Generation(1, recall=None)


@pytest.mark.parametrize(
    ("before", "after", "other_process"),
    [
        ({"decodes": 5.0}, {"decodes": 4.0}, True),
        ({"decodes": 5.0}, {"decodes": 0.0}, True),
        ({"decodes": 5.0}, {"decodes": 5.0}, False),
        ({"decodes": 5.0}, {"decodes": 6.0}, False),
        ({"decodes": 5.0}, {}, False),
        ({}, {"decodes": 5.0}, False),
        ({"decodes": 5.0, "tokens": 9.0}, {"decodes": 6.0, "tokens": 8.0}, True),
    ],
)
def test_a_counter_that_fell_is_another_process(generation, before, after, other_process):
    """A counter that is missing fell nowhere: it was not said."""
    generation.learn(Observation(State.READY, counters=before), NOON)
    assert generation.contradicted_by(Observation(State.READY, counters=after)) is other_process


def test_a_counter_is_remembered_through_a_poll_that_did_not_tell_it(generation):
    """The restart may fall together with a reply that got lost."""
    generation.learn(Observation(State.READY, counters={"decodes": 50.0}), NOON)
    generation.learn(Observation(State.READY), NOON + 5)
    assert generation.contradicted_by(Observation(State.READY, counters={"decodes": 3.0}))


@given(st.lists(st.floats(0, 1e12), min_size=1, max_size=20))
def test_counters_that_only_rise_are_one_process(values):
    generation = Generation(1, recall=None)
    for value in sorted(values):
        observation = Observation(State.READY, counters={"tokens": value})
        assert not generation.contradicted_by(observation)
        generation.learn(observation, NOON)


@pytest.mark.parametrize(
    ("before", "after", "other_process"), [(NOON, NOON + 60, True), (NOON, NOON - 60, True), (NOON, NOON + 1, False), (NOON, None, False), (None, NOON, False)]
)
def test_another_stated_start_is_another_process(generation, before, after, other_process):
    """Up to rounding; a start that is not stated says nothing."""
    generation.learn(Observation(State.READY, born=before), NOON)
    generation.learn(Observation(State.READY), NOON)
    assert generation.contradicted_by(Observation(State.READY, born=after)) is other_process


@pytest.mark.parametrize(("before", "after", "other_process"), [("a", "b", True), ("a", "a", False), ("a", "", False), ("", "b", False), ("", "", False)])
def test_another_identity_is_another_process(generation, before, after, other_process):
    """One that is not stated says nothing, and is no reason to forget the one that was."""
    generation.learn(Observation(State.READY, identity=before), NOON)
    generation.learn(Observation(State.READY), NOON)
    assert generation.contradicted_by(Observation(State.READY, identity=after)) is other_process


def still(generation: Generation, observation: Observation, now: float) -> float | None:
    generation.learn(observation, now)
    return generation.standing_still(observation, now)


def test_work_that_does_not_move_stands_still_for_as_long_as_it_was_watched(generation):
    assert [still(generation, observed(), NOON + t) for t in (0, 5, 70)] == [0, 5, 70]


def test_what_moves_does_not_stand_still(generation):
    assert [still(generation, observed(moved=t), NOON + t) for t in (0, 5, 70)] == [0, 0, 0]


def test_one_moving_series_of_several_is_enough(generation):
    assert [still(generation, observed(progress={"0": (7.0, float(t))}), NOON + t) for t in (0, 90)] == [0, 0]


def test_an_idle_server_never_stands_still(generation):
    """Nothing moves when there is nothing to do; and the time of idleness is not held against the first request."""
    assert still(generation, observed(busy=0), NOON) is None
    assert still(generation, observed(busy=0), NOON + 900) is None
    assert still(generation, observed(busy=1), NOON + 905) == 5


def test_the_slowest_pool_counts(generation):
    def both(now):
        return Observation(State.READY, pools=(Pool("a", slots_busy=known(1)), Pool("b", slots_busy=known(1))), progress={"a": (float(now),), "b": (1.0,)})

    assert [still(generation, both(t), NOON + t) for t in (0, 40)] == [0, 40]


def test_a_pool_that_cannot_tell_is_never_called_still(generation):
    silent = observed(progress={})
    assert [still(generation, silent, NOON + t) for t in (0, 900)] == [None, None]


@pytest.mark.parametrize("gap", [observed(State.SLEEPING), observed(State.LOADING, busy=None), observed(progress={}), observed(State.SLEEPING, progress={})])
def test_time_that_nobody_watched_is_not_time_of_standing_still(generation, gap):
    """A model that slept for an hour and has just been given work shows the old counters: it does not hang."""
    still(generation, observed(busy=0), NOON)
    generation.learn(gap, NOON + 5)
    assert still(generation, observed(busy=1), NOON + 3600) == 0


def test_time_in_which_nobody_polled_is_not_time_of_standing_still(generation):
    """The machine slept for an hour with a request in hand: the first look afterwards shows the old counters."""
    generation.unwatched_after = 15.0
    assert [still(generation, observed(), NOON + t) for t in (0, 15, 3600, 3605, 3620, 3635.1)] == [0, 15, 0, 5, 20, 0]


@pytest.mark.parametrize("field", ["slots_busy", "requests_running", "requests_waiting", "requests_in_flight"])
def test_work_in_hand_is_what_an_engine_says_of_it(field):
    assert has_work(Pool(**{field: known(1)}))
    assert not has_work(Pool(**{field: known(0)}))
    assert not has_work(Pool(**{field: unknown(bounds=(1, 4))})), "an unknown is no work"


def test_a_generation_starts_when_the_operating_system_says_so_else_the_engine(generation):
    assert generation.started is None
    generation.learn(Observation(State.READY, born=NOON), NOON + 9)
    assert generation.started == NOON
