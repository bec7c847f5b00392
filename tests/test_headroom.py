"""Headroom: the share of each resource that new work can still claim, with the bounds that the evidence allows."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes import known, unknown
from inspector.headroom import Headroom, busy_slots, memory_headroom, pool_headroom
from inspector.layout import MemoryBound, Paged, Shared, Span, Split
from inspector.model import Memory, Pool, Slot
from inspector.reading import NOT_OFFERED, Reason, Unknown


def of(pool: Pool, resource: str) -> Headroom | None:
    return next((h for h in pool_headroom(pool) if h.resource == resource), None)


def served(**changes) -> Pool:
    """A pool of four slots, one of them busy with 900 tokens, that all share 4096."""
    facts = {"slots": known(4), "slots_busy": known(1), "kv_used_tokens": known(900), "layouts": (Shared(4, 4096, 4096),)}
    return Pool(**{**facts, **changes})


def session(used, limit=1024, busy=True, number=0) -> Slot:
    as_reading = lambda value: value if isinstance(value, Unknown) else known(value)  # noqa: E731
    return Slot(number, busy=as_reading(busy), context_tokens=as_reading(limit), used_tokens=as_reading(used))


def test_a_shared_pool_has_its_free_tokens():
    assert of(served(), "kv") == Headroom("kv", Span(1 - 900 / 4096, 1 - 900 / 4096), Span(3196, 3196))


def test_split_cells_have_their_free_slots():
    assert of(served(layouts=(Split(4, 1024),)), "kv") == Headroom("kv", Span(0.75, 0.75), Span(3072, 3072))


def test_an_unknown_kind_has_bounds_that_hold_either():
    """Split: three of four slots of 4096. Shared: what 900 of 4096 leave."""
    found = of(served(layouts=(Split(4, 4096), Shared(4, 4096, 4096))), "kv")
    assert found == Headroom("kv", Span(0.75, 1 - 900 / 4096), Span(3196, 12288))


def test_a_full_server_has_a_measured_zero():
    assert of(served(kv_used_tokens=known(4096)), "kv") == Headroom("kv", Span(0, 0), Span(0, 0))


def test_an_idle_server_has_all():
    assert of(served(slots_busy=known(0), kv_used_tokens=known(0)), "kv").ratio == Span(1, 1)


def test_the_engines_own_ratio_is_believed_for_a_paged_pool():
    pool = Pool(kv_usage_ratio=known(0.4), layouts=(Paged(33, 128, 1, 4, 2048, groups=6),))
    found = of(pool, "kv")
    assert found.ratio == Span(0.6, 0.6)
    assert isinstance(found.tokens, Unknown), "blocks of several groups are no tokens"


def test_the_engines_own_ratio_says_nothing_of_split_cells():
    """Old llama.cpp gives used cells over all cells; a slot's cells are no one else's."""
    assert of(served(kv_usage_ratio=known(0.05), layouts=(Split(4, 1024),), slots_busy=known(4)), "kv").ratio == Span(0, 0)


def test_bounds_of_a_use_are_used_on_the_right_side():
    """The most use gives the guaranteed room, the least use the possible one."""
    found = of(served(kv_used_tokens=unknown(Reason.AMBIGUOUS, bounds=(1024, 3072))), "kv")
    assert found == Headroom("kv", Span(0.25, 0.75), Span(1024, 3072))
    assert of(served(kv_usage_ratio=unknown(Reason.AMBIGUOUS, bounds=(0.25, 0.5))), "kv").ratio == Span(0.5, 0.75)


@pytest.mark.parametrize("bounds", [None, (5, None), (None, 5), (None, None)])
def test_a_use_that_is_open_on_a_side_gives_no_headroom(bounds):
    """An unknown use is not no use."""
    found = of(served(kv_used_tokens=unknown(Reason.ENDPOINT_DISABLED, "start it with --slots", bounds)), "kv")
    assert isinstance(found.ratio, Unknown)
    assert isinstance(found.tokens, Unknown)
    assert "start it with --slots" in found.ratio.detail


def test_an_unknown_layout_gives_no_headroom():
    found = of(served(layouts=()), "kv")
    assert found.ratio.reason is found.tokens.reason is Reason.NO_SOURCE


def test_one_alternative_that_cannot_be_judged_leaves_none():
    """Shared could be judged by its tokens; but it may be split, and the busy slots are unknown."""
    found = of(served(layouts=(Shared(4, 4096, 4096), Split(4, 1024)), slots_busy=unknown(Reason.TIMEOUT, "busy")), "kv")
    assert isinstance(found.ratio, Unknown)


def test_a_resource_that_the_engine_does_not_show_is_left_out():
    assert pool_headroom(Pool()) == ()
    assert of(Pool(slots=known(4)), "slots") is None
    assert of(Pool(layouts=(MemoryBound(32, lambda n: n, 1 << 30),)), "kv") is None


def test_a_use_that_cannot_be_read_now_is_told_by_its_own_reason():
    """An engine that gives a ratio and no tokens: when the ratio is stale, headroom is unknown for that, not `not_offered`."""
    pool = Pool(kv_usage_ratio=unknown(Reason.STALE, "last observed 99 s ago"), layouts=(Paged(33, 128, 1, 4, 2048),))
    assert "99 s" in of(pool, "kv").ratio.detail
    assert of(pool, "kv").ratio.reason is not Reason.NOT_OFFERED


@pytest.mark.parametrize(("busy", "share"), [(0, 1), (1, 0.75), (4, 0), (7, 0)])
def test_slots_are_free_or_not(busy, share):
    assert of(served(slots_busy=known(busy)), "slots").ratio == Span(share, share)


def test_running_requests_stand_in_where_an_engine_has_no_slots_of_its_own():
    pool = Pool(slots=known(8), requests_running=known(2))
    assert busy_slots(pool) == known(2)
    assert of(pool, "slots").ratio == Span(0.75, 0.75)


def test_an_unknown_count_of_busy_slots_is_not_replaced_by_another():
    """The engine offers it and it is unknown: that is not a reason to believe something else."""
    pool = Pool(slots=known(8), slots_busy=unknown(), requests_running=known(2))
    assert isinstance(of(pool, "slots").ratio, Unknown)


def test_context_is_what_the_fullest_busy_session_has_left():
    pool = served(slots_detail=(session(100), session(900, number=1), session(1000, busy=False, number=2)))
    assert of(pool, "context") == Headroom("context", Span(1 - 900 / 1024, 1 - 900 / 1024), Span(124, 124))


def test_the_fullest_session_is_the_one_with_the_least_share():
    """Slots may differ in size: 500 of 512 is fuller than 900 of 8192."""
    pool = served(slots_detail=(session(900, 8192), session(500, 512, number=1)))
    assert of(pool, "context").tokens == Span(12, 12)


def test_a_session_over_its_limit_has_nothing_left():
    found = of(served(slots_detail=(session(1030),)), "context")
    assert found == Headroom("context", Span(0, 0), Span(0, 0))


@pytest.mark.parametrize(
    "pool", [served(slots_detail=(session(900, busy=False),)), served(slots_busy=known(0), slots_detail=(session(900),)), served(slots_busy=NOT_OFFERED)]
)
def test_when_no_session_is_busy_there_is_no_context_headroom(pool):
    """Neither zero nor one: nobody uses a context."""
    assert of(pool, "context") is None


@pytest.mark.parametrize("busy", [known(1), unknown()])
def test_sessions_that_are_out_of_sight_are_not_gone(busy):
    """Something is busy, or may be, and no slot is shown: `/slots` is off and the count came from elsewhere."""
    assert isinstance(of(served(slots_busy=busy), "context").ratio, Unknown)


@pytest.mark.parametrize(
    "slots",
    [
        (session(100), session(unknown(Reason.NOT_REPORTED, "this build does not say"), number=1)),
        (session(100, unknown(Reason.INVALID, "n_ctx is null")),),
        (session(100), session(200, busy=unknown(Reason.INVALID, "is_processing is null"), number=1)),
    ],
)
def test_one_unknown_session_leaves_the_fullest_unknown(slots):
    """The one that cannot be read may be the fullest."""
    found = of(served(slots_detail=slots), "context")
    assert isinstance(found.ratio, Unknown)
    assert isinstance(found.tokens, Unknown)


def test_an_idle_session_that_cannot_be_read_does_not_matter():
    pool = served(slots_detail=(session(100), session(unknown(), busy=False, number=1)))
    assert of(pool, "context").tokens == Span(924, 924)


def test_memory_headroom_is_the_free_share_of_the_ceiling():
    assert memory_headroom(Memory(ceiling_bytes=known(1000), used_bytes=known(850))) == Headroom("memory", Span(1 - 0.85, 1 - 0.85))


def test_unknown_memory_stays_unknown_and_unoffered_memory_has_none():
    assert memory_headroom(Memory()) is None
    assert memory_headroom(Memory(ceiling_bytes=known(1000))) is None
    found = memory_headroom(Memory(ceiling_bytes=unknown(Reason.NO_SOURCE, "no limit is set"), used_bytes=known(850)))
    assert "no limit is set" in found.ratio.detail


@st.composite
def bounded_pools(draw):
    """A pool whose use is known or bounded, and the same pool with wider bounds."""
    low, high = sorted(draw(st.tuples(st.integers(0, 9000), st.integers(0, 9000))))
    busy_low, busy_high = sorted(draw(st.tuples(st.integers(0, 6), st.integers(0, 6))))
    wider = draw(st.tuples(*[st.integers(0, 500)] * 2)), draw(st.tuples(*[st.integers(0, 2)] * 2))
    size = draw(st.integers(64, 4096))
    layouts = draw(st.lists(st.sampled_from([Split(4, size), Shared(4, size, size), Shared(4, 4 * size, size)]), min_size=1, max_size=3, unique=True))
    more = draw(st.lists(st.sampled_from([Split(4, size), Shared(4, size, size), Shared(4, 4 * size, size)]), max_size=2))

    def pool(extra_used, extra_busy, some):
        used = unknown(Reason.AMBIGUOUS, bounds=(max(0, low - extra_used[0]), high + extra_used[1]))
        busy = unknown(Reason.AMBIGUOUS, bounds=(max(0, busy_low - extra_busy[0]), busy_high + extra_busy[1]))
        return Pool(slots=known(4), slots_busy=busy, kv_used_tokens=used, layouts=tuple(some))

    return pool((0, 0), (0, 0), layouts), pool(*wider, layouts + more)


@given(bounded_pools())
def test_knowing_less_never_promises_more(pools):
    """Wider bounds and more alternatives never raise what is guaranteed nor lower what is possible."""
    narrow, wide = (of(pool, "kv") for pool in pools)
    for a, b in ((narrow.ratio, wide.ratio), (narrow.tokens, wide.tokens)):
        assert b.guaranteed <= a.guaranteed <= a.possible <= b.possible


@given(bounded_pools(), st.integers(0, 9000), st.integers(0, 6))
def test_the_truth_lies_between_the_bounds(pools, used, busy):
    """Whatever the true use within the bounds and the true layout among the alternatives, the headroom found then is within what was said before."""
    pool = pools[1]
    low, high = pool.kv_used_tokens.bounds
    busy_low, busy_high = pool.slots_busy.bounds
    said = of(pool, "kv")
    for layout in pool.layouts:
        truth = replace(pool, kv_used_tokens=known(min(max(used, low), high)), slots_busy=known(min(max(busy, busy_low), busy_high)), layouts=(layout,))
        found = of(truth, "kv")
        assert said.ratio.guaranteed <= found.ratio.guaranteed <= said.ratio.possible
        assert said.tokens.guaranteed <= found.tokens.guaranteed <= said.tokens.possible


@given(st.sampled_from(["slots", "slots_busy", "kv_used_tokens"]), st.sampled_from([r for r in Reason if r is not Reason.NOT_OFFERED]))
def test_an_unknown_is_never_a_full_or_an_empty_resource(field, reason):
    """Each reading in turn is lost: no headroom that rests on it has a figure."""
    rests_on = {"slots": {"slots"}, "slots_busy": {"slots"}, "kv_used_tokens": {"kv"}}[field]
    pool = replace(served(slots_detail=(session(900),)), **{field: unknown(reason)})
    for headroom in pool_headroom(pool):
        assert isinstance(headroom.ratio, Unknown) is (headroom.resource in rests_on)


def test_not_offered_is_never_taken_for_a_figure():
    assert NOT_OFFERED not in [h.ratio for h in pool_headroom(served())]
