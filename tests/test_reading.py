"""Readings: what is not a measured value is an unknown, and stays one through every computation."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes import NOON, known, unknown
from inspector.reading import (
    LARGEST_COUNT,
    NOT_OFFERED,
    Kind,
    Known,
    Origin,
    Reason,
    Unknown,
    count,
    derive,
    first_known,
    flag,
    from_unknown,
    number,
    positive,
    ratio,
    text,
)

ORIGIN = Origin(Kind.HTTP, "/slots", NOON)
SECRET = "sk-do-not-repeat"
NOT_NUMBERS = [True, False, None, "", "0", "12", [], {}, [1], {"value": 1}, b"1", 1j, object()]
NOT_FINITE = [math.nan, math.inf, -math.inf]
NUMERIC = [count, positive, number, ratio]


def reason_of(reading: object) -> Reason:
    assert isinstance(reading, Unknown), reading
    return reading.reason


@pytest.mark.parametrize("read", NUMERIC)
@pytest.mark.parametrize("value", [*NOT_NUMBERS, *NOT_FINITE, -1, -0.5, -(2**70), 2**70, 10**400])
def test_what_is_no_measured_number_is_invalid(read, value):
    """Booleans, text, null, containers, NaN, infinities, negatives and absurdly large numbers are no figures."""
    assert reason_of(read(value, ORIGIN, "n")) is Reason.INVALID


@pytest.mark.parametrize("read", [count, positive])
@pytest.mark.parametrize("value", [0.5, 3.0000001, 1e300, float(2**63)])
def test_a_count_is_whole_and_countable(read, value):
    assert reason_of(read(value, ORIGIN, "n")) is Reason.INVALID


@pytest.mark.parametrize(("value", "expected"), [(0, 0), (7, 7), (7.0, 7), (0.0, 0), (LARGEST_COUNT, LARGEST_COUNT)])
def test_a_whole_number_is_counted_and_zero_is_a_number(value, expected):
    """A measured zero is known: an idle server is not a dark one."""
    reading = count(value, ORIGIN, "n")
    assert reading == Known(expected, ORIGIN)
    assert type(reading.value) is int


def test_a_context_or_a_slot_count_of_zero_is_invalid():
    assert reason_of(positive(0, ORIGIN, "n_ctx")) is Reason.INVALID
    assert reason_of(positive(0.0, ORIGIN, "n_ctx")) is Reason.INVALID
    assert positive(1, ORIGIN, "n_ctx") == Known(1, ORIGIN)


@pytest.mark.parametrize("value", [1.0000001, 2, 100.0])
def test_a_share_above_one_is_invalid(value):
    assert reason_of(ratio(value, ORIGIN, "usage")) is Reason.INVALID


@pytest.mark.parametrize("value", [0, 0.0, 0.25, 1, 1.0])
def test_a_share_between_zero_and_one_is_taken_as_it_is(value):
    assert ratio(value, ORIGIN, "usage") == Known(float(value), ORIGIN)


@pytest.mark.parametrize("value", [0, 1, "true", "false", "", None, [], 1.0])
def test_what_merely_looks_like_a_boolean_is_none(value):
    assert reason_of(flag(value, ORIGIN, "busy")) is Reason.INVALID


def test_false_is_a_measured_flag():
    assert flag(False, ORIGIN, "busy") == Known(False, ORIGIN)


@pytest.mark.parametrize("value", ["", "  ", "a\nb", "a\x00b", "a\x1b[2J", "x" * 201, "\ud800", 3, None, ["a"]])
def test_text_is_printable_and_bounded(value):
    assert reason_of(text(value, ORIGIN, "model")) is Reason.INVALID


@given(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(), st.lists(st.integers()), st.dictionaries(st.text(), st.integers()))
)
def test_a_reader_of_numbers_never_raises_and_never_invents(value):
    """Known only for a number, and then with exactly that number."""
    for read in NUMERIC:
        reading = read(value, ORIGIN, "n")
        if isinstance(reading, Known):
            assert isinstance(value, int | float)
            assert not isinstance(value, bool)
            assert reading.value == (value if read in (count, positive) else float(value))
        else:
            assert reading.reason is Reason.INVALID


@pytest.mark.parametrize("read", [count, positive, number, ratio, flag, text])
def test_a_refused_value_is_not_repeated(read):
    """A payload's value may be a prompt or a key: the unknown tells its kind, not its content."""
    for value in (SECRET + "\n", [SECRET], {SECRET: SECRET}):
        reading = read(value, ORIGIN, "field")
        assert isinstance(reading, Unknown)
        assert SECRET not in reading.detail
        assert "field" in reading.detail


def readings():
    return st.one_of(
        st.builds(known, st.integers(0, 10**9), at=st.floats(0, 1e10, allow_nan=False)),
        st.builds(unknown, st.sampled_from(Reason), st.text(min_size=1, max_size=10), st.one_of(st.none(), st.tuples(st.integers(0, 5), st.integers(5, 9)))),
    )


@given(st.lists(readings(), min_size=1, max_size=4))
def test_a_computation_is_known_only_if_all_its_readings_are(several):
    made = derive(lambda *values: sum(values), *several)
    if any(isinstance(r, Unknown) for r in several):
        assert isinstance(made, Unknown)
        assert made.bounds is None or made is NOT_OFFERED or made in several
    else:
        assert made.value == sum(r.value for r in several)
        assert made.origin.kind is Kind.DERIVED
        assert made.origin.at == min(r.origin.at for r in several), "a computation is as old as its oldest reading"


@given(st.lists(readings(), min_size=1, max_size=4))
def test_an_unknown_result_carries_the_first_cause(several):
    unknowns = [r for r in several if isinstance(r, Unknown)]
    if unknowns:
        made = derive(lambda *values: 0, *several)
        assert isinstance(made, Unknown)
        assert unknowns[0].detail in made.detail
        assert made.reason in (Reason.DERIVED_FROM_UNKNOWN, Reason.NOT_OFFERED)


def test_a_computation_over_an_unknown_does_not_run():
    """`f` must not see a stand-in: it is not called at all."""

    def never(*values):
        raise AssertionError(values)

    assert isinstance(derive(never, known(1), unknown()), Unknown)


def test_a_cause_is_wrapped_once_however_long_the_chain():
    cause = unknown(Reason.ENDPOINT_DISABLED, "start llama-server with --slots")
    once = from_unknown(cause)
    assert once.reason is Reason.DERIVED_FROM_UNKNOWN
    assert "endpoint_disabled" in once.detail
    assert from_unknown(from_unknown(once)) == once


def test_what_an_engine_does_not_offer_stays_so_in_a_computation():
    assert derive(lambda a, b: a + b, NOT_OFFERED, known(1)) is NOT_OFFERED


def test_the_names_of_the_sources_stand_in_the_origin_once():
    made = derive(lambda a, b, c: a + b + c, known(1, "/slots"), known(2, "/slots"), known(3, "/props"))
    assert made.origin.path == "http:/slots,http:/props"


def test_the_first_known_source_wins_in_the_order_of_trust():
    assert first_known(unknown(), known(2, "server.log", kind=Kind.LOG), known(3)) == known(2, "server.log", kind=Kind.LOG)


def test_with_no_known_source_the_telling_unknown_is_shown():
    telling = unknown(Reason.ENDPOINT_DISABLED, "start it with --slots")
    assert first_known(NOT_OFFERED, unknown(Reason.NO_SOURCE, "no log"), telling, unknown()) is telling
    assert first_known(unknown(Reason.NO_SOURCE, "no log"), NOT_OFFERED).reason is Reason.NO_SOURCE
    assert first_known() is NOT_OFFERED


def test_a_measured_zero_is_not_passed_over_for_a_later_source():
    assert first_known(known(0), known(5)) == known(0)
