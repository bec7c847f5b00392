"""Layouts: what fits into each kind of KV memory. The figures are those that the engines themselves gave."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from inspector.layout import (
    MemoryBound,
    Paged,
    Shared,
    Span,
    Split,
    capacity_tokens,
    guaranteed_tokens,
    kv_headroom_ratio,
    kv_headroom_tokens,
    over,
    request_tokens,
)

slots = st.integers(1, 64)
tokens = st.integers(1, 1 << 20)
splits = st.builds(Split, slots, tokens)
shareds = st.builds(Shared, slots, tokens, tokens)
pageds = st.builds(Paged, st.integers(2, 1 << 16), st.sampled_from([1, 16, 32, 128]), st.just(1), slots, tokens)
sized = st.one_of(splits, shareds, pageds)
layouts = st.one_of(sized, st.builds(MemoryBound, st.none(), st.just(lambda n: n * 1024), tokens))


@pytest.mark.parametrize(
    ("flags", "layout", "request_limit", "guaranteed", "capacity"),
    [
        # llama-server's own figures (/props n_ctx, total_slots, the KV line's cells) for these flags, model trained to 8192.
        ("-np 4 -c 2048", Split(4, 512), 512, 512, 2048),
        ("-np 4 -c 2048 --kv-unified", Shared(4, 2048, 2048), 2048, 512, 2048),
        ("-c 2048", Shared(4, 2048, 2048), 2048, 512, 2048),
        ("-np 1 -c 2048", Split(1, 2048), 2048, 2048, 2048),
        ("-np 3 -c 1000", Split(3, 512), 512, 512, 1536),
        ("-np 4", Split(4, 8192), 8192, 8192, 32768),
        ("-np 4 -kvu --kv-unified-per-slot 512", Shared(4, 2048, 512), 512, 512, 2048),
        ("no -np, no -c", Shared(4, 8192, 8192), 8192, 2048, 8192),
        ("-c 10000 -np 3", Split(3, 3584), 3584, 3584, 10752),
    ],
)
def test_the_layouts_of_llama_server_by_its_flags(flags, layout, request_limit, guaranteed, capacity):
    assert request_tokens(layout) == request_limit, flags
    assert guaranteed_tokens(layout) == guaranteed, flags
    assert capacity_tokens(layout) == capacity, flags


@pytest.mark.parametrize(("allocated", "usable"), [(Split(1, 8192), 8192), (Shared(1, 16384, 8192), 8192), (Shared(2, 32768, 8192), 16384)])
def test_cells_that_no_request_may_use_do_not_count(allocated, usable):
    """`-np 1 -c 16384` over a model trained to 8192 allocates 16384 cells; its one slot may use 8192 of them."""
    assert capacity_tokens(allocated) == usable
    assert kv_headroom_tokens(allocated, used_tokens=0, slots_busy=0) == usable


@pytest.mark.parametrize(
    ("blocks", "usable_tokens", "four_sessions_of_1024_fit"),
    [(33, 4096, True), (32, 3968, False)],
)
def test_the_null_block_of_vllm_serves_nobody(blocks, usable_tokens, four_sessions_of_1024_fit):
    """vLLM said 4.00x for 32 blocks and preempted; with 33 it did not: block 0 is never handed out."""
    layout = Paged(blocks, 128, 1, 4, 2048)
    assert capacity_tokens(layout) == usable_tokens
    assert (guaranteed_tokens(layout) >= 1024) is four_sessions_of_1024_fit


def test_sixteen_blocks_do_not_hold_a_request_of_2048():
    """vLLM refuses to start so, and suggests 1920: fifteen usable blocks of 128."""
    assert request_tokens(Paged(16, 128, 1, None, 2048)) == 1920


@pytest.mark.parametrize("groups", [2, 6])
def test_blocks_of_several_groups_are_no_tokens(groups):
    """blocks x block size is 6 to 8 times too high for a model with window layers: no figure is better."""
    layout = Paged(32768, 128, 1, 4, 2048, groups)
    assert capacity_tokens(layout) is None
    assert guaranteed_tokens(layout) is None
    assert kv_headroom_ratio(layout, 100, 1) is None
    assert kv_headroom_tokens(layout, 100, 1) is None
    assert request_tokens(layout) == 2048


def test_without_the_number_of_slots_nothing_is_guaranteed():
    assert guaranteed_tokens(Paged(33, 128, 1, None, 2048)) is None
    assert request_tokens(Paged(33, 128, 1, 4, None)) is None


def test_memory_without_a_pool_has_no_size_in_tokens():
    """MLX LM enforces no limit at all: nothing may be made up."""
    layout = MemoryBound(32, lambda n: n, 1 << 30)
    assert [f(layout) for f in (capacity_tokens, request_tokens, guaranteed_tokens)] == [None] * 3
    assert kv_headroom_ratio(layout, 5, 1) is None
    assert kv_headroom_tokens(layout, 5, 1) is None


@given(layouts)
def test_what_is_guaranteed_is_possible(layout):
    guaranteed, possible, capacity = guaranteed_tokens(layout), request_tokens(layout), capacity_tokens(layout)
    if guaranteed is not None and possible is not None:
        assert guaranteed <= possible
    if possible is not None and capacity is not None:
        assert possible <= capacity


@given(sized)
def test_the_guarantee_of_all_slots_together_fits_into_the_pool(layout):
    assert guaranteed_tokens(layout) * layout.slots <= capacity_tokens(layout)


@given(slots, tokens)
def test_the_bounds_of_an_unknown_kind_enclose_either_truth(count, slot_tokens):
    """HTTP does not tell split from shared: what is said of both must enclose each."""
    split, shared = Split(count, slot_tokens), Shared(count, slot_tokens, slot_tokens)
    for f in (capacity_tokens, guaranteed_tokens, request_tokens):
        span = over([split, shared], f)
        for truth in (split, shared):
            assert span.guaranteed <= f(truth) <= span.possible
        assert span.exact is (f(split) == f(shared))


@given(st.lists(layouts, min_size=1, max_size=4))
def test_one_alternative_without_an_answer_leaves_none(several):
    span = over(several, capacity_tokens)
    values = [capacity_tokens(layout) for layout in several]
    assert span == (None if None in values else Span(min(values), max(values)))


def test_no_layout_is_no_answer():
    assert over([], capacity_tokens) is None


@given(sized, st.integers(0, 1 << 21), st.integers(0, 80))
def test_headroom_is_a_share_and_never_more_than_there_is(layout, used, busy):
    """Even where an engine reports more use than there is room (it counts cells of a finished request, or a queue)."""
    assume(capacity_tokens(layout) > 0)
    assert 0 <= kv_headroom_ratio(layout, used, busy) <= 1
    assert 0 <= kv_headroom_tokens(layout, used, busy) <= capacity_tokens(layout)


@given(sized, st.integers(0, 1 << 20), st.integers(0, 1 << 20), st.integers(0, 64), st.integers(0, 64))
def test_more_use_never_leaves_more_room(layout, used, more_used, busy, more_busy):
    less = kv_headroom_tokens(layout, used, busy)
    assert kv_headroom_tokens(layout, used + more_used, busy + more_busy) <= less
    assert kv_headroom_ratio(layout, used + more_used, busy + more_busy) <= kv_headroom_ratio(layout, used, busy)


@given(splits, st.integers(0, 1 << 20))
def test_split_cells_are_no_one_elses(layout, used):
    """A slot's cells cannot be lent: one busy slot of four leaves three quarters, however little it holds."""
    assert kv_headroom_ratio(layout, used, layout.slots) == 0
    assert kv_headroom_ratio(layout, used, 0) == 1
    assert kv_headroom_ratio(Split(4, 1024), used, 1) == 0.75
    assert kv_headroom_tokens(Split(4, 1024), used, 1) == 3072


def test_headroom_rests_on_the_use_that_its_layout_needs():
    """Split: the busy slots; shared and paged: the tokens. Without it there is no figure."""
    assert kv_headroom_ratio(Split(4, 1024), 100, None) is None
    assert kv_headroom_tokens(Split(4, 1024), 100, None) is None
    assert kv_headroom_ratio(Shared(4, 4096, 4096), None, 1) is None
    assert kv_headroom_tokens(Shared(4, 4096, 4096), None, 1) is None
    assert kv_headroom_ratio(Shared(4, 4096, 4096), 1024, None) == 0.75
    assert kv_headroom_tokens(Paged(33, 128, 1, 4, 2048), 128, None) == 3968


def test_blocks_that_sessions_do_not_fill_alike_are_no_tokens() -> None:
    """One group of sliding windows: blocks come back while a session still grows."""
    window = Paged(33, 128, 1, 4, 2048, blocks_of=lambda tokens: min(17, -(-tokens // 128)))
    assert (capacity_tokens(window), guaranteed_tokens(window), request_tokens(window)) == (None, None, 2048)
