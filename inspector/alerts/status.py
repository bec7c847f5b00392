"""The state of one alert, as every screen and metric shows it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class AlertState(StrEnum):
    OK = "ok"
    PENDING = "pending"
    FIRING = "firing"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class AlertStatus:
    """One alert of one target. `pool` and `session` are "" where it is not about one.

    `since`: Unix seconds at which it came into its state. `held`: it is pending or firing, and what it is about is unknown now, so it neither
    resolves nor fires. `detail` is one sentence: what was found last, or why nothing could be found.
    """

    alert: str
    severity: str
    pool: str
    resource: str
    session: str
    state: AlertState
    since: float
    detail: str
    held: bool = False
