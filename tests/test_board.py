"""The board: the newest snapshot of each target, put whole, aged when it is read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fakes import NOON, FakeClock, known, snapshot, unknown
from inspector.board import Board, TargetInfo, age
from inspector.judge import Level, assess
from inspector.layout import Shared
from inspector.model import Memory, Pool, State
from inspector.reading import Known, Reason, Unknown

INFO = TargetInfo("chat", "", "http://127.0.0.1:8080", stale_after=15.0)
STATIC = {"slots": known(4), "context_limit_tokens": known(4096), "layouts": (Shared(4, 4096, 4096),)}
LIVE = Pool(slots_busy=known(1), kv_used_tokens=known(900), **STATIC)


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def board(clock):
    made = Board(clock=clock)
    made.add(INFO)
    return made


def test_a_target_that_was_not_polled_has_no_snapshot(board):
    """Not an empty one, not one of zeros."""
    entry = board.entry("chat")
    assert (entry.snapshot, entry.assessment, entry.polls, entry.last_success, entry.stale) == (None, None, 0, None, False)


def test_a_name_that_is_not_watched_has_no_entry(board):
    assert board.entry("other") is None


def test_a_snapshot_is_replaced_whole(board):
    """A field that vanished from the second reply is unknown, however new the first one was; likewise pools, slots, drift, faults, memory."""
    board.put(snapshot(LIVE, replace(LIVE, id="second"), memory=Memory(used_bytes=known(5))))
    second = snapshot(replace(LIVE, kv_used_tokens=unknown(), slots=unknown()), at=NOON + 5)
    board.put(second)
    assert board.entry("chat").snapshot == second


def test_a_failed_poll_leaves_nothing_of_the_good_one_before(board):
    board.put(snapshot(LIVE))
    board.put(snapshot(state=State.UNREACHABLE, at=NOON + 5))
    entry = board.entry("chat")
    assert entry.snapshot.pools == ()
    assert entry.assessment.pools == {}
    assert entry.assessment.level is Level.CRITICAL
    assert entry.last_success == NOON


def test_the_assessment_is_made_once_for_a_snapshot(clock):
    """Judged when it is put, not each time it is looked at."""
    seen = []
    board = Board(assess=lambda s: seen.append(s) or assess(s), clock=clock)
    board.add(INFO)
    board.put(snapshot(LIVE))
    for _ in range(5):
        board.entries()
    assert len(seen) == 1


@pytest.mark.parametrize(("seconds", "stale"), [(0, False), (15, False), (15.1, True), (3600, True)])
def test_live_facts_age_out_and_static_ones_stay(board, clock, seconds, stale):
    board.put(snapshot(LIVE, memory=Memory(total_bytes=known(9), used_bytes=known(5)), duration=0.0))
    clock.advance(seconds)
    entry = board.entry("chat")
    (pool,) = entry.snapshot.pools
    assert entry.stale is stale
    assert isinstance(pool.kv_used_tokens, Unknown) is stale
    assert isinstance(entry.snapshot.memory.used_bytes, Unknown) is stale
    assert pool.context_limit_tokens == known(4096)
    assert entry.snapshot.memory.total_bytes == known(9)
    assert board.entries() == (entry,)


@pytest.mark.parametrize("step", [-3600.0, 3600.0])
@pytest.mark.parametrize(("seconds", "stale"), [(14, False), (16, True)])
def test_a_clock_that_is_set_makes_nothing_older_or_younger(clock, step, seconds, stale):
    ticks = FakeClock(5.0)
    board = Board(clock=clock, monotonic=ticks)
    board.add(INFO)
    board.put(snapshot(LIVE))
    clock.advance(step)
    ticks.advance(seconds)
    assert board.entry("chat").stale is stale


@pytest.mark.parametrize(("duration", "waited"), [(10.0, 0.0), (0.0, 10.0)])
def test_a_snapshot_is_as_old_as_the_beginning_of_its_poll(clock, duration, waited):
    """However long the poll took, and however late it was put."""
    ticks = FakeClock(500.0)
    board = Board(clock=clock, monotonic=ticks)
    board.add(INFO)
    clock.advance(waited)
    board.put(snapshot(LIVE, duration=duration))
    ticks.advance(4.9)
    assert not board.entry("chat").stale
    ticks.advance(0.2)
    assert board.entry("chat").stale


def test_a_stale_fact_says_how_old_it_is():
    aged = age(snapshot(LIVE), 99)
    assert aged.pools[0].kv_used_tokens == Unknown(Reason.STALE, "last observed 99 s ago")


@pytest.mark.parametrize("state", State)
def test_a_stale_target_is_unknown_whatever_it_was(board, clock, state):
    """Fine, asleep or down a while ago says nothing of now: no verdict may rest on it."""
    board.put(snapshot(LIVE if state is State.READY else Pool(**STATIC), state=state))
    clock.advance(60)
    entry = board.entry("chat")
    assert entry.assessment.level is Level.UNKNOWN
    assert any("60 s ago" in f.detail for f in entry.assessment.findings)


def test_a_stale_target_has_no_live_headroom(board, clock):
    board.put(snapshot(LIVE))
    clock.advance(60)
    assert {h.resource for h in board.entry("chat").assessment.pools["0"]} == {"kv", "slots", "context"}
    assert all(isinstance(h.ratio, Unknown) for h in board.entry("chat").assessment.pools["0"])


def test_looking_at_an_aged_entry_does_not_age_what_is_kept(board, clock):
    """A clock that was set back, or a fresh poll, finds the facts as they were put."""
    board.put(snapshot(LIVE))
    clock.advance(60)
    assert board.entry("chat").stale
    clock.now = NOON + 1
    assert isinstance(board.entry("chat").snapshot.pools[0].kv_used_tokens, Known)


def test_polls_and_failures_are_counted_by_what_was_found(board):
    for state in (State.READY, State.UNREACHABLE, State.UNREACHABLE, State.UNAUTHORIZED, State.LOADING, State.SLEEPING, State.STALLED, State.NOT_RECOGNIZED):
        board.put(snapshot(state=state))
    entry = board.entry("chat")
    assert entry.polls == 8
    assert entry.failures == {"unreachable": 2, "unauthorized": 1, "not_recognized": 1}


def test_an_entry_that_was_handed_out_does_not_change(board):
    board.put(snapshot(state=State.UNREACHABLE))
    before = board.entry("chat")
    board.put(snapshot(state=State.UNREACHABLE))
    assert before.failures == {"unreachable": 1}
    assert before.polls == 1


def test_a_removed_target_stays_removed_though_its_poll_ends_later(board):
    board.remove("chat")
    board.put(snapshot(LIVE))
    assert board.entries() == ()
    board.remove("chat")


def test_a_target_that_is_added_again_keeps_its_facts_and_takes_the_new_settings(board):
    board.put(snapshot(LIVE))
    board.add(replace(INFO, stale_after=60.0))
    entry = board.entry("chat")
    assert entry.polls == 1
    assert entry.snapshot.pools == (LIVE,)
    assert entry.info.stale_after == 60.0


def test_a_target_that_was_removed_and_added_starts_anew(board):
    board.put(snapshot(LIVE))
    board.remove("chat")
    board.add(INFO)
    assert board.entry("chat").polls == 0
    assert board.entry("chat").snapshot is None


def test_the_engine_is_known_once_it_was_recognized(board):
    assert board.entry("chat").info.engine == ""
    board.put(snapshot(LIVE))
    assert board.entry("chat").info.engine == "fake"


def test_targets_keep_the_order_in_which_they_were_added(board):
    for name in ("b", "a"):
        board.add(replace(INFO, name=name))
    board.put(snapshot(target="a"))
    assert [e.info.name for e in board.entries()] == ["chat", "b", "a"]
