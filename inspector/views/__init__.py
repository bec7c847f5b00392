"""What a person looks at: entries of the board as rows, gauges, bars and sentences. Pure; the status page and the terminal lay the same views out."""

from inspector.views.bars import MEANINGS, Bar, Part, PartKind, kv_bar, memory_bar, slots_bar
from inspector.views.fleet import FleetView, fleet
from inspector.views.pool import HEADLINES, PoolView, SessionView, SlotBox, SlotState, SlotsView
from inspector.views.rows import RESOURCES, Gauge, Row, UnknownGroup, remedy, row
from inspector.views.target import AlertView, TargetView, now_of, view

__all__ = [
    "HEADLINES",
    "MEANINGS",
    "RESOURCES",
    "AlertView",
    "Bar",
    "FleetView",
    "Gauge",
    "Part",
    "PartKind",
    "PoolView",
    "Row",
    "SessionView",
    "SlotBox",
    "SlotState",
    "SlotsView",
    "TargetView",
    "UnknownGroup",
    "fleet",
    "kv_bar",
    "memory_bar",
    "now_of",
    "remedy",
    "row",
    "slots_bar",
    "view",
]
