"""The JSON: one shape, in which a field is a value with its source and time, or null with its reason."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes import NOON, FakeClock, known, snapshot, unknown
from inspector.board import Board, Entry, TargetInfo
from inspector.budget import Shape
from inspector.judge import Rules, assess
from inspector.layout import Shared, Split
from inspector.model import MEMORY_FIELDS, POOL_FIELDS, SLOT_FIELDS, Drift, Fault, Memory, Pool, Slot, State
from inspector.reading import NOT_OFFERED, Kind, Known, Reason
from inspector.report import moment, reading, target_report, targets_report

INFO = TargetInfo("chat", "fake", "http://127.0.0.1:8080", stale_after=15.0)
SLOT = Slot(2, busy=known(True), context_tokens=known(1024), used_tokens=known(900), reclaimable_tokens=known(0), growth_tokens=known(100))
POOL = Pool(
    slots=known(4, "server.log", kind=Kind.LOG),
    slots_busy=known(1),
    kv_used_tokens=known(900),
    kv_reclaimable_tokens=known(0),
    kv_capacity_tokens=unknown(Reason.AMBIGUOUS, "split or shared: follow the log", (4096, 16384)),
    requests_waiting=unknown(Reason.ENDPOINT_DISABLED, "start llama-server with --metrics"),
    slots_detail=(SLOT,),
    layouts=(Split(4, 4096), Shared(4, 4096, 4096)),
)


def reported(*pools: Pool, seconds: float = 0.0, **changes) -> dict:
    clock = FakeClock()
    board = Board(partial(assess, rules=Rules(shapes={"chat": Shape(600, 401)})), clock=clock)
    board.add(INFO)
    board.put(snapshot(*pools, **changes))
    clock.advance(seconds)
    report = targets_report(board.entries())
    assert json.loads(json.dumps(report, allow_nan=False)) == report, "plain JSON, without NaN"
    assert report["schema"] == 1
    return report["targets"][0]


def test_a_known_field_has_its_value_its_source_and_its_time():
    fields = reported(POOL)["pools"][0]["fields"]
    assert fields["kv_used_tokens"] == {"value": 900, "source": "http:/slots", "observed_at": "2027-01-15T08:00:00.000Z"}
    assert fields["slots"]["source"] == "log:server.log"


def test_an_unknown_field_is_null_with_its_reason_and_remedy_and_bounds():
    """Never zero, never left out."""
    fields = reported(POOL)["pools"][0]["fields"]
    assert fields["requests_waiting"] == {"value": None, "reason": "endpoint_disabled", "detail": "start llama-server with --metrics"}
    assert fields["kv_capacity_tokens"]["value"] is None
    assert fields["kv_capacity_tokens"]["bounds"] == [4096, 16384]


def test_a_measured_zero_is_zero():
    assert reported(POOL)["pools"][0]["fields"]["kv_reclaimable_tokens"]["value"] == 0


def test_an_open_bound_is_null():
    assert reading(unknown(Reason.AMBIGUOUS, bounds=(5, None)))["bounds"] == [5, None]


def test_every_field_stands_in_exactly_one_place():
    """Either with its reading or among those that the engine does not offer."""
    report = reported(POOL)["pools"][0]
    assert set(report["fields"]) | set(report["not_offered"]) == set(POOL_FIELDS)
    assert not set(report["fields"]) & set(report["not_offered"])
    assert set(report["fields"]) == {name for name in POOL_FIELDS if POOL.reading(name) != NOT_OFFERED}


def test_slots_are_told_one_by_one():
    (slot,) = reported(POOL)["pools"][0]["slots"]
    assert (slot["id"], slot["busy"]) == (2, True)
    assert set(slot["fields"]) == set(SLOT_FIELDS)
    assert slot["fields"]["used_tokens"]["value"] == 900


def test_headroom_has_two_bounds_with_ratio_and_tokens():
    headroom = reported(POOL)["pools"][0]["headroom"]
    assert headroom["kv"]["guaranteed"] == {"ratio": 0.75, "tokens": 3196}
    assert headroom["kv"]["possible"] == {"ratio": 1 - 900 / 4096, "tokens": 12288}
    assert headroom["context"]["guaranteed"]["tokens"] == 124


def test_an_unknown_headroom_is_null_with_its_reason():
    headroom = reported(replace(POOL, kv_used_tokens=unknown(Reason.ENDPOINT_DISABLED, "start it with --slots")))["pools"][0]["headroom"]["kv"]
    assert headroom["guaranteed"] is None
    assert headroom["possible"] is None
    assert "start it with --slots" in headroom["detail"]


def test_sessions_have_two_bounds_and_what_limits_them():
    """Split into four slots or shared by four: 4096 tokens hold four sessions that keep 1000."""
    sessions = reported(POOL)["pools"][0]["sessions"]["chat"]
    assert set(sessions) == {"capacity", "headroom", "limited_by"}
    assert (sessions["capacity"]["guaranteed"], sessions["capacity"]["possible"]) == (4, 4)
    assert sessions["headroom"]["guaranteed"] <= sessions["headroom"]["possible"] <= 3


def test_sessions_that_cannot_be_counted_are_null_with_their_reason():
    sessions = reported(replace(POOL, layouts=()))["pools"][0]["sessions"]["chat"]
    assert sessions["capacity"]["guaranteed"] is None
    assert sessions["capacity"]["reason"] == "no_source"
    assert sessions["limited_by"] is None


def test_memory_drift_and_faults_are_told():
    report = reported(
        POOL,
        memory=Memory(ceiling_bytes=known(1000), used_bytes=known(400)),
        drift=(Drift("0", "slots", "log:server.log", "launch:pid 7", "4 and 8"),),
        faults=(Fault("/slots", "invalid", "n_ctx is null"),),
    )
    assert set(report["memory"]["fields"]) == {"ceiling_bytes", "used_bytes"}
    assert report["memory"]["headroom"]["guaranteed"]["ratio"] == 0.6
    assert report["drift"] == [{"pool": "0", "field": "slots", "used": "log:server.log", "other": "launch:pid 7", "detail": "4 and 8"}]
    assert report["faults"] == [{"source": "/slots", "reason": "invalid", "detail": "n_ctx is null"}]


@pytest.mark.parametrize(
    ("state", "verdict"),
    [
        ("ready", "unknown"),
        ("loading", "unknown"),
        ("sleeping", "ok"),
        ("stalled", "critical"),
        ("unauthorized", "unknown"),
        ("not_recognized", "unknown"),
        ("unreachable", "critical"),
    ],
)
def test_the_verdict_is_the_assessments(state, verdict):
    lost = replace(POOL, kv_used_tokens=unknown(), slots_busy=unknown())
    report = reported(lost, state=State(state), state_detail="why")
    assert (report["state"], report["verdict"], report["state_detail"]) == (state, verdict, "why")
    assert report["findings"]


def test_an_old_poll_has_no_state_and_no_verdict():
    """What it was a while ago is not what it is."""
    report = reported(POOL, seconds=60)
    assert report["state"] is None
    assert report["verdict"] == "unknown"
    assert report["pools"][0]["fields"]["kv_used_tokens"] == {"value": None, "reason": "stale", "detail": "last observed 60 s ago"}
    assert report["pools"][0]["fields"]["slots"]["value"] == 4


def test_a_target_that_was_not_polled_has_the_same_shape():
    """A reader of the JSON need not ask first whether a key is there."""
    fresh = target_report(Entry(INFO))
    assert set(fresh) == set(reported(POOL))
    assert (fresh["target"], fresh["state"], fresh["verdict"], fresh["pools"], fresh["observed_at"]) == ("chat", None, "unknown", [], None)
    json.dumps(fresh, allow_nan=False)


def test_no_target_is_no_error():
    assert targets_report([]) == {"schema": 1, "targets": []}


@pytest.mark.parametrize(("at", "text"), [(NOON, "2027-01-15T08:00:00.000Z"), (0.0, "1970-01-01T00:00:00.000Z"), (NOON + 0.25, "2027-01-15T08:00:00.250Z")])
def test_times_are_rfc_3339_in_utc(at, text):
    assert moment(at) == text


@given(
    st.dictionaries(
        st.sampled_from([name for name in POOL_FIELDS if name not in ("model", "kv_unified")]),
        st.one_of(st.builds(known, st.integers(0, 9)), st.builds(unknown, st.sampled_from([r for r in Reason if r is not Reason.NOT_OFFERED]))),
    )
)
def test_each_field_has_one_of_two_forms_and_only_a_measurement_is_a_number(fields):
    told = reported(Pool(**fields))["pools"][0]["fields"]
    for name, value in fields.items():
        if isinstance(value, Known):
            assert set(told[name]) == {"value", "source", "observed_at"}
            assert told[name]["value"] == value.value
        else:
            assert set(told[name]) - {"bounds"} == {"value", "reason", "detail"}
            assert told[name]["value"] is None
    assert set(told) == set(fields)
    assert set(MEMORY_FIELDS) & set(told) == set()
