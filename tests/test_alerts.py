"""Alerts: bad fires after its time, good resolves after its time, unknown does neither."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes import known, snapshot, unknown
from inspector.alerts import catalogue
from inspector.alerts.alerts import Alerts
from inspector.alerts.conditions import Key
from inspector.alerts.machine import Signal, Timing, Track, step, unseen
from inspector.alerts.status import AlertState
from inspector.budget import Shape
from inspector.judge import Rules, Threshold, assess
from inspector.layout import Shared, Split
from inspector.model import Fault, Memory, Pool, Slot, State
from inspector.reading import NOT_OFFERED, Reason

OK, PENDING, FIRING, UNKNOWN = AlertState.OK, AlertState.PENDING, AlertState.FIRING, AlertState.UNKNOWN
TIMING = Timing(before_firing=60, before_resolving=120, before_unknown=600)
KV = Key("InspectorKvHeadroomLow", "warning", "0", "kv")
KV_CRITICAL = replace(KV, severity="critical")
KV_UNKNOWN = Key("InspectorHeadroomUnknown", "warning", "0", "kv")


def pool(used=100, capacity=1000, **fields):
    given_ = {
        "slots": known(2),
        "slots_busy": known(1),
        "requests_waiting": known(0),
        "kv_used_tokens": known(used) if isinstance(used, int) else used,
        "layouts": (Shared(2, capacity, capacity),),
    }
    return Pool(**given_ | fields)


LOST = pool(unknown(Reason.ENDPOINT_DISABLED))
"""What a llama.cpp server shows whose `/slots` is not answered."""


class Watch:
    """Alerts of one target under a clock that the test moves, a look every five seconds."""

    def __init__(self, rules: Rules | None = None, timing: Timing = TIMING) -> None:
        self.rules = rules or Rules()
        self.alerts = Alerts(timing)
        self.now = 0.0
        self.polls = 0
        self.changes = []

    def look(self, *pools, seconds=5, state=State.READY, stale=False, **fields):
        """Looks until `seconds` have passed; the statuses by key."""
        seen = snapshot(*pools, state=state, **fields)
        for _ in range(max(1, seconds // 5)):
            self.now += 5
            self.polls += 1
            at = 1_000_000 + self.now
            found, changes = self.alerts.look("chat", seen, assess(seen, self.rules), stale=stale, now=self.now, at=at, polls=self.polls)
            self.changes += [(c.status.alert, c.status.severity, c.before, c.status.state) for c in changes]
        return {Key(s.alert, s.severity, s.pool, s.resource, s.session): s for s in found}


def fired(watch, alert="InspectorKvHeadroomLow"):
    """How often an alert began to fire, and how often it ended."""
    began = sum(name == alert and state is FIRING for name, _, _, state in watch.changes)
    return began, sum(name == alert and before is FIRING for name, _, before, _ in watch.changes)


# --- Time -------------------------------------------------------------------------------------------------------------------------------


def test_bad_fires_after_its_time_and_good_resolves_after_its_own():
    watch = Watch()
    assert watch.look(pool(100))[KV].state is OK
    assert watch.look(pool(900), seconds=60)[KV].state is PENDING
    assert watch.look(pool(900), seconds=10)[KV].state is FIRING
    assert watch.look(pool(100), seconds=120)[KV].state is FIRING
    assert watch.look(pool(100), seconds=10)[KV].state is OK


def test_what_is_good_again_before_its_time_never_fires():
    watch = Watch()
    for _ in range(20):
        watch.look(pool(990), seconds=45)
        assert watch.look(pool(100))[KV].state is OK
    assert fired(watch) == (0, 0)


def test_a_value_that_dances_on_the_mark_fires_once():
    """Just above the mark is not good enough to resolve: neither by value nor by time."""
    watch = Watch()
    for used in [860] * 20 + [845, 860] * 30 + [840] * 60:
        watch.look(pool(used))
    assert fired(watch) == (1, 0)
    watch.look(pool(820), seconds=150)
    assert fired(watch) == (1, 1)


def test_an_alert_that_fires_on_says_why_though_all_looks_well():
    """Between good again and resolved, the value alone would look like a mistake."""
    watch = Watch()
    assert watch.look(pool(900), seconds=100)[KV].detail == "kv headroom 10%; wanted: at least 15%"
    assert watch.look(pool(840))[KV].detail == "kv headroom 16%; wanted: at least 15% (almost good again)"
    assert watch.look(pool(100))[KV].detail == "kv headroom 90%; wanted: at least 15% (good again, and ends once that has lasted)"


@given(st.floats(0.001, 1))
def test_every_mark_can_be_cleared(mark):
    """An idle server resolves whatever fires, however high its mark."""
    watch = Watch(Rules({"kv": Threshold(warning=mark)}))
    watch.look(pool(1000), seconds=100)
    assert watch.look(pool(0), seconds=200)[KV].state is OK


def test_each_mark_is_an_alert_of_its_own():
    found = Watch().look(pool(900), seconds=100)
    assert (found[KV].state, found[KV_CRITICAL].state) == (FIRING, OK)
    found = Watch().look(pool(960), seconds=100)
    assert (found[KV].state, found[KV_CRITICAL].state) == (FIRING, FIRING)


# --- Unknown ----------------------------------------------------------------------------------------------------------------------------


def test_an_unknown_neither_resolves_nor_fires_anew_and_is_told_after_its_delay():
    watch = Watch()
    watch.look(pool(900), seconds=100)
    found = watch.look(LOST, seconds=595)
    assert (found[KV].state, found[KV].held) == (FIRING, True)
    assert found[KV_UNKNOWN].state is PENDING
    assert watch.look(LOST, seconds=10)[KV_UNKNOWN].state is FIRING
    assert fired(watch) == (1, 0)
    found = watch.look(pool(100), seconds=200)
    assert (found[KV].state, found[KV_UNKNOWN].state) == (OK, OK)


def test_an_unknown_alone_never_fires_a_headroom_alert():
    found = Watch().look(LOST, seconds=6000)
    assert (found[KV].state, found[KV_CRITICAL].state, found[KV_UNKNOWN].state) == (UNKNOWN, UNKNOWN, FIRING)


def test_unknown_time_does_not_count_as_bad():
    """Bad for 30 s, unknown for an hour, bad for 20 s: bad was seen for less than a minute."""
    watch = Watch()
    watch.look(pool(900), seconds=30)
    assert watch.look(LOST, seconds=3600)[KV].state is PENDING
    assert watch.look(pool(900), seconds=20)[KV].state is PENDING
    assert watch.look(pool(900), seconds=30)[KV].state is FIRING


def test_unknown_time_does_not_count_as_good():
    watch = Watch()
    watch.look(pool(900), seconds=100)
    watch.look(pool(100), seconds=60)
    assert watch.look(LOST, seconds=3600)[KV].state is FIRING
    assert watch.look(pool(100), seconds=30)[KV].state is FIRING
    assert watch.look(pool(100), seconds=100)[KV].state is OK


@pytest.mark.parametrize(
    ("used", "states"),
    [(990, (FIRING, UNKNOWN)), (100, (OK, OK)), (300, (UNKNOWN, FIRING))],
)
def test_with_bounds_it_is_low_ok_or_undecided(used, states):
    """The layout is unknown: 400 tokens at least, 1000 at most, so only 990 used is low for sure and only 100 is surely not."""
    seen = pool(used, slots_busy=known(2), layouts=(Shared(2, 400, 400), Shared(2, 1000, 1000)))
    watch = Watch(Rules({"kv": Threshold(warning=0.3)}))
    found = watch.look(seen, seconds=700)
    expected = (states[0], FIRING if states[0] is UNKNOWN else OK)
    assert (found[KV].state, found[KV_UNKNOWN].state) == expected


def test_undecided_holds_what_fires():
    watch = Watch(Rules({"kv": Threshold(warning=0.3)}))
    watch.look(pool(990), seconds=100)
    found = watch.look(pool(300, layouts=(Shared(2, 400, 400), Shared(2, 1000, 1000))), seconds=6000)
    assert (found[KV].state, found[KV].held) == (FIRING, True)


def test_time_in_which_nobody_looked_counts_for_nothing():
    """The machine slept for an hour: that it was bad before and after says nothing of the time between."""
    watch = Watch()
    watch.look(pool(900))
    watch.now += 3600
    assert watch.look(pool(900))[KV].state is PENDING
    watch.look(pool(900), seconds=60)
    watch.look(pool(100))
    watch.now += 3600
    assert watch.look(pool(100))[KV].state is FIRING


signals = st.lists(st.sampled_from(Signal), max_size=60)


def walk(track: Track, signals_, **timing) -> list[Track]:
    seen = []
    for signal in signals_:
        track = step(track, signal, elapsed=10, at=0, **timing)
        seen.append(track)
    return seen


@given(signals, st.sampled_from([0, 5, 30, 100]), st.sampled_from([0, 5, 30, 100]))
def test_a_step_on_an_unknown_never_fires_resolves_or_moves_a_clock(given_signals, before_firing, before_resolving):
    track = unseen(0)
    for signal in given_signals:
        stepped = step(track, signal, elapsed=10, at=0, before_firing=before_firing, before_resolving=before_resolving)
        if signal is Signal.UNKNOWN:
            assert stepped.run == track.run
            assert stepped.state is (track.state if track.state in (PENDING, FIRING) else UNKNOWN)
        assert stepped.state is not FIRING or track.state is FIRING or signal is Signal.BAD
        assert track.state is not FIRING or stepped.state is FIRING or signal is Signal.GOOD
        track = stepped


@given(signals, signals)
def test_unknowns_in_between_never_make_an_alert_fire_sooner(before, after):
    """The same signals with and without an unknown after each: the one with more unknowns has not fired more."""
    plain = walk(unseen(0), before + after, before_firing=30, before_resolving=30)
    dotted = walk(unseen(0), [s for signal in before + after for s in (signal, Signal.UNKNOWN)], before_firing=30, before_resolving=30)
    if not any(track.state is FIRING for track in plain):
        assert not any(track.state is FIRING for track in dotted)


@given(st.lists(st.tuples(st.sampled_from(Signal), st.integers(1, 4000)), max_size=30))
def test_time_counts_only_after_a_look_that_said_the_same(looks):
    """What was between two looks nobody knows, unless both found the same; of one that could not tell, the time before it is nobody's."""
    track, counted, decided = unseen(0), 0, None
    for signal, elapsed in looks:
        same, before = signal is decided, track.state
        track = step(track, signal, elapsed=elapsed, at=0, before_firing=60, before_resolving=120)
        counted += elapsed if same else 0
        decided = decided if signal is Signal.UNKNOWN else signal
        assert track.state is before or not (track.state is FIRING or before is FIRING) or same
        assert track.run <= counted


def test_a_server_that_answers_every_other_time_is_heard():
    """One that is overloaded answers late. It is bad whenever it can be seen: half of the time counts."""
    watch = Watch()
    for _ in range(12):
        watch.look(pool(900))
        assert watch.look(LOST)[KV].state is PENDING
    for _ in range(2):
        watch.look(pool(900))
        watch.look(LOST)
    assert watch.look(LOST)[KV].state is FIRING


# --- The target as a whole --------------------------------------------------------------------------------------------------------------

DOWN = Key("InspectorTargetDown", "critical", "", "reachability")
STALLED = Key("InspectorTargetStalled", "critical", "", "progress")
STATE_UNKNOWN = Key("InspectorHeadroomUnknown", "warning", "", "state")


@pytest.mark.parametrize(
    ("state", "down", "stalled", "undecided"),
    [
        (State.READY, OK, OK, OK),
        (State.SLEEPING, OK, OK, OK),
        (State.LOADING, OK, OK, FIRING),
        (State.STALLED, OK, FIRING, OK),
        (State.UNREACHABLE, FIRING, UNKNOWN, OK),
        (State.UNAUTHORIZED, OK, UNKNOWN, FIRING),
        (State.NOT_RECOGNIZED, OK, UNKNOWN, FIRING),
    ],
)
def test_each_state_of_a_target_is_its_alert(state, down, stalled, undecided):
    found = Watch().look(state=state, seconds=700)
    assert (found[DOWN].state, found[STALLED].state, found[STATE_UNKNOWN].state) == (down, stalled, undecided)


@pytest.mark.parametrize("state", [s for s in State if s is not State.READY])
def test_no_state_but_ready_resolves_or_fires_a_headroom_alert(state):
    """The facts of a process die with it; what fired is held until the next one is measured."""
    watch = Watch()
    watch.look(pool(900), seconds=100)
    found = watch.look(state=state, seconds=6000)
    assert (found[KV].state, found[KV].held) == (FIRING, True)
    assert watch.look(pool(100), seconds=200, generation=7)[KV].state is OK


def test_a_stale_board_decides_nothing():
    watch = Watch()
    watch.look(pool(900), seconds=100)
    found = watch.look(pool(100), seconds=700, stale=True)
    assert (found[KV].state, found[KV].held, found[KV_CRITICAL].state) == (FIRING, True, UNKNOWN)
    assert (found[DOWN].state, found[STATE_UNKNOWN].state) == (UNKNOWN, FIRING)


def test_a_target_that_was_never_polled_has_nothing_but_unknowns():
    alerts = Alerts(TIMING)
    found, _ = alerts.look("chat", None, None, stale=False, now=0, at=0)
    assert {status.state for status in found} <= {UNKNOWN, PENDING}


def test_a_removed_target_resolves_what_fired_and_forgets_the_rest():
    watch = Watch()
    watch.look(pool(960), seconds=100)
    ended = watch.alerts.keep(["other"], at=5)
    assert {(c.status.alert, c.status.severity, c.before, c.status.state) for c in ended} == {
        ("InspectorKvHeadroomLow", severity, FIRING, OK) for severity in ("warning", "critical")
    }
    assert list(watch.alerts.firing()) == []
    assert watch.alerts.keep(["other"], at=5) == []


def test_a_pool_that_a_ready_server_no_longer_shows_has_gone_with_its_alerts():
    """Two models on a router, one is unloaded. With a fault in the poll the pool may only be out of sight."""
    watch = Watch()
    watch.look(pool(900), pool(100, id="b"), seconds=100)
    out_of_sight = watch.look(pool(100, id="b"), seconds=900, faults=(Fault("/metrics", "timeout", "late"),))
    assert out_of_sight[KV].state is FIRING
    assert KV not in watch.look(pool(100, id="b"), seconds=900)


def test_a_threshold_that_was_taken_away_resolves():
    watch = Watch()
    watch.look(pool(900), seconds=100)
    watch.rules = Rules({"kv": Threshold(critical=0.05)})
    assert KV not in watch.look(pool(900), seconds=200)
    assert fired(watch) == (1, 1)


# --- Queue, preemptions, exhaustions ---------------------------------------------------------------------------------------------------

QUEUE = Key("InspectorSlotsExhausted", "warning", "0", "queue")
EXHAUSTION = Key("InspectorKvExhaustion", "critical", "0", "kv_exhaustions")
PREEMPTIONS = Key("InspectorPreemptions", "warning", "0", "preemptions")


@pytest.mark.parametrize(
    ("busy", "waiting", "slots", "state"),
    [
        (known(2), known(3), known(2), FIRING),
        (known(2), known(0), known(2), OK),
        (known(1), known(3), known(2), OK),
        (known(2), unknown(), known(2), UNKNOWN),
        (unknown(), known(3), known(2), UNKNOWN),
        (known(2), known(3), unknown(), UNKNOWN),
        (unknown(), known(0), unknown(), OK),
    ],
)
def test_a_queue_is_an_alert_only_while_every_slot_is_busy(busy, waiting, slots, state):
    found = Watch().look(pool(slots=slots, slots_busy=busy, requests_waiting=waiting), seconds=300)
    assert found[QUEUE].state is state


def test_an_engine_that_shows_no_queue_has_no_alert_about_one():
    assert QUEUE not in Watch().look(pool(requests_waiting=NOT_OFFERED))


def test_killed_requests_fire_at_once_and_resolve_when_none_was_killed_for_long():
    watch = Watch()
    assert watch.look(pool(kv_exhaustions_total=known(4)))[EXHAUSTION].state is OK
    assert watch.look(pool(kv_exhaustions_total=known(5)))[EXHAUSTION].state is FIRING
    assert watch.look(pool(kv_exhaustions_total=known(5)), seconds=590)[EXHAUSTION].state is FIRING
    assert watch.look(pool(kv_exhaustions_total=known(5)), seconds=140)[EXHAUSTION].state is OK


def test_what_happened_before_we_looked_is_no_news():
    assert Watch().look(pool(kv_exhaustions_total=known(9), preemptions_total=known(70)), seconds=3000)[EXHAUSTION].state is OK


def test_a_new_process_counts_from_zero():
    watch = Watch()
    watch.look(pool(kv_exhaustions_total=known(5)), generation=1)
    assert watch.look(pool(kv_exhaustions_total=known(0)), generation=2)[EXHAUSTION].state is OK
    assert watch.look(pool(kv_exhaustions_total=known(5)), generation=3)[EXHAUSTION].state is FIRING


@pytest.mark.parametrize("former", [0, 4, 7, 900])
@pytest.mark.parametrize("count", [1, 5, 6])
def test_whatever_a_new_process_has_counted_is_news(former, count):
    """It began at zero, however far the former one had come."""
    watch = Watch()
    watch.look(pool(kv_exhaustions_total=known(former)), seconds=900)
    assert watch.look(pool(kv_exhaustions_total=known(count)))[EXHAUSTION].state is FIRING


@pytest.mark.parametrize("generation", [1, 5])
def test_a_refused_connection_alone_makes_no_news_of_an_old_count(generation):
    """The collector takes it for a new process where it cannot see one; the counter stands where it stood."""
    watch = Watch()
    watch.look(pool(kv_exhaustions_total=known(5)), generation=4, seconds=900)
    assert watch.look(pool(kv_exhaustions_total=known(5)), generation=generation)[EXHAUSTION].state is OK


def test_a_target_that_was_begun_anew_may_be_another_server():
    """What that one had counted before is as old as anything that happened before we looked."""
    watch = Watch()
    watch.look(pool(kv_exhaustions_total=known(5)), seconds=900)
    watch.polls = 0
    assert watch.look(pool(kv_exhaustions_total=known(70)))[EXHAUSTION].state is OK
    assert watch.look(pool(kv_exhaustions_total=known(71)))[EXHAUSTION].state is FIRING


def test_what_was_killed_while_the_counter_was_out_of_sight_is_told_when_it_is_back():
    watch = Watch()
    watch.look(pool(kv_exhaustions_total=known(5)))
    assert watch.look(pool(kv_exhaustions_total=unknown()), seconds=6000)[EXHAUSTION].state is UNKNOWN
    assert watch.look(pool(kv_exhaustions_total=known(6)))[EXHAUSTION].state is FIRING


def test_preemptions_fire_only_when_they_go_on():
    watch = Watch()
    for count in range(3):
        watch.look(pool(preemptions_total=known(count)))
    assert watch.look(pool(preemptions_total=known(3)), seconds=2000)[PREEMPTIONS].state is OK
    for count in range(3, 16):
        found = watch.look(pool(preemptions_total=known(count)), seconds=60)
    assert found[PREEMPTIONS].state is FIRING


def test_an_unreadable_counter_does_not_end_preemptions():
    watch = Watch()
    for count in range(14):
        watch.look(pool(preemptions_total=known(count)), seconds=60)
    found = watch.look(pool(preemptions_total=unknown()), seconds=6000)
    assert (found[PREEMPTIONS].state, found[PREEMPTIONS].held) == (FIRING, True)


# --- What is configured ----------------------------------------------------------------------------------------------------------------


def test_sessions_slots_context_and_memory_have_alerts_where_they_have_thresholds():
    rules = Rules(
        {"slots": Threshold(0.6), "memory": Threshold(0.15), "context": Threshold(0.2)},
        {"chat": Shape(400, 101)},
        {"chat": Threshold(2, 1)},
    )
    watch = Watch(rules)
    memory = Memory(ceiling_bytes=known(100), used_bytes=known(99))
    found = watch.look(pool(900, layouts=(Split(2, 1000),)), memory=memory, seconds=100)
    states = {(k.alert, k.severity, k.session): s.state for k, s in found.items()}
    assert states["InspectorSlotsHeadroomLow", "warning", ""] is FIRING
    assert states["InspectorMemoryHeadroomLow", "warning", ""] is FIRING
    assert states["InspectorSessionHeadroomLow", "warning", "chat"] is FIRING
    assert states["InspectorSessionHeadroomLow", "critical", "chat"] is OK


def test_a_lost_slots_endpoint_does_not_resolve_a_context_alert():
    """The sessions are out of sight, which is not the same as gone."""
    rules = Rules({"context": Threshold(warning=0.5)})
    context = Key("InspectorContextHeadroomLow", "warning", "0", "context")
    full = pool(900, slots_detail=(Slot(0, known(True), known(1000), known(900)), Slot(1, known(False), known(1000))))
    watch = Watch(rules)
    assert watch.look(full, seconds=100)[context].state is FIRING
    assert watch.look(pool(unknown(), slots_busy=unknown()), seconds=6000)[context].state is FIRING
    assert watch.look(pool(unknown(), slots_busy=known(1)), seconds=6000)[context].state is FIRING, "the count came from elsewhere"
    assert context not in watch.look(pool(0, slots_busy=known(0)), seconds=200)


def test_without_a_threshold_there_is_no_alert():
    assert {key.alert for key in Watch(Rules({})).look(pool(999), seconds=100)} == {
        "InspectorTargetDown",
        "InspectorTargetStalled",
        "InspectorHeadroomUnknown",
        "InspectorSlotsExhausted",
    }


# --- A daemon that was started anew -----------------------------------------------------------------------------------------------------


def test_nothing_is_resolved_before_it_was_measured():
    """An alert of an earlier process fires on, through loading and unknowns, until it was good for its time."""
    watch = Watch()
    watch.look(state=State.LOADING)
    watch.alerts.adopt("chat", KV, started=500)
    found = watch.look(state=State.LOADING, seconds=900)
    assert (found[KV].state, found[KV].since, found[KV].held) == (FIRING, 500, True)
    assert watch.look(LOST, seconds=900)[KV].state is FIRING
    assert watch.look(pool(100), seconds=100)[KV].state is FIRING
    assert watch.look(pool(100), seconds=30)[KV].state is OK


def test_an_adopted_alert_about_a_counter_is_held_until_its_window_was_watched():
    watch = Watch()
    watch.look(pool(kv_exhaustions_total=known(5)))
    watch.alerts.adopt("chat", EXHAUSTION, started=500)
    assert watch.look(pool(kv_exhaustions_total=known(5)), seconds=580)[EXHAUSTION].state is FIRING
    assert watch.look(pool(kv_exhaustions_total=known(5)), seconds=160)[EXHAUSTION].state is OK


def test_the_catalogue_is_whole():
    assert len({kind.name for kind in catalogue.KINDS}) == len(catalogue.KINDS)
    assert set(catalogue.OF_RESOURCE) == {"kv", "memory", "slots", "context", "sessions"}
    for kind in catalogue.KINDS:
        assert kind.summary
        assert not kind.summary.endswith(".")
