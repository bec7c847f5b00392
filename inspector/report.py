"""The JSON of `check`, `explain` and `/api/v1/targets`: one shape, in which every field is a value with its source and time, or null with its reason."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from inspector.alerts.status import AlertStatus
from inspector.board import Entry
from inspector.budget import Budget
from inspector.headroom import Headroom
from inspector.judge import Assessment
from inspector.layout import Span
from inspector.model import MEMORY_FIELDS, POOL_FIELDS, SLOT_FIELDS, Pool, Slot, Snapshot
from inspector.reading import NOT_OFFERED, Known, Reading, Unknown

SCHEMA = 1

STALE: Mapping[str, Any] = {"state": None, "state_detail": "the last poll is too old"}


def targets_report(entries: Iterable[Entry]) -> dict[str, Any]:
    """The report of several targets."""
    return {"schema": SCHEMA, "targets": [target_report(entry) for entry in entries]}


def target_report(entry: Entry) -> dict[str, Any]:
    """The report of one target; `state` is null before its first poll and when its last one is too old."""
    snapshot, assessment = entry.snapshot, entry.assessment
    blank: dict[str, Any] = {
        "target": entry.info.name,
        "engine": entry.info.engine,
        "state": None,
        "state_detail": "not polled yet",
        "version": None,
        "observed_at": None,
        "poll_duration_seconds": None,
        "verdict": "unknown",
        "findings": [],
        "pools": [],
        "memory": {"fields": {}},
        "drift": [],
        "faults": [],
    }
    blank["alerts"] = [_alert(alert) for alert in entry.alerts]
    return blank if snapshot is None or assessment is None else {**blank, **_observed(snapshot, assessment), **(STALE if entry.stale else {})}


def _alert(alert: AlertStatus) -> dict[str, Any]:
    return {
        "alert": alert.alert,
        "severity": alert.severity,
        "pool": alert.pool or None,
        "resource": alert.resource,
        "session": alert.session or None,
        "state": str(alert.state),
        "since": moment(alert.since),
        "held": alert.held,
        "detail": alert.detail,
    }


def _observed(snapshot: Snapshot, assessment: Assessment) -> dict[str, Any]:
    """What the newest poll found."""
    return {
        "engine": snapshot.engine,
        "state": str(snapshot.state),
        "state_detail": snapshot.state_detail,
        "version": snapshot.version.value if isinstance(snapshot.version, Known) else None,
        "observed_at": moment(snapshot.observed_at),
        "poll_duration_seconds": round(snapshot.duration, 4),
        "verdict": str(assessment.level),
        "findings": [{"pool": f.pool, "resource": f.resource, "level": str(f.level), "detail": f.detail} for f in assessment.findings],
        "pools": [_pool(pool, assessment) for pool in snapshot.pools],
        "memory": _memory(snapshot, assessment.memory),
        "drift": [{"pool": d.pool, "field": d.field, "used": d.used, "other": d.other, "detail": d.detail} for d in snapshot.drift],
        "faults": [{"source": f.source, "reason": f.reason, "detail": f.detail} for f in snapshot.faults],
    }


def reading(value: Reading[Any]) -> dict[str, Any]:
    """A reading in one of its two forms."""
    if isinstance(value, Known):
        return {"value": value.value, "source": str(value.origin), "observed_at": moment(value.origin.at)}
    told: dict[str, Any] = {"value": None, "reason": str(value.reason), "detail": value.detail}
    if value.bounds is not None:
        told["bounds"] = list(value.bounds)
    return told


def moment(at: float) -> str:
    """Unix seconds as RFC 3339, UTC."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _pool(pool: Pool, assessment: Assessment) -> dict[str, Any]:
    return {
        "pool": pool.id,
        "fields": {name: reading(pool.reading(name)) for name in POOL_FIELDS if pool.reading(name) != NOT_OFFERED},
        "not_offered": [name for name in POOL_FIELDS if pool.reading(name) == NOT_OFFERED],
        "slots": [_slot(slot) for slot in pool.slots_detail],
        "headroom": {h.resource: _headroom(h) for h in assessment.pools.get(pool.id, ())},
        "sessions": {name: _budget(budget) for name, budget in assessment.sessions.get(pool.id, {}).items()},
    }


def _budget(budget: Budget) -> dict[str, Any]:
    return {"capacity": _sessions(budget.capacity), "headroom": _sessions(budget.headroom), "limited_by": budget.limited_by}


def _sessions(span: Span[int] | Unknown) -> dict[str, Any]:
    if isinstance(span, Unknown):
        return {"guaranteed": None, "possible": None, "reason": str(span.reason), "detail": span.detail}
    return {"guaranteed": span.guaranteed, "possible": span.possible}


def _slot(slot: Slot) -> dict[str, Any]:
    busy = slot.busy
    return {
        "id": slot.id,
        "busy": busy.value if isinstance(busy, Known) else None,
        "fields": {name: reading(getattr(slot, name)) for name in SLOT_FIELDS if getattr(slot, name) != NOT_OFFERED},
    }


def _memory(snapshot: Snapshot, headroom: Headroom | None) -> dict[str, Any]:
    fields = {name: reading(snapshot.memory.reading(name)) for name in MEMORY_FIELDS if snapshot.memory.reading(name) != NOT_OFFERED}
    return {"fields": fields, "headroom": _headroom(headroom)} if headroom else {"fields": fields}


def _headroom(headroom: Headroom) -> dict[str, Any]:
    if isinstance(headroom.ratio, Unknown) and not isinstance(headroom.tokens, Span):
        return {"guaranteed": None, "possible": None, "reason": str(headroom.ratio.reason), "detail": headroom.ratio.detail}
    return {bound: _bound(headroom, bound) for bound in ("guaranteed", "possible")}


def _bound(headroom: Headroom, bound: str) -> Mapping[str, Any]:
    parts: Mapping[str, object] = {"ratio": headroom.ratio, "tokens": headroom.tokens}
    return {name: getattr(span, bound) for name, span in parts.items() if isinstance(span, Span)}
