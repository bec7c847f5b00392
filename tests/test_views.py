"""What the screens show of a board's entries, before it is laid out."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from board_fixtures import NOW, UNTOLD, board, known, pool, snapshot
from gallery import gallery
from inspector.alerts.status import AlertState, AlertStatus
from inspector.board import Entry
from inspector.headroom import memory_headroom, pool_headroom
from inspector.judge import Level
from inspector.layout import Paged, Shared, Split
from inspector.model import Memory, Slot, State
from inspector.reading import NOT_OFFERED, Reason, Unknown, from_unknown
from inspector.views import PartKind, SlotState, fleet, kv_bar, memory_bar, now_of, remedy, view
from inspector.views.pool import MOST_BOXES, slots_view
from inspector.views.rows import Named, ranges, unknown_groups

NO_SLOTS = Unknown(Reason.ENDPOINT_DISABLED, "start it without --no-slots")


def bar_of(*layouts, **fields):
    made = pool(layouts=layouts, slots_detail=(), **fields)
    return kv_bar(made, next((h for h in pool_headroom(made) if h.resource == "kv"), None))


def shares(bar):
    return {part.kind: part.share for part in bar.parts}


def entry(*snapshots, alerts=(), now=NOW):
    made = board(*snapshots, now=now)
    for one in snapshots:
        made.put_alerts(one.target, tuple(alerts))
    return made.entries()[0]


def alert(state, severity="warning", **fields):
    return AlertStatus("InspectorKvHeadroomLow", severity, "0", "kv", "", state, NOW - 125, "kv headroom 9%", **fields)


# --- Bars ---------------------------------------------------------------------------------------------------------------------------


def test_a_shared_pool_is_used_reclaimable_and_free():
    bar = bar_of(Shared(4, 4000, 4000), kv_used_tokens=known(1000), kv_reclaimable_tokens=known(500))
    assert shares(bar) == {PartKind.USED: 0.25, PartKind.RECLAIMABLE: 0.125, PartKind.FREE: 0.625}
    assert [part.start for part in bar.parts] == [0, 0.25, 0.375]
    assert bar.label == "1,000 used, 500 reclaimable, 2,500 free, of 4,000 tokens"


def test_what_a_busy_slot_may_still_fill_is_not_free_in_a_split_cache():
    bar = bar_of(Split(4, 1000), kv_used_tokens=known(300), slots_busy=known(1), kv_reclaimable_tokens=NOT_OFFERED)
    assert shares(bar) == {PartKind.USED: 0.075, PartKind.HELD: pytest.approx(0.175), PartKind.FREE: 0.75}
    assert "700 held by busy slots" in bar.label


def test_what_only_some_layouts_have_is_a_part_of_its_own():
    bar = bar_of(Shared(4, 4000, 1000), Split(4, 250), kv_used_tokens=known(200), slots_busy=known(1), kv_reclaimable_tokens=NOT_OFFERED)
    # Split: 3 free slots of 250 tokens. Shared: 4,000 less 200.
    assert shares(bar) == {PartKind.USED: 0.05, PartKind.FREE: 0.1875, PartKind.UNSURE: 0.7625}
    assert bar.whole == "of 1,000 to 4,000 tokens"
    assert "3,050 possible, not certain" in bar.label


def test_a_use_between_bounds_is_told_as_the_least():
    bar = bar_of(Shared(4, 1000, 1000), kv_used_tokens=Unknown(Reason.AMBIGUOUS, "", (100, 300)), kv_reclaimable_tokens=NOT_OFFERED)
    assert shares(bar) == {PartKind.USED: 0.1, PartKind.FREE: 0.7, PartKind.UNSURE: 0.2}
    assert bar.label.startswith("at least 100 used")


def test_blocks_that_are_no_tokens_make_a_bar_of_shares():
    layout = Paged(1000, 16, 1, 8, 4096, groups=2)
    bar = bar_of(layout, kv_usage_ratio=known(0.4), kv_used_tokens=NOT_OFFERED, kv_reclaimable_tokens=NOT_OFFERED)
    assert shares(bar) == {PartKind.USED: pytest.approx(0.4), PartKind.FREE: 0.6}
    assert bar.label == "40% used, 60% free, of the KV cache"


@pytest.mark.parametrize("layouts", [(), (Shared(4, 4096, 1024),)])
def test_of_an_unknown_there_is_no_bar(layouts):
    assert bar_of(*layouts, kv_used_tokens=NO_SLOTS) is None


def test_an_unknown_reclaimable_part_is_named_and_not_drawn():
    bar = bar_of(Shared(4, 4096, 1024), kv_reclaimable_tokens=NO_SLOTS)
    assert PartKind.RECLAIMABLE not in shares(bar)
    assert bar.missing == ["reclaimable unknown"]


def test_a_measured_zero_is_told():
    assert "0 reclaimable" in bar_of(Shared(4, 4096, 1024), kv_reclaimable_tokens=known(0)).label


TOKENS = st.integers(0, 10_000)


@given(
    st.lists(
        st.one_of(
            st.builds(Shared, st.integers(1, 8), st.integers(1, 10_000), st.integers(1, 10_000)),
            st.builds(Split, st.integers(1, 8), st.integers(1, 3000)),
        ),
        min_size=1,
        max_size=3,
    ),
    TOKENS,
    TOKENS,
    st.integers(0, 10),
    TOKENS,
)
def test_parts_follow_one_another_and_fill_the_bar_whatever_is_read(layouts, low, high, busy, kept):
    used = known(low) if low >= high else Unknown(Reason.AMBIGUOUS, "", (low, high))
    bar = bar_of(*layouts, kv_used_tokens=used, slots_busy=known(busy), kv_reclaimable_tokens=known(kept))
    end = 0.0
    for part in bar.parts:
        assert part.start == pytest.approx(end)
        assert part.share >= 0
        end = part.start + part.share
    assert end == pytest.approx(1)


@pytest.mark.parametrize(
    ("ceiling", "expected"),
    [
        (known(8 << 30), {PartKind.USED: 0.25, PartKind.FREE: 0.75}),
        (Unknown(Reason.AMBIGUOUS, "", (4 << 30, 8 << 30)), {PartKind.USED: 0.25, PartKind.FREE: 0.25, PartKind.UNSURE: 0.5}),
    ],
)
def test_memory_is_a_bar_of_its_ceiling(ceiling, expected):
    memory = Memory(ceiling_bytes=ceiling, used_bytes=known(2 << 30))
    assert shares(memory_bar(memory, memory_headroom(memory))) == expected


@pytest.mark.parametrize("unknown", ["ceiling_bytes", "used_bytes"])
def test_memory_without_use_or_ceiling_is_no_bar(unknown):
    memory = replace(Memory(ceiling_bytes=known(8 << 30), used_bytes=known(2 << 30)), **{unknown: NO_SLOTS})
    assert memory_bar(memory, memory_headroom(memory)) is None


# --- Slots --------------------------------------------------------------------------------------------------------------------------


def test_slots_are_boxes_with_what_is_known_of_each():
    slots = (Slot(0, known(True), known(1000), known(250)), Slot(1, known(False), known(1000)), Slot(2, NO_SLOTS), Slot(3, known(True), known(1000), NO_SLOTS))
    seen = slots_view(pool(slots_detail=slots))
    assert [(box.state, box.fill) for box in seen.boxes] == [
        (SlotState.BUSY, 0.25),
        (SlotState.IDLE, None),
        (SlotState.UNKNOWN, None),
        (SlotState.BUSY, None),
    ]
    assert seen.text == "2 busy, 1 idle, 1 unknown"


def test_slots_that_are_only_counted_are_boxes_without_numbers():
    seen = slots_view(pool(slots_detail=(), slots=known(4), slots_busy=known(3)))
    assert [box.state for box in seen.boxes] == [SlotState.BUSY] * 3 + [SlotState.IDLE]
    assert {box.id for box in seen.boxes} == {""}


def test_too_many_slots_to_draw_are_a_bar():
    seen = slots_view(pool(slots_detail=(), slots=known(4 * MOST_BOXES), slots_busy=known(MOST_BOXES)))
    assert (seen.boxes, shares(seen.bar)) == ((), {PartKind.USED: 0.25, PartKind.FREE: 0.75})


@pytest.mark.parametrize(
    ("fields", "text", "states"),
    [
        ({"slots": known(2), "slots_busy": NO_SLOTS}, "2 slots, busy ones unknown (endpoint_disabled)", [SlotState.UNKNOWN] * 2),
        ({"slots": NO_SLOTS, "slots_busy": known(3)}, "3 busy, of how many: unknown (endpoint_disabled)", []),
        ({"slots": NO_SLOTS, "slots_busy": NO_SLOTS}, "unknown (endpoint_disabled)", []),
    ],
)
def test_unknown_slots_are_not_idle_ones(fields, text, states):
    seen = slots_view(pool(slots_detail=(), **fields))
    assert (seen.text, [box.state for box in seen.boxes], seen.bar) == (text, states, None)
    assert seen.remedy == NO_SLOTS.detail


def test_slots_whose_work_the_engine_does_not_show_are_only_counted():
    seen = slots_view(pool(slots_detail=(), slots=known(2), slots_busy=NOT_OFFERED, requests_running=NOT_OFFERED))
    assert (seen.text, seen.boxes, seen.bar, seen.remedy) == ("2 slots", (), None, "")


def test_an_engine_without_slots_shows_none():
    assert slots_view(pool(slots_detail=(), slots=NOT_OFFERED)) is None


# --- Unknowns -----------------------------------------------------------------------------------------------------------------------


def test_unknowns_stand_together_by_what_is_to_be_done():
    groups = unknown_groups(
        [
            Named("slots_busy", NO_SLOTS),
            Named("requests_waiting", UNTOLD),
            Named("kv headroom", from_unknown(NO_SLOTS)),
            *(Named(name, NO_SLOTS, slot=number) for number in (0, 1, 2, 5) for name in ("busy", "used_tokens")),
        ]
    )
    assert [(group.remedy, group.lines) for group in groups] == [
        (NO_SLOTS.detail, [("unknown (endpoint_disabled)", ["slots_busy, kv headroom", "busy, used_tokens of slots 0 to 2, 5"])]),
        (UNTOLD.detail, [("unknown (endpoint_disabled), 3 to 9", ["requests_waiting"])]),
    ]


def test_what_several_pools_lack_names_them():
    groups = unknown_groups([Named("slots_busy", NO_SLOTS, pool="a"), Named("slots_busy", NO_SLOTS, pool="b"), Named("busy", NO_SLOTS, pool="b", slot=1)])
    assert groups[0].lines == [("unknown (endpoint_disabled)", ["slots_busy of pool a, pool b", "busy of slot 1 of pool b"])]


@pytest.mark.parametrize(("numbers", "told"), [([], ""), ([3], "slot 3"), ([1, 0], "slots 0 to 1"), ([7, 0, 1, 2], "slots 0 to 2, 7")])
def test_numbers_that_follow_one_another_are_a_range(numbers, told):
    assert ranges("slot", numbers) == told


def test_brackets_at_the_end_of_a_remedy_are_no_reason():
    unknown = Unknown(Reason.DERIVED_FROM_UNKNOWN, "give the size (in tokens)")
    assert remedy(unknown) == unknown.detail


def test_every_unknown_of_a_target_is_in_a_group_and_nothing_that_is_not_offered():
    shown = view(entry(snapshot(memory=Memory(used_bytes=NO_SLOTS))), NOW)
    told = [name for group in shown.unknowns for _, names in group.lines for name in names]
    assert "requests_waiting" in told
    assert "memory_used_bytes" in " ".join(told)
    assert "busy, context_tokens, used_tokens, reclaimable_tokens of slot 1" in told
    assert "preemptions_total" not in " ".join(told)


# --- Targets ------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "told"),
    [
        (alert(AlertState.FIRING), "firing for 2 min"),
        (alert(AlertState.FIRING, held=True), "firing for 2 min, held: what it watches is unknown now"),
        (alert(AlertState.PENDING), "pending for 2 min"),
        (alert(AlertState.UNKNOWN), "unknown for 2 min"),
    ],
)
def test_an_alert_is_told_in_words(status, told):
    (seen,) = view(entry(snapshot(), alerts=[status]), NOW).alerts
    assert (seen.told, seen.subject, seen.detail) == (told, "pool 0, kv", "kv headroom 9%")


def test_alerts_that_fire_come_first_and_those_that_are_ok_are_counted():
    seen = view(entry(snapshot(), alerts=[alert(state) for state in AlertState]), NOW)
    assert [one.state for one in seen.alerts] == [AlertState.FIRING, AlertState.PENDING, AlertState.UNKNOWN]
    assert seen.alerts_ok == 1


@pytest.mark.parametrize(
    ("status", "urgency"),
    [
        (alert(AlertState.FIRING, "critical"), Level.CRITICAL),
        (alert(AlertState.FIRING), Level.WARNING),
        (alert(AlertState.PENDING, "critical"), Level.OK),
        (alert(AlertState.UNKNOWN, "critical"), Level.OK),
    ],
)
def test_only_an_alert_that_fires_makes_a_target_urgent(status, urgency):
    seen = view(entry(snapshot(), alerts=[status]), NOW)
    assert (seen.level, seen.urgency) == (Level.OK, urgency)


def test_an_alert_of_a_target_that_was_never_polled_is_shown():
    made = board(unpolled=["chat"])
    made.put_alerts("chat", (alert(AlertState.FIRING, "critical"),))
    seen = view(made.entries()[0], NOW)
    assert (seen.state, seen.urgency, len(seen.alerts)) == ("not polled yet", Level.CRITICAL, 1)


@pytest.mark.parametrize("step", [-3600.0, 0.0, 86400.0])
def test_a_wall_clock_that_is_set_ages_nothing(step):
    polled = replace(entry(snapshot(at=NOW)), seen_at=100.0)
    assert now_of(polled, monotonic=107.0, wall=NOW + 7 + step) == NOW + 7


def test_before_the_first_poll_there_is_only_the_wall_clock():
    assert now_of(Entry(entry(snapshot()).info), monotonic=107.0, wall=NOW) == NOW


def test_a_fault_that_is_the_state_s_own_sentence_is_told_once():
    down = snapshot(state=State.UNREACHABLE)
    faults = tuple(replace(fault, detail=down.state_detail) for fault in snapshot().faults)
    seen = view(entry(replace(down, faults=faults)), NOW)
    assert (seen.detail, list(seen.faults)) == ("the server is unreachable", [])


@pytest.mark.parametrize(
    ("layouts", "told"),
    [
        ([Paged(512, 16, 1, 4, 4096)], ["paged: 512 blocks of 16 tokens, 1 reserved"]),
        ([Paged(512, 16, 1, 4, 4096, groups=2)], ["paged: 512 blocks of 16 tokens, 1 reserved, several groups"]),
        ([Paged(512, 16, 1, 4, 4096, 2, blocks_of) for blocks_of in (abs, int)], ["paged: 512 blocks of 16 tokens, 1 reserved, several groups"]),
        (
            [Split(4, 1024), Shared(4, 4096, 4096)],
            ["split: 4 slots with 1,024 tokens each", "shared: 4 slots on one pool of 4,096 tokens, at most 4,096 a request"],
        ),
    ],
)
def test_layouts_are_told_in_words_each_once_and_without_a_number_of_groups_that_nobody_knows(layouts, told):
    (seen,) = view(entry(snapshot(pools=(pool(layouts=tuple(layouts)),))), NOW).pools
    assert seen.layouts == told


# --- Fleet --------------------------------------------------------------------------------------------------------------------------


def test_the_worst_level_comes_first_and_within_it_the_least_headroom():
    def of(name, used, **fields):
        return snapshot(name, pools=(pool(kv_used_tokens=used),), **fields)

    made = board(
        *(of("roomy", known(100)), of("ok", known(3000)), of("dark", NO_SLOTS), of("low", known(3700)), of("full", known(4000)), of("fuller", known(4050))),
        snapshot("down", State.UNREACHABLE),
        snapshot("asleep", State.SLEEPING, pools=()),
    )
    seen = fleet(view(one, NOW) for one in made.entries())
    assert [target.name for target in seen.targets] == ["down", "fuller", "full", "low", "dark", "ok", "roomy", "asleep"]
    assert list(seen.levels.items()) == [(Level.CRITICAL, 3), (Level.WARNING, 1), (Level.UNKNOWN, 1), (Level.OK, 3)]
    assert seen.summary == "3 critical, 1 warning, 1 unknown, 3 ok"


def test_alerts_that_fire_anywhere_are_gathered_critical_first():
    seen = fleet(view(one, NOW) for one in gallery(NOW).entries())
    assert [(target.name, one.severity) for target, one in seen.firing] == [("down", "critical"), ("nearly-full", "critical"), ("batch", "warning")]


def test_a_fleet_of_nothing_has_nothing_wrong():
    assert (fleet([]).level, fleet([]).summary) == (Level.OK, "no targets")


def test_the_pool_that_stands_for_a_target_is_the_fullest_that_is_known():
    pools = [pool(id=name, kv_used_tokens=used) for name, used in (("dark", NO_SLOTS), ("roomy", known(10)), ("full", known(4000)))]
    assert view(entry(snapshot(pools=tuple(pools))), NOW).tightest.id == "full"
    assert view(entry(snapshot(pools=tuple(pools[:1]))), NOW).tightest.id == "dark"
    assert view(entry(snapshot(pools=())), NOW).tightest is None
