"""The session budget, against what the engines were seen to do at the boundary, and its laws over layouts and use."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspector.budget import Fit, Shape, budget, capacity
from inspector.layout import MemoryBound, Paged, Shared, Span, Split
from inspector.model import Pool, Slot
from inspector.reading import NOT_OFFERED, Kind, Known, Origin, Reason, Unknown

ORIGIN = Origin(Kind.HTTP, "/slots", 100.0)

SEEN = [
    # llama-server with 4 slots of 1024 cells: 4 x (900+124) ran to their ends, 900+200 was cut at the slot's end, a prompt of 1100 was refused.
    (Split(4, 1024), Shape(900, 124), 4, "slots"),
    (Split(4, 1024), Shape(900, 200), 0, "context"),
    (Split(4, 1024), Shape(1100, 1), 0, "context"),
    # The same with one pool of 4096 cells: 4 x (900+124) ran, 4 x (900+200) died all together, 3900+150 ran alone.
    (Shared(4, 4096, 4096), Shape(900, 124), 4, "slots"),
    (Shared(4, 4096, 4096), Shape(900, 200), 3, "kv"),
    (Shared(4, 4096, 4096), Shape(3900, 150), 1, "kv"),
    # A pool whose requests are capped below it.
    (Shared(4, 2048, 512), Shape(400, 112), 4, "slots"),
    (Shared(4, 2048, 512), Shape(400, 113), 0, "context"),
    # vLLM, blocks of 128 of which one is the null block: 33 blocks ran 4 sessions without a preemption, 32 blocks preempted once.
    (Paged(33, 128, 1, 4, 2048), Shape(700, 324), 4, "slots"),
    (Paged(32, 128, 1, 4, 2048), Shape(700, 324), 3, "kv"),
    (Paged(33, 128, 1, 4, 2048), Shape(700, 325), 4, "slots"),
    (Paged(33, 128, 1, 4, 2048), Shape(700, 326), 3, "kv"),
    (Paged(33, 128, 1, 4, 2048), Shape(2000, 100), 0, "context"),
    (MemoryBound(8, lambda tokens: tokens * 1000, 3_500_000), Shape(900, 100), 3, "memory"),
]


@pytest.mark.parametrize(("layout", "shape", "sessions", "resource"), SEEN)
def test_an_empty_server_holds_what_the_engine_held(layout, shape, sessions, resource):
    fit = capacity(layout, shape)
    assert (fit.sessions, fit.resource) == (sessions, resource)


@pytest.mark.parametrize("layout", [Paged(33, 128, 1, None, 2048), Paged(33, 128, 1, 4, 2048, groups=6)], ids=["slots unknown", "several groups"])
def test_a_layout_without_its_size_has_no_capacity(layout):
    made = budget(Pool(layouts=(layout,), slots_busy=known(0), kv_used_tokens=known(0)), Shape(700, 324))
    assert isinstance(made.capacity, Unknown)
    assert isinstance(made.headroom, Unknown)


def test_layouts_that_are_not_excluded_give_bounds():
    made = budget(idle(Split(4, 1024), Shared(4, 1024, 1024)), Shape(900, 124))
    assert made.capacity == Span(1, 4)
    assert made.headroom == Span(1, 4)
    assert made.limited_by == "kv"


def test_no_layout_means_unknown():
    made = budget(Pool(slots=known(4), slots_busy=known(0), kv_used_tokens=known(0)), Shape(1, 1))
    assert isinstance(made.capacity, Unknown)
    assert isinstance(made.headroom, Unknown)
    assert made.limited_by is None


def test_a_running_session_counts_to_its_end_where_that_is_known():
    made = budget(busy_pool(held=500, growth=known(523)), Shape(900, 124))
    assert made.headroom == Span(3, 3)


def test_a_running_session_counts_to_its_limit_where_its_end_is_not_known():
    made = budget(busy_pool(held=500, growth=Unknown(Reason.NOT_REPORTED, "no limit was asked for")), Shape(900, 124))
    assert made.headroom == Span(0, 3)  # It alone may fill the pool of 4096.


def test_those_who_wait_go_first():
    waiting = busy_pool(held=500, growth=known(523), waiting=2)
    assert budget(waiting, Shape(900, 124)).headroom == Span(1, 3)


def test_unknown_use_leaves_the_capacity_known_and_the_headroom_unknown():
    unknown = Unknown(Reason.ENDPOINT_DISABLED, "start llama-server with --slots")
    made = budget(Pool(layouts=(Shared(4, 4096, 4096),), slots_busy=unknown, kv_used_tokens=unknown), Shape(900, 124))
    assert made.capacity == Span(4, 4)
    assert isinstance(made.headroom, Unknown)
    assert "--slots" in made.headroom.detail


def test_split_slots_need_no_token_count():
    pool = Pool(layouts=(Split(4, 1024),), slots_busy=known(3), kv_used_tokens=Unknown(Reason.NOT_REPORTED, "this build does not tell"))
    assert budget(pool, Shape(900, 124)).headroom == Span(1, 1)


@given(
    slots=st.integers(1, 8),
    tokens=st.integers(64, 4096),
    prompt=st.integers(1, 4096),
    output=st.integers(1, 512),
    held=st.lists(st.integers(0, 4096), max_size=8),
)
def test_bounds_are_ordered_and_headroom_never_exceeds_capacity(slots, tokens, prompt, output, held):
    busy = [min(h, tokens) for h in held[:slots]]
    detail = tuple(Slot(i, busy=known(True), used_tokens=known(h)) for i, h in enumerate(busy))
    idle_slots = tuple(Slot(i, busy=known(False)) for i in range(len(busy), slots))
    used = min(sum(busy), tokens)
    pool = Pool(
        layouts=(Split(slots, tokens), Shared(slots, tokens, tokens)), slots=known(slots), slots_busy=known(len(busy)),
        kv_used_tokens=known(used), slots_detail=detail + idle_slots,
    )  # fmt: skip
    made = budget(pool, Shape(prompt, output))
    assert 0 <= made.capacity.guaranteed <= made.capacity.possible <= slots
    assert 0 <= made.headroom.guaranteed <= made.headroom.possible <= slots - len(busy)
    assert made.headroom.guaranteed <= made.capacity.guaranteed
    assert made.headroom.possible <= made.capacity.possible


def known(value):
    return Known(value, ORIGIN)


def idle(*layouts):
    return Pool(layouts=layouts, slots=known(4), slots_busy=known(0), kv_used_tokens=known(0))


def busy_pool(held, growth, waiting=None):
    slots = (Slot(0, busy=known(True), used_tokens=known(held), growth_tokens=growth), *(Slot(i, busy=known(False)) for i in (1, 2, 3)))
    return Pool(
        layouts=(Shared(4, 4096, 4096),), slots=known(4), slots_busy=known(1), kv_used_tokens=known(held), slots_detail=slots,
        requests_waiting=NOT_OFFERED if waiting is None else known(waiting),
    )  # fmt: skip


def test_blocks_of_several_groups_count_as_their_sessions_take_them() -> None:
    """A gemma3 of six layers: a request of 2048 tokens takes at most 101 blocks, by the engine's own count."""
    hybrid = Paged(2 * 101 + 1, 128, 1, 4, 2048, groups=6, blocks_of=lambda _: 101)
    assert capacity(hybrid, Shape(1000, 1048)) == Fit(2, "kv")
    assert capacity(replace(hybrid, blocks=2 * 101), Shape(1000, 1048)) == Fit(1, "kv")
    assert capacity(replace(hybrid, blocks=9 * 101), Shape(1000, 1048)) == Fit(4, "slots")
    assert capacity(hybrid, Shape(1000, 1049)) == Fit(0, "context")


def test_two_readings_of_a_hybrid_pool_bound_its_budget() -> None:
    """Where only the blocks of a full-length request are known: at worst each session takes them all, at best its tokens' blocks of one group."""
    least = Paged(203, 128, 1, 64, 2048, groups=6, blocks_of=lambda _: 101)
    most = replace(least, blocks_of=lambda tokens: -(-tokens // 128))
    found = budget(Pool(slots=known(64), layouts=(least, most)), Shape(700, 324))
    assert found.capacity == Span(2, 25)


def test_tokens_in_use_do_not_tell_the_blocks_of_several_groups() -> None:
    hybrid = Paged(203, 128, 1, 4, 2048, groups=6, blocks_of=lambda _: 101)
    pool = Pool(slots=known(4), slots_busy=known(1), requests_running=known(1), kv_used_tokens=known(128), layouts=(hybrid,))
    assert isinstance(budget(pool, Shape(700, 324)).headroom, Unknown)
