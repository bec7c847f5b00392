"""Verdicts: a threshold over headroom with bounds, and the state of a target that is not ready."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes import known, snapshot, unknown
from inspector.budget import Shape
from inspector.judge import DEFAULT_THRESHOLDS, Level, Rules, Threshold, assess, compare, worst
from inspector.layout import Shared, Span, Split
from inspector.model import Memory, Pool, Slot, State
from inspector.reading import Reason

BOTH = Threshold(warning=0.15, critical=0.05)
shares = st.floats(0, 1)


@pytest.mark.parametrize(
    ("guaranteed", "possible", "threshold", "level"),
    [
        (0.5, 0.5, BOTH, "ok"),
        (0.15, 0.15, BOTH, "ok"),
        (0.1499, 0.1499, BOTH, "warning"),
        (0.05, 0.05, BOTH, "warning"),
        (0.0499, 0.0499, BOTH, "critical"),
        (0.0, 0.0, BOTH, "critical"),
        (0.2, 0.9, BOTH, "ok"),
        (0.1, 0.9, BOTH, "unknown"),
        (0.0, 1.0, BOTH, "unknown"),
        (0.01, 0.15, BOTH, "unknown"),
        (0.01, 0.1, BOTH, "warning"),
        (0.06, 0.1, BOTH, "warning"),
        (0.01, 0.04, BOTH, "critical"),
        (0.1, 0.2, Threshold(critical=0.05), "ok"),
        (0.01, 0.2, Threshold(critical=0.05), "unknown"),
        (0.01, 0.2, Threshold(warning=0.3), "warning"),
        (0.0, 0.0, Threshold(), "ok"),
    ],
)
def test_a_headroom_is_low_fine_or_undecided(guaranteed, possible, threshold, level):
    """Low only when even the possible headroom is below; fine only when the guaranteed one is not."""
    assert compare(Span(guaranteed, possible), threshold) == level


def test_an_unknown_headroom_is_neither_low_nor_fine():
    assert compare(unknown(), BOTH) is Level.UNKNOWN


@given(shares, shares, shares, shares)
def test_a_verdict_holds_for_every_value_between_the_bounds(a, b, c, fraction):
    """What is decided over bounds is what an exact measurement between them would give; a warning may be worse in truth, never better."""
    low, high = sorted((a, b))
    threshold = Threshold(warning=max(c, 0.05), critical=min(c, 0.05))
    said = compare(Span(low, high), threshold)
    truth = low + (high - low) * fraction
    exact = compare(Span(truth, truth), threshold)
    allowed = {Level.OK: {Level.OK}, Level.WARNING: {Level.WARNING, Level.CRITICAL}, Level.CRITICAL: {Level.CRITICAL}, Level.UNKNOWN: set(Level)}
    assert exact in allowed[said]


@given(shares, st.sampled_from([BOTH, Threshold(0.3), Threshold(None, 0.2)]))
def test_an_exact_headroom_is_always_decided(share, threshold):
    assert compare(Span(share, share), threshold) is not Level.UNKNOWN


def test_exit_codes_are_those_of_a_nagios_plug_in():
    assert {level.value: level.exit_code for level in Level} == {"ok": 0, "warning": 1, "critical": 2, "unknown": 3}


def test_critical_outranks_warning_outranks_unknown_outranks_fine():
    """Exit codes of several targets: 2 over 1 over 3 over 0."""
    order = [Level.CRITICAL, Level.WARNING, Level.UNKNOWN, Level.OK]
    for several in itertools.permutations(Level, 3):
        assert worst(list(several)) is min(several, key=order.index)
    assert worst([]) is Level.OK


@pytest.mark.parametrize(
    ("state", "exit_code"),
    [("loading", 3), ("sleeping", 0), ("stalled", 2), ("unauthorized", 3), ("not_recognized", 3), ("unreachable", 2)],
)
def test_a_target_that_is_not_ready_is_judged_by_its_state_alone(state, exit_code):
    """Even where a headroom of it were low: its live facts are not there."""
    full = Pool(slots=known(1), slots_busy=known(1), kv_used_tokens=known(100), requests_waiting=known(9), layouts=(Shared(1, 100, 100),))
    found = assess(snapshot(full, state=State(state), state_detail="why it is so"))
    assert found.level.exit_code == exit_code
    assert [f.detail for f in found.findings] == ["why it is so"]


def pool(used=100, busy=1, waiting=None) -> Pool:
    reading = lambda value: known(value) if isinstance(value, int) else value  # noqa: E731
    facts = {"slots": known(4), "slots_busy": reading(busy), "kv_used_tokens": reading(used), "layouts": (Shared(4, 1000, 1000),)}
    return Pool(**facts) if waiting is None else Pool(requests_waiting=reading(waiting), **facts)


@pytest.mark.parametrize(("used", "level"), [(0, "ok"), (850, "ok"), (851, "warning"), (951, "critical"), (1000, "critical")])
def test_the_default_thresholds_of_the_cache(used, level):
    assert assess(snapshot(pool(used))).level == level


@pytest.mark.parametrize(("used", "level"), [(850, "ok"), (900, "warning"), (990, "critical")])
def test_the_default_thresholds_of_memory(used, level):
    memory = Memory(ceiling_bytes=known(1000), used_bytes=known(used))
    assert assess(snapshot(memory=memory)).level == level


def test_slots_and_context_are_judged_only_when_asked():
    full = pool(busy=4)
    assert assess(snapshot(full)).level is Level.OK
    assert assess(snapshot(full), Rules(thresholds={**DEFAULT_THRESHOLDS, "slots": Threshold(0.25)})).level is Level.WARNING


def test_an_unknown_that_has_a_threshold_is_unknown_and_names_the_remedy():
    found = assess(snapshot(pool(unknown(Reason.ENDPOINT_DISABLED, "start llama-server with --slots"))))
    assert found.level is Level.UNKNOWN
    assert any("start llama-server with --slots" in f.detail for f in found.findings)


def test_an_unknown_without_a_threshold_changes_no_verdict():
    """Slots are not judged by default; that they are unknown is nobody's exit code."""
    assert assess(snapshot(pool(busy=unknown()))).level is Level.OK


def test_a_resource_that_the_engine_does_not_show_is_no_unknown():
    assert assess(snapshot(Pool())).level is Level.OK


def test_bounds_on_both_sides_of_a_threshold_leave_it_undecided():
    found = assess(snapshot(replace(pool(900), layouts=(Shared(4, 1000, 1000), Split(4, 1000)))))
    assert found.level is Level.UNKNOWN, "shared leaves 10 %, split 75 %"


@pytest.mark.parametrize(
    ("busy", "waiting", "level"),
    [
        (4, 3, "warning"),
        (4, 0, "ok"),
        (3, 3, "ok"),
        (4, unknown(), "ok"),
        (unknown(), 3, "ok"),
    ],
)
def test_a_queue_before_full_slots_is_a_warning_and_an_unknown_queue_is_none(busy, waiting, level):
    """No alert fires on an unknown."""
    assert assess(snapshot(pool(busy=busy, waiting=waiting))).level == level


def test_the_worst_pool_is_the_targets_verdict_and_each_is_named():
    found = assess(snapshot(pool(100), replace(pool(990), id="other")))
    assert found.level is Level.CRITICAL
    assert {f.pool: f.level for f in found.findings if f.resource == "kv"} == {"0": Level.OK, "other": Level.CRITICAL}


SHORT = {"short": Shape(200, 51)}
"""Keeps 250 tokens: four of it fill a pool of 1000."""


@pytest.mark.parametrize(("limit", "level"), [(2, "ok"), (3, "ok"), (4, "warning")])
def test_sessions_that_still_fit_are_judged_when_asked(limit, level):
    """100 of 1000 tokens are used by a session that can grow no further."""
    ended = replace(pool(100), slots_detail=(Slot(0, known(True), known(1000), known(100), growth_tokens=known(0)),))
    found = assess(snapshot(ended), Rules(shapes=SHORT, sessions={"short": Threshold(warning=limit)}))
    assert {f.resource: f.level for f in found.findings}["sessions short"] == level


def test_a_session_that_may_still_grow_leaves_it_undecided():
    """Its growth is not told: it may take the whole pool, or end with the next token."""
    found = assess(snapshot(pool(100)), Rules(shapes=SHORT, sessions={"short": Threshold(warning=2)}))
    assert {f.resource: f.level for f in found.findings}["sessions short"] is Level.UNKNOWN


def test_a_threshold_above_what_an_empty_server_holds_is_told_and_not_judged():
    found = assess(snapshot(pool(0, busy=0)), Rules(shapes=SHORT, sessions={"short": Threshold(warning=5)}))
    (finding,) = [f for f in found.findings if f.resource == "sessions short"]
    assert finding.level is Level.UNKNOWN
    assert "lower it" in finding.detail


def test_sessions_without_a_threshold_change_no_verdict():
    found = assess(snapshot(pool(840)), Rules(shapes=SHORT))
    assert found.level is Level.OK
    assert set(found.sessions["0"]) == {"short"}


@pytest.mark.parametrize(("used", "told"), [(4095, "<1%"), (1, ">99%"), (0, "100%"), (4096, "0%"), (2048, "50%")])
def test_a_share_is_never_told_as_nothing_or_all_that_it_is_not(used, told):
    pool = Pool(slots=known(1), slots_busy=known(1), kv_used_tokens=known(used), layouts=(Shared(1, 4096, 4096),))
    assert next(f.detail for f in assess(snapshot(pool)).findings if f.resource == "kv") == f"kv headroom {told}"
