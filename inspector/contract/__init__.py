"""The contract between the core and an adapter, one adapter an engine.

The core owns sockets, deadlines, size caps, keys, cadence, generations and ageing. An adapter decides what to ask next and turns replies, log lines and launch
settings into readings. It never sees a client, never raises for a bad payload, and keeps nothing outside the `Recall` that the core hands it.
"""

from inspector.contract.http import GENERATION, POLL, Cadence, Deadline, Reply, Route
from inspector.contract.launch import Flag, FlagKind, FlagTable, LaunchView
from inspector.contract.log import LogLine, LogPattern, LogView
from inspector.contract.observing import NO_VERSION, Adapter, Ask, LooksAtProcess, Observation, ProcessView, ReadsLaunch, ReadsLog, Recognizes
from inspector.contract.planning import CacheShape, ModelFile, Plans, PlanSettings

__all__ = [
    "GENERATION", "NO_VERSION", "POLL", "Adapter", "Ask", "CacheShape", "Cadence", "Deadline", "Flag", "FlagKind", "FlagTable", "LaunchView", "LogLine",
    "LogPattern", "LogView", "LooksAtProcess", "ModelFile", "Observation", "PlanSettings", "Plans", "ProcessView", "ReadsLaunch", "ReadsLog",
    "Recognizes", "Reply", "Route",
]  # fmt: skip
