"""The alerts that the inspector knows: one table. `docs/alerts.md` has a section for each, and Prometheus' rules use the same names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

WARNING, CRITICAL = "warning", "critical"

RUNBOOKS = "https://github.com/inference-inspector/inference-inspector/blob/main/docs/alerts.md"


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of alert.

    `resource`: what it is about ("" where that differs from alert to alert). `before_firing`: seconds for which it must be bad, None for the configured
    `for`. `window`: seconds in which a counter must have risen, for those that watch one.
    """

    name: str
    severities: tuple[str, ...]
    resource: str
    summary: str
    before_firing: float | None = None
    window: float = 0.0

    @property
    def runbook(self) -> str:
        return f"{RUNBOOKS}#{self.name.lower()}"


KV = Kind("InspectorKvHeadroomLow", (WARNING, CRITICAL), "kv", "Little KV cache is left for new work")
MEMORY = Kind("InspectorMemoryHeadroomLow", (WARNING, CRITICAL), "memory", "The server is close to the memory that it may use")
SLOTS = Kind("InspectorSlotsHeadroomLow", (WARNING, CRITICAL), "slots", "Few slots are free")
CONTEXT = Kind("InspectorContextHeadroomLow", (WARNING, CRITICAL), "context", "A session is close to its context limit")
SESSIONS = Kind("InspectorSessionHeadroomLow", (WARNING, CRITICAL), "sessions", "Fewer sessions still fit than were asked for")
QUEUE = Kind("InspectorSlotsExhausted", (WARNING,), "queue", "Requests wait while every slot is busy", 120.0)
EXHAUSTION = Kind("InspectorKvExhaustion", (CRITICAL,), "kv_exhaustions", "The server killed requests because its KV cache ran out", 0.0, 600.0)
PREEMPTIONS = Kind("InspectorPreemptions", (WARNING,), "preemptions", "The server keeps preempting requests for want of KV cache", 600.0, 300.0)
STALLED = Kind("InspectorTargetStalled", (CRITICAL,), "progress", "The server has work in hand and makes no progress", 0.0)
DOWN = Kind("InspectorTargetDown", (CRITICAL,), "reachability", "The server cannot be reached")
UNKNOWN = Kind("InspectorHeadroomUnknown", (WARNING,), "", "Whether enough is left cannot be told")

KINDS: tuple[Kind, ...] = (KV, MEMORY, SLOTS, CONTEXT, SESSIONS, QUEUE, EXHAUSTION, PREEMPTIONS, STALLED, DOWN, UNKNOWN)

OF_RESOURCE: Mapping[str, Kind] = {kind.resource: kind for kind in (KV, MEMORY, SLOTS, CONTEXT, SESSIONS)}
"""The alert about the headroom of each resource."""

COUNTED: Mapping[str, Kind] = {"kv_exhaustions_total": EXHAUSTION, "preemptions_total": PREEMPTIONS}
"""Pool counters whose rise is an alert."""

BY_NAME: Mapping[str, Kind] = {kind.name: kind for kind in KINDS}
