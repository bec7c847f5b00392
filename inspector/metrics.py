"""The metrics of the inspector: one table of name, kind, help, labels and source; the collector reads it and the board, and computes nothing.

An unknown has no sample: `inspector_field_known` is 0 for it. Counters of an engine pass through untouched, so that its restart is an ordinary reset.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from inspector import __version__
from inspector.alerts.status import AlertState
from inspector.board import Board, Entry
from inspector.budget import Budget
from inspector.headroom import Headroom
from inspector.layout import Span
from inspector.model import MEMORY_FIELDS, POOL_FIELDS, SLOT_FIELDS, FieldInfo, Pool, State
from inspector.notify import Deliveries
from inspector.reading import NOT_OFFERED, Known, Reading

Row = tuple[Mapping[str, str], float]

NOT_EXPORTED = frozenset({"model", "kv_unified"})
"""Pool fields without a metric of their own: `model` stands in `inspector_pool_info`, `kv_unified` is a fact for JSON and screens."""

FAILED_STATES = tuple(state for state in State if not state.is_up)


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric family. `rows` reads an entry of the board; labels `target` and `engine` are added to every row."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...]
    rows: Callable[[Entry], Iterator[Row]]


@dataclass(slots=True)
class OwnStatus:
    """What the daemon tells about itself. `reloaded` is None before the first reload; times are Unix seconds; `deliveries` is None without an Alertmanager."""

    reloaded: bool | None = None
    reloaded_at: float | None = None
    task_failures: int = 0
    deliveries: Deliveries | None = None


def _up(entry: Entry) -> Iterator[Row]:
    if entry.snapshot and not entry.stale:
        yield {}, float(entry.snapshot.state.is_up)


def _state(entry: Entry) -> Iterator[Row]:
    if entry.snapshot and not entry.stale:
        for state in State:
            yield {"state": str(state)}, float(entry.snapshot.state is state)


def _info(entry: Entry) -> Iterator[Row]:
    if entry.snapshot:
        version = entry.snapshot.version
        yield {**entry.info.labels, "adapter": entry.snapshot.engine, "version": version.value if isinstance(version, Known) else ""}, 1.0


def _duration(entry: Entry) -> Iterator[Row]:
    if entry.snapshot:
        yield {}, entry.snapshot.duration


def _last_success(entry: Entry) -> Iterator[Row]:
    if entry.last_success is not None:
        yield {}, entry.last_success


def _polls(entry: Entry) -> Iterator[Row]:
    yield {}, float(entry.polls)


def _failures(entry: Entry) -> Iterator[Row]:
    for state in FAILED_STATES:
        yield {"reason": str(state)}, float(entry.failures[state])


def _field_known(entry: Entry) -> Iterator[Row]:
    """1 or 0 for each field that the engine offers; only where the target is ready, because elsewhere nothing is expected."""
    if entry.snapshot is None or entry.snapshot.state is not State.READY:
        return
    for pool in entry.snapshot.pools:
        for name in POOL_FIELDS:
            if name in entry.snapshot.offered and pool.reading(name) != NOT_OFFERED:
                yield {"pool": pool.id, "field": name}, float(isinstance(pool.reading(name), Known))
    for name in MEMORY_FIELDS:
        if name in entry.snapshot.offered and entry.snapshot.memory.reading(name) != NOT_OFFERED:
            yield {"pool": "", "field": f"memory_{name}"}, float(isinstance(entry.snapshot.memory.reading(name), Known))


def _drift(entry: Entry) -> Iterator[Row]:
    if entry.snapshot:
        seen = {(d.pool, d.field) for d in entry.snapshot.drift}
        yield from (({"pool": pool, "field": name}, 1.0) for pool, name in sorted(seen))


def _pool_info(entry: Entry) -> Iterator[Row]:
    for pool in _pools(entry):
        if isinstance(pool.model, Known):
            yield {"pool": pool.id, "model": pool.model.value}, 1.0


def _pools(entry: Entry) -> tuple[Pool, ...]:
    return entry.snapshot.pools if entry.snapshot else ()


def _pool_field(name: str) -> Callable[[Entry], Iterator[Row]]:
    def rows(entry: Entry) -> Iterator[Row]:
        for pool in _pools(entry):
            yield from _sample({"pool": pool.id}, pool.reading(name))

    return rows


def _memory_field(name: str) -> Callable[[Entry], Iterator[Row]]:
    def rows(entry: Entry) -> Iterator[Row]:
        if entry.snapshot:
            yield from _sample({}, entry.snapshot.memory.reading(name))

    return rows


def _slot_field(name: str) -> Callable[[Entry], Iterator[Row]]:
    def rows(entry: Entry) -> Iterator[Row]:
        for pool in _pools(entry):
            for slot in pool.slots_detail:
                yield from _sample({"pool": pool.id, "slot": str(slot.id)}, getattr(slot, name))

    return rows


def _sample(labels: Mapping[str, str], reading: Reading[int] | Reading[float] | Reading[bool]) -> Iterator[Row]:
    if isinstance(reading, Known):
        yield labels, float(reading.value)


def _headroom_ratio(entry: Entry) -> Iterator[Row]:
    for pool, headroom in _headrooms(entry):
        yield from _span({"pool": pool, "resource": headroom.resource}, headroom.ratio)


def _headroom_tokens(entry: Entry) -> Iterator[Row]:
    for pool, headroom in _headrooms(entry):
        yield from _span({"pool": pool, "resource": headroom.resource}, headroom.tokens)


def _headrooms(entry: Entry) -> Iterator[tuple[str, Headroom]]:
    if entry.assessment:
        yield from ((pool, headroom) for pool, all_ in entry.assessment.pools.items() for headroom in all_)
        if entry.assessment.memory:
            yield "", entry.assessment.memory


def _session_capacity(entry: Entry) -> Iterator[Row]:
    for labels, budget in _budgets(entry):
        yield from _span(labels, budget.capacity)


def _session_headroom(entry: Entry) -> Iterator[Row]:
    for labels, budget in _budgets(entry):
        yield from _span(labels, budget.headroom)


def _session_limit(entry: Entry) -> Iterator[Row]:
    for labels, budget in _budgets(entry):
        if budget.limited_by is not None:
            yield {**labels, "resource": budget.limited_by}, 1.0


def _budgets(entry: Entry) -> Iterator[tuple[Mapping[str, str], Budget]]:
    """Budgets by pool and session; the live headroom of a server that is not ready is unknown, because its use is."""
    if entry.assessment:
        for pool, made in entry.assessment.sessions.items():
            yield from (({"pool": pool, "session": name}, budget) for name, budget in made.items())


def _alert_state(entry: Entry) -> Iterator[Row]:
    for alert in entry.alerts:
        labels = {"alert": alert.alert, "severity": alert.severity, "pool": alert.pool, "resource": alert.resource, "session": alert.session}
        for state in AlertState:
            yield {**labels, "state": str(state)}, float(alert.state is state)


def _span(labels: Mapping[str, str], span: object) -> Iterator[Row]:
    if isinstance(span, Span):
        yield {**labels, "bound": "guaranteed"}, float(span.guaranteed)
        yield {**labels, "bound": "possible"}, float(span.possible)


def _of_field(prefix: str, name: str, info: FieldInfo, labels: tuple[str, ...], rows: Callable[[Entry], Iterator[Row]]) -> Metric:
    return Metric(f"inspector_{prefix}{name}", "counter" if info.counter else "gauge", info.help, labels, rows)


METRICS: tuple[Metric, ...] = (
    Metric("inspector_target_up", "gauge", "Whether the engine was recognized and answered the last poll", (), _up),
    Metric("inspector_target_state", "gauge", "State of the target: 1 for the one it is in, 0 for the others", ("state",), _state),
    Metric("inspector_target_info", "gauge", "Adapter, version and configured labels of the target", ("adapter", "version"), _info),
    Metric("inspector_target_poll_duration_seconds", "gauge", "How long the last poll took", (), _duration),
    Metric("inspector_target_last_success_timestamp_seconds", "gauge", "Unix time of the last poll that the engine answered", (), _last_success),
    Metric("inspector_polls_total", "counter", "Polls of the target by this process", (), _polls),
    Metric("inspector_poll_failures_total", "counter", "Polls that the engine did not answer, by what was found instead", ("reason",), _failures),
    Metric("inspector_field_known", "gauge", "Whether a field that the engine offers is known now (1) or unknown (0)", ("pool", "field"), _field_known),
    Metric("inspector_drift", "gauge", "1 where two sources disagree about a field", ("pool", "field"), _drift),
    Metric("inspector_pool_info", "gauge", "Model of a KV pool", ("pool", "model"), _pool_info),
    *(_of_field("", name, info, ("pool",), _pool_field(name)) for name, info in POOL_FIELDS.items() if name not in NOT_EXPORTED),
    Metric("inspector_headroom_ratio", "gauge", "Share of a resource that new work can still claim, 0 to 1", ("pool", "resource", "bound"), _headroom_ratio),
    Metric("inspector_headroom_tokens", "gauge", "Tokens of a resource that new work can still claim", ("pool", "resource", "bound"), _headroom_tokens),
    Metric("inspector_session_capacity", "gauge", "Sessions of a shape that an empty server holds", ("pool", "session", "bound"), _session_capacity),
    Metric("inspector_session_headroom", "gauge", "Sessions of a shape that still fit now", ("pool", "session", "bound"), _session_headroom),
    Metric(
        "inspector_session_limit", "gauge", "1 for the resource that limits how many sessions of a shape fit", ("pool", "session", "resource"), _session_limit
    ),
    *(_of_field("memory_", name, info, (), _memory_field(name)) for name, info in MEMORY_FIELDS.items()),
    Metric(
        "inspector_alert_state",
        "gauge",
        "State of an alert of the inspector's own: 1 for the one it is in, 0 for the others",
        ("alert", "severity", "pool", "resource", "session", "state"),
        _alert_state,
    ),
)

SLOT_METRICS: tuple[Metric, ...] = tuple(_of_field("slot_", name, SLOT_FIELDS[name], ("pool", "slot"), _slot_field(name)) for name in ("busy", "used_tokens"))
"""One series a slot; only when asked for."""


class BoardCollector(Collector):
    """Gives the board to `prometheus_client`. `target` limits it to one target; `slot_series` adds a series for every slot."""

    def __init__(self, board: Board, own: OwnStatus | None = None, *, target: str | None = None, slot_series: bool = False) -> None:
        self._board = board
        self._own = own
        self._target = target
        self._metrics = METRICS + (SLOT_METRICS if slot_series else ())

    def describe(self) -> Iterable[Family]:
        # All that there may ever be: by these names a scrape asks for a part.
        own = own_families(OwnStatus(reloaded=True, reloaded_at=0.0, deliveries=Deliveries())) if self._own is not None else ()
        return [*(Family(_family_name(metric), metric.help, metric.kind) for metric in self._metrics), *own]

    def collect(self) -> Iterable[Family]:
        entries = [e for e in self._board.entries() if self._target is None or e.info.name == self._target]
        yield from (_filled(metric, entries) for metric in self._metrics)
        if self._own is not None:
            yield from own_families(self._own)


def registry(board: Board, own: OwnStatus | None = None, *, target: str | None = None, slot_series: bool = False) -> CollectorRegistry:
    """A registry of its own, never the global one."""
    made = CollectorRegistry(auto_describe=False)
    made.register(BoardCollector(board, own, target=target, slot_series=slot_series))
    return made


def own_families(own: OwnStatus) -> Iterator[Family]:
    """The daemon's own metrics."""
    yield _own("inspector_build_info", "gauge", "Version of the inspector", 1.0, {"version": __version__, "python": platform.python_version()})
    yield _own("inspector_task_failures_total", "counter", "Times that a target's task failed and was started again", float(own.task_failures))
    if own.deliveries is not None:
        yield _own("inspector_notifications_total", "counter", "Alerts that Alertmanager has taken, each time that they were told", float(own.deliveries.sent))
        yield _own("inspector_notification_failures_total", "counter", "Requests to Alertmanager that failed", float(own.deliveries.failures))
        yield _own("inspector_notifications_dropped_total", "counter", "Ends of alerts that were given up undelivered", float(own.deliveries.dropped))
        yield _own("inspector_notifications_waiting", "gauge", "Ends of alerts that are still to be delivered", float(own.deliveries.waiting))
    if own.reloaded is not None:
        yield _own("inspector_config_last_reload_successful", "gauge", "Whether the last reload of the configuration was taken", float(own.reloaded))
    if own.reloaded_at is not None:
        help_ = "Unix time of the last reload that was taken"
        yield _own("inspector_config_last_reload_success_timestamp_seconds", "gauge", help_, own.reloaded_at)


def _own(name: str, kind: str, help_: str, value: float, labels: Mapping[str, str] | None = None) -> Family:
    family = Family(name.removesuffix("_total") if kind == "counter" else name, help_, kind)
    family.add_sample(name, dict(labels or {}), value)
    return family


def _filled(metric: Metric, entries: Iterable[Entry]) -> Family:
    family = Family(_family_name(metric), metric.help, metric.kind)
    for entry in entries:
        for labels, value in metric.rows(entry):
            family.add_sample(metric.name, {**labels, "target": entry.info.name, "engine": entry.info.engine}, value)
    return family


def _family_name(metric: Metric) -> str:
    return metric.name.removesuffix("_total") if metric.kind == "counter" else metric.name
