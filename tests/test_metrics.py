"""The metrics: what is known has a sample, what is unknown has none, and nothing that is secret or unbounded is a label.

`UPDATE_GOLDEN=1` rewrites tests/golden/metrics.prom; read the difference before you commit it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.openmetrics import parser as openmetrics_parser
from prometheus_client.parser import text_string_to_metric_families

from fakes import NOON, FakeClock, known, snapshot, unknown
from inspector import __version__
from inspector.alerts.status import AlertState, AlertStatus
from inspector.board import Board, TargetInfo
from inspector.budget import Shape
from inspector.judge import Rules, assess
from inspector.layout import Shared, Split
from inspector.metrics import METRICS, NOT_EXPORTED, SLOT_METRICS, BoardCollector, OwnStatus, registry
from inspector.model import MEMORY_FIELDS, POOL_FIELDS, Drift, Memory, Pool, Slot, State
from inspector.notify import Deliveries
from inspector.reading import NOT_OFFERED, Known, Reason

GOLDEN = Path(__file__).parent / "golden" / "metrics.prom"
INFO = TargetInfo("chat", "", "http://127.0.0.1:8080", stale_after=15.0, labels={"team": "search"})
FAILED = [State.UNAUTHORIZED, State.NOT_RECOGNIZED, State.UNREACHABLE]

DESIGNED = {
    "target_up",
    "target_state",
    "target_info",
    "target_poll_duration_seconds",
    "target_last_success_timestamp_seconds",
    "polls_total",
    "poll_failures_total",
    "field_known",
    "drift",
    "pool_info",
    "slots",
    "slots_busy",
    "requests_running",
    "requests_waiting",
    "requests_in_flight",
    "context_limit_tokens",
    "context_guaranteed_tokens",
    "kv_capacity_tokens",
    "kv_used_tokens",
    "kv_reclaimable_tokens",
    "kv_usage_ratio",
    "kv_bytes_per_token",
    "kv_capacity_bytes",
    "preemptions_total",
    "kv_exhaustions_total",
    "prefix_cache_hits_total",
    "prefix_cache_queries_total",
    "prompt_tokens_total",
    "generation_tokens_total",
    "headroom_ratio",
    "headroom_tokens",
    "session_capacity",
    "session_headroom",
    "session_limit",
    "memory_total_bytes",
    "memory_ceiling_bytes",
    "memory_used_bytes",
    "memory_weights_bytes",
}
"""The names that the design promises, without their prefix."""

RULES = Rules(shapes={"chat": Shape(600, 401)})
"""One session shape: it keeps 1000 tokens."""

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def full_pool(**changes) -> Pool:
    """A pool in which every field is known."""
    facts = {name: known(number) for number, name in enumerate(POOL_FIELDS, start=1)}
    facts |= {"model": known("tiny.gguf"), "kv_unified": known(True), "slots": known(4), "slots_busy": known(1), "kv_usage_ratio": known(0.25)}
    slots = (Slot(0, known(True), known(1024), known(900), known(0)), Slot(1, known(False), known(1024), known(0), known(30)))
    return Pool(**{**facts, "slots_detail": slots, "layouts": (Shared(4, 4096, 4096),), **changes})


ALERT = AlertStatus("InspectorKvHeadroomLow", "warning", "0", "kv", "", AlertState.FIRING, NOON, "kv headroom 3%", held=True)
FULL_MEMORY = Memory(known(4000), known(3000), known(2000), known(1000))


def board_of(*snapshots, info: TargetInfo = INFO, seconds: float = 0.0) -> Board:
    clock = FakeClock()
    board = Board(partial(assess, rules=RULES), clock=clock)
    board.add(info)
    for each in snapshots:
        board.put(each)
    clock.advance(seconds)
    return board


def text(board: Board, own: OwnStatus | None = None, **options) -> str:
    return generate_latest(registry(board, own, **options)).decode()


def samples(board: Board, own: OwnStatus | None = None, **options) -> Samples:
    found: Samples = {}
    for family in text_string_to_metric_families(text(board, own, **options)):
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in found, f"{key} twice: Prometheus refuses the scrape"
            found[key] = sample.value
    return found


def values(found: Samples, name: str, **labels: str) -> list[float]:
    return [value for (sample, has), value in found.items() if sample == name and set(labels.items()) <= set(has)]


# --- The table ----------------------------------------------------------------------------------------------------------------------


def test_every_name_of_the_design_has_a_metric():
    assert {f"inspector_{name}" for name in DESIGNED} <= {metric.name for metric in METRICS}


def test_every_field_has_a_metric_or_is_named_as_one_that_has_none():
    names = {metric.name for metric in METRICS}
    assert set(POOL_FIELDS) >= NOT_EXPORTED
    for name in POOL_FIELDS:
        assert (f"inspector_{name}" in names) is (name not in NOT_EXPORTED), name
    assert {f"inspector_memory_{name}" for name in MEMORY_FIELDS} <= names


def test_every_metric_is_named_once_and_says_what_it_is():
    names = [metric.name for metric in METRICS + SLOT_METRICS]
    assert len(names) == len(set(names))
    for metric in METRICS + SLOT_METRICS:
        assert metric.help, metric.name
        assert metric.name.startswith("inspector_")
        assert (metric.kind == "counter") is metric.name.endswith("_total"), metric.name


def test_a_rows_labels_are_those_that_its_metric_declares():
    board = board_of(snapshot(full_pool(), memory=FULL_MEMORY, drift=(Drift("0", "slots", "a", "b", ""),), offered=frozenset(POOL_FIELDS)))
    board.put_alerts("chat", (ALERT,))
    (entry,) = board.entries()
    for metric in METRICS + SLOT_METRICS:
        rows = list(metric.rows(entry))
        assert rows, f"{metric.name} has no sample though all is known"
        for labels, _ in rows:
            assert set(labels) - {"team"} == set(metric.labels), metric.name


def test_no_label_collides_with_prometheus_own_or_tells_what_it_must_not():
    """`instance` and `job` are Prometheus' own; a path, a prompt or an address is no label."""
    allowed = {
        "target",
        "engine",
        "pool",
        "state",
        "adapter",
        "version",
        "reason",
        "field",
        "model",
        "resource",
        "bound",
        "slot",
        "session",
        "alert",
        "severity",
    }
    for metric in METRICS + SLOT_METRICS:
        assert set(metric.labels) <= allowed, metric.name


def test_the_collector_describes_what_it_collects():
    for options in ({}, {"slot_series": True}, {"own": OwnStatus(reloaded=True, reloaded_at=NOON, deliveries=Deliveries())}):
        collector = BoardCollector(board_of(snapshot(full_pool())), **options)
        assert [family.name for family in collector.describe()] == [family.name for family in collector.collect()]


def test_what_is_only_there_later_can_be_asked_for_by_name():
    """A scrape of a part names its families; those of a reload exist after the first one."""
    own = OwnStatus()
    source = registry(board_of(snapshot(full_pool())), own)
    own.reloaded, own.reloaded_at, own.deliveries = False, NOON, Deliveries()
    for name in ("inspector_config_last_reload_successful", "inspector_config_last_reload_success_timestamp_seconds", "inspector_notifications_total"):
        assert f"\n{name} " in "\n" + generate_latest(source.restricted_registry([name])).decode(), name


def test_an_alert_has_one_series_for_each_of_its_states_and_one_of_them_is_1():
    board = board_of(snapshot(full_pool()))
    board.put_alerts("chat", (ALERT,))
    rows = {dict(labels)["state"]: value for (name, labels), value in samples(board).items() if name == "inspector_alert_state"}
    assert rows == {"ok": 0, "pending": 0, "firing": 1, "unknown": 0}


# --- Known, unknown, zero -----------------------------------------------------------------------------------------------------------


def test_what_is_known_has_its_sample():
    pool = full_pool()
    found = samples(board_of(snapshot(pool, memory=FULL_MEMORY)))
    for name in set(POOL_FIELDS) - NOT_EXPORTED:
        assert values(found, f"inspector_{name}", target="chat", engine="fake", pool="0") == [float(pool.reading(name).value)], name
    for name in MEMORY_FIELDS:
        assert values(found, f"inspector_memory_{name}", target="chat") == [float(FULL_MEMORY.reading(name).value)], name


@pytest.mark.parametrize("name", sorted(set(POOL_FIELDS) - NOT_EXPORTED))
@pytest.mark.parametrize("reason", [r for r in Reason if r is not Reason.NOT_OFFERED])
def test_an_unknown_has_no_sample_whatever_its_reason_and_its_bounds(name, reason):
    pool = replace(full_pool(), **{name: unknown(reason, bounds=(0, 9))})
    found = samples(board_of(snapshot(pool, offered=frozenset(POOL_FIELDS))))
    assert values(found, f"inspector_{name}") == []
    assert values(found, "inspector_field_known", field=name) == [0.0]


def test_a_measured_zero_has_a_sample():
    found = samples(board_of(snapshot(full_pool(slots_busy=known(0), kv_used_tokens=known(0)))))
    assert values(found, "inspector_slots_busy") == [0.0]
    assert values(found, "inspector_kv_used_tokens") == [0.0]


fields = st.dictionaries(
    st.sampled_from(sorted(set(POOL_FIELDS) - {"model", "kv_unified"})),
    st.one_of(
        st.builds(known, st.integers(1, 9)), st.builds(unknown, st.sampled_from(list(Reason)), bounds=st.sampled_from([None, (0, 5)])), st.just(NOT_OFFERED)
    ),
)


@given(fields)
def test_a_pool_field_has_a_sample_exactly_when_it_is_known(facts):
    pool = Pool(**facts)
    found = samples(board_of(snapshot(pool, offered=frozenset(POOL_FIELDS))))
    for name in set(POOL_FIELDS) - NOT_EXPORTED:
        reading = pool.reading(name)
        assert values(found, f"inspector_{name}") == ([float(reading.value)] if isinstance(reading, Known) else [])
        assert values(found, "inspector_field_known", field=name) == ([] if reading == NOT_OFFERED else [float(isinstance(reading, Known))])


def test_a_field_that_the_engine_does_not_offer_has_no_series_of_its_knowledge():
    found = samples(board_of(snapshot(Pool(slots=known(4)), offered=frozenset({"slots", "kv_used_tokens"}))))
    assert [dict(labels)["field"] for name, labels in found if name == "inspector_field_known"] == ["slots"]


def test_memory_fields_are_told_apart_from_those_of_a_pool():
    board = board_of(snapshot(full_pool(), memory=Memory(used_bytes=unknown(), ceiling_bytes=known(5)), offered=frozenset({"used_bytes", "ceiling_bytes"})))
    found = samples(board)
    assert values(found, "inspector_field_known", field="memory_used_bytes") == [0.0]
    assert values(found, "inspector_field_known", field="memory_ceiling_bytes") == [1.0]


# --- States -------------------------------------------------------------------------------------------------------------------------


def test_a_target_that_was_not_polled_yet_is_neither_up_nor_down():
    found = samples(board_of())
    assert {name for name, _ in found} == {"inspector_polls_total", "inspector_poll_failures_total"}


@pytest.mark.parametrize("state", State)
def test_a_state_is_one_of_a_closed_set(state):
    found = samples(board_of(snapshot(state=state)))
    assert values(found, "inspector_target_up") == [float(state not in FAILED)]
    assert {dict(labels)["state"]: value for (name, labels), value in found.items() if name == "inspector_target_state"} == {
        s.value: float(s is state) for s in State
    }


@pytest.mark.parametrize("state", FAILED)
def test_a_target_that_did_not_answer_has_no_pool_sample(state):
    found = samples(board_of(snapshot(full_pool()), snapshot(state=state, at=NOON + 5)))
    assert {name for name, labels in found if "pool" in dict(labels)} == set()
    assert values(found, "inspector_poll_failures_total", reason=state.value) == [1.0]
    assert sum(values(found, "inspector_poll_failures_total")) == 1.0
    assert values(found, "inspector_polls_total") == [2.0]
    assert values(found, "inspector_target_last_success_timestamp_seconds") == [NOON]


@pytest.mark.parametrize("state", [s for s in State if s is not State.READY])
def test_where_nothing_is_expected_no_field_is_called_unknown(state):
    """A sleeping server's missing figures are no defect to alert on."""
    found = samples(board_of(snapshot(Pool(slots=known(4), slots_busy=unknown(Reason.SLEEPING)), state=state, offered=frozenset(POOL_FIELDS))))
    assert values(found, "inspector_field_known") == []


def test_an_old_poll_is_neither_up_nor_down_and_its_live_facts_are_gone():
    found = samples(board_of(snapshot(full_pool(), memory=FULL_MEMORY, offered=frozenset(POOL_FIELDS)), seconds=60))
    assert values(found, "inspector_target_up") == []
    assert values(found, "inspector_target_state") == []
    for name, info in POOL_FIELDS.items():
        if name not in NOT_EXPORTED:
            assert len(values(found, f"inspector_{name}")) == (0 if info.live else 1), name
            assert values(found, "inspector_field_known", field=name) == [0.0 if info.live else 1.0]
    assert values(found, "inspector_memory_used_bytes") == []
    assert values(found, "inspector_headroom_ratio") == []
    assert values(found, "inspector_target_last_success_timestamp_seconds") == [NOON]


# --- Headroom, drift, slots, labels -------------------------------------------------------------------------------------------------


def test_headroom_has_a_series_for_each_bound():
    pool = Pool(slots=known(4), slots_busy=known(1), kv_used_tokens=known(1024), layouts=(Split(4, 4096), Shared(4, 4096, 4096)))
    found = samples(board_of(snapshot(pool)))
    kv = {"resource": "kv", "pool": "0"}
    assert values(found, "inspector_headroom_ratio", bound="guaranteed", **kv) == [0.75]
    assert values(found, "inspector_headroom_ratio", bound="possible", **kv) == [0.75]
    assert values(found, "inspector_headroom_tokens", bound="guaranteed", **kv) == [3072.0]
    assert values(found, "inspector_headroom_tokens", bound="possible", **kv) == [12288.0]
    assert values(found, "inspector_headroom_tokens", resource="slots") == []


def test_sessions_have_a_series_for_each_bound_and_their_limit():
    """Two slots of their own hold two; a pool of 3000 that four slots share holds three of 1000."""
    pool = Pool(slots=known(4), slots_busy=known(0), kv_used_tokens=known(0), requests_waiting=known(0), layouts=(Split(2, 4096), Shared(4, 3000, 3000)))
    found = samples(board_of(snapshot(pool)))
    session = {"session": "chat", "pool": "0"}
    assert values(found, "inspector_session_capacity", bound="guaranteed", **session) == [2.0]
    assert values(found, "inspector_session_capacity", bound="possible", **session) == [3.0]
    assert sum(values(found, "inspector_session_limit", **session)) == 1.0


@pytest.mark.parametrize("lost", ["kv_used_tokens", "slots_busy"])
def test_an_unknown_use_leaves_the_capacity_of_sessions_and_no_headroom(lost):
    pool = Pool(slots=known(4), slots_busy=known(0), kv_used_tokens=known(0), layouts=(Shared(4, 3000, 3000),))
    found = samples(board_of(snapshot(replace(pool, **{lost: unknown()}))))
    assert values(found, "inspector_session_capacity", bound="guaranteed") == [3.0]
    assert values(found, "inspector_session_headroom") == []


def test_an_unknown_layout_has_no_sample_of_sessions():
    found = samples(board_of(snapshot(Pool(slots=known(4), slots_busy=known(0), kv_used_tokens=known(0)))))
    assert {name for name, _ in found if "session" in name} == set()


def test_an_unknown_headroom_has_no_sample():
    pool = Pool(slots=known(4), slots_busy=unknown(), kv_used_tokens=unknown(), layouts=(Shared(4, 4096, 4096),))
    assert values(samples(board_of(snapshot(pool))), "inspector_headroom_ratio") == []


def test_a_field_that_drifts_for_several_reasons_is_one_series():
    drift = (Drift("0", "slots", "log", "argv", "4 and 8"), Drift("0", "slots", "log", "file", "4 and 2"))
    assert values(samples(board_of(snapshot(Pool(), drift=drift))), "inspector_drift") == [1.0]


def test_slots_have_series_only_when_asked_for():
    board = board_of(snapshot(full_pool()))
    assert values(samples(board), "inspector_slot_used_tokens") == []
    found = samples(board, slot_series=True)
    assert values(found, "inspector_slot_used_tokens", slot="0", pool="0") == [900.0]
    assert values(found, "inspector_slot_busy", slot="1") == [0.0]


def test_pools_are_told_apart():
    found = samples(board_of(snapshot(full_pool(), full_pool(id="other", slots=known(9)))))
    assert values(found, "inspector_slots", pool="0") == [4.0]
    assert values(found, "inspector_slots", pool="other") == [9.0]


def test_configured_labels_go_on_the_info_metric_alone():
    found = samples(board_of(snapshot(full_pool())))
    assert {name for name, labels in found if "team" in dict(labels)} == {"inspector_target_info"}


def test_a_configured_label_cannot_rename_the_target():
    info = replace(INFO, labels={"target": "other", "engine": "other", "adapter": "other", "version": "other"})
    found = samples(board_of(snapshot(full_pool()), info=info))
    assert values(found, "inspector_target_info", target="chat", engine="fake", adapter="fake", version="b1") == [1.0]


def test_one_target_can_be_picked():
    board = board_of(snapshot(full_pool()))
    board.add(replace(INFO, name="other"))
    board.put(snapshot(full_pool(), target="other"))
    assert {dict(labels)["target"] for _, labels in samples(board, target="other")} == {"other"}
    assert samples(board, target="nobody") == {}


@given(st.text(min_size=1, max_size=30))
def test_any_model_name_makes_text_that_can_be_read(name):
    """Quotes, backslashes and line ends are escaped: a model's name cannot forge a sample."""
    found = samples(board_of(snapshot(full_pool(model=known(name)))))
    assert values(found, "inspector_pool_info") == [1.0]
    assert values(found, "inspector_slots") == [4.0]


# --- The daemon's own ---------------------------------------------------------------------------------------------------------------


def test_the_daemon_tells_of_itself():
    found = samples(board_of(), OwnStatus(reloaded=False, reloaded_at=NOON, task_failures=2))
    assert values(found, "inspector_build_info", version=__version__) == [1.0]
    assert values(found, "inspector_task_failures_total") == [2.0]
    assert values(found, "inspector_config_last_reload_successful") == [0.0]
    assert values(found, "inspector_config_last_reload_success_timestamp_seconds") == [NOON]


def test_before_the_first_reload_nothing_is_said_of_it():
    found = samples(board_of(), OwnStatus())
    assert values(found, "inspector_config_last_reload_successful") == []
    assert values(found, "inspector_config_last_reload_success_timestamp_seconds") == []


# --- The text -----------------------------------------------------------------------------------------------------------------------


def golden_board() -> Board:
    """A ready target with unknowns and bounds, a sleeping one, one that is down, one that was not polled yet."""
    chat = Pool(
        model=known('tiny "quoted".gguf'),
        slots=known(4),
        slots_busy=known(1),
        requests_running=known(1),
        requests_waiting=unknown(Reason.ENDPOINT_DISABLED),
        context_limit_tokens=known(4096),
        kv_capacity_tokens=unknown(Reason.AMBIGUOUS, bounds=(4096, 16384)),
        kv_used_tokens=known(903),
        kv_reclaimable_tokens=known(0),
        kv_unified=unknown(Reason.AMBIGUOUS),
        prompt_tokens_total=known(12345),
        slots_detail=(Slot(0, known(True), known(4096), known(903)),),
        layouts=(Split(4, 4096), Shared(4, 4096, 4096)),
    )
    board = Board(partial(assess, rules=RULES), clock=FakeClock())
    for name in ("chat", "night", "gone", "new"):
        board.add(replace(INFO, name=name))
    offered = frozenset({"slots", "slots_busy", "requests_waiting", "kv_capacity_tokens", "kv_used_tokens", "ceiling_bytes", "used_bytes"})
    memory = Memory(ceiling_bytes=known(16_000_000_000), used_bytes=known(12_000_000_000))
    board.put(snapshot(chat, memory=memory, offered=offered, drift=(Drift("0", "slots", "log", "argv", "4 and 8"),)))
    board.put(snapshot(Pool(slots=known(2), slots_busy=unknown(Reason.SLEEPING)), target="night", state=State.SLEEPING, offered=offered))
    board.put(snapshot(target="gone", state=State.UNREACHABLE))
    board.put_alerts("chat", (ALERT,))
    return board


def test_the_text_is_the_golden_one():
    """Renaming a metric or a label breaks other people's dashboards: it shows here first."""
    made = text(golden_board())
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_text(made, encoding="utf-8")
    assert made == GOLDEN.read_text(encoding="utf-8")


def test_the_golden_text_holds_no_figure_for_what_is_unknown():
    """Read from the file, so that nobody updates the promise away."""
    golden = GOLDEN.read_text(encoding="utf-8")
    for name in ("requests_waiting", "kv_capacity_tokens", "preemptions_total"):
        assert f"\ninspector_{name}{{" not in golden
    assert '\ninspector_kv_reclaimable_tokens{engine="fake",pool="0",target="chat"} 0.0\n' in golden
    assert 'inspector_slots_busy{engine="fake",pool="0",target="night"}' not in golden
    assert 'inspector_target_up{engine="fake",target="gone"} 0.0' in golden


def families(board: Board) -> Iterator[tuple[str, str, str]]:
    for family in text_string_to_metric_families(text(board, OwnStatus(reloaded=True, reloaded_at=NOON), slot_series=True)):
        yield family.name, family.type, family.documentation


def test_every_family_has_a_help_and_a_type():
    found = list(families(golden_board()))
    assert {name for name, _, _ in found} >= {f"inspector_{name.removesuffix('_total')}" for name in DESIGNED}
    for name, kind, help_ in found:
        assert kind in ("gauge", "counter"), name
        assert len(help_) > 10, name


def test_the_open_metrics_text_says_the_same():
    """The strict parser takes it, and every sample has the same value as in the classic text."""
    made = openmetrics.generate_latest(registry(golden_board(), OwnStatus(), slot_series=True)).decode()
    assert made.endswith("# EOF\n")
    strict = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in openmetrics_parser.text_string_to_metric_families(made)
        for sample in family.samples
    }
    assert strict == samples(golden_board(), OwnStatus(), slot_series=True)


def test_no_series_has_prometheus_own_labels():
    for _, labels in samples(golden_board(), OwnStatus(), slot_series=True):
        assert not {"instance", "job", "__name__"} & set(dict(labels))
