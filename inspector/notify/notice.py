"""An alert as Alertmanager's v2 interface takes it. Labels are identity alone: a value in a label would make each look a new alert."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from inspector.alerts import catalogue
from inspector.alerts.conditions import Key
from inspector.alerts.status import AlertStatus

CLOCKS_DIFFER = 30.0
"""Seconds by which an end is told earlier than it came: by a clock behind ours it would be yet to come, and Alertmanager would let the alert fire on."""

Labels = tuple[tuple[str, str], ...]
"""Label pairs in order of their names: the identity of an alert."""


@dataclass(frozen=True, slots=True)
class Notice:
    """An alert to be told. Unix seconds; `ended` is None while it fires."""

    labels: Labels
    annotations: Mapping[str, str]
    started: float
    ended: float | None = None

    def payload(self, expires: float) -> dict[str, Any]:
        """As an element of `POST /api/v2/alerts`. One that fires ends at `expires` unless it is sent again before."""
        ends = expires if self.ended is None else self.ended - CLOCKS_DIFFER
        # The end may lie before the start now, also where a clock was set back, and Alertmanager refuses that.
        starts = min(self.started, ends)
        return {"labels": dict(self.labels), "annotations": dict(self.annotations), "startsAt": moment(starts), "endsAt": moment(ends)}


def notice(target: str, status: AlertStatus, started: float, ended: float | None = None) -> Notice:
    """The notice of a target's alert."""
    kind = catalogue.BY_NAME[status.alert]
    of_pool = f", pool {status.pool}" if status.pool not in ("", "0") else ""
    annotations = {"summary": kind.summary, "description": f"{target}{of_pool}: {status.detail}", "runbook_url": kind.runbook}
    return Notice(labels(target, status), annotations, started, ended)


def labels(target: str, status: AlertStatus | Key) -> Labels:
    """Labels of an alert, those without a value left out; `resource` only where the name does not tell it."""
    resource = "" if catalogue.BY_NAME[status.alert].resource else status.resource
    given = {"alertname": status.alert, "severity": status.severity, "target": target, "pool": status.pool, "session": status.session, "resource": resource}
    return tuple(sorted((name, value) for name, value in given.items() if value))


def alert_of(found: Mapping[str, Any]) -> tuple[str, Key] | None:
    """The target and alert that labels name; None for those that we would not have written."""
    kind = catalogue.BY_NAME.get(str(found.get("alertname")))
    target = found.get("target")
    if kind is None or not isinstance(target, str):
        return None
    pool, session, resource = (str(found.get(name, "")) for name in ("pool", "session", "resource"))
    key = Key(kind.name, str(found.get("severity")), pool, kind.resource or resource, session)
    return (target, key) if dict(labels(target, key)) == found else None


def moment(at: float) -> str:
    """Unix seconds as RFC 3339, UTC."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
