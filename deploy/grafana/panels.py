"""What a panel of the Grafana dashboards is, and the words, colours and selections that the tables in `fleet.py` and `target.py` share.

No expression puts a number where nothing was measured: an unknown has no series, and its panel says so. Where "none" is itself a finding (no alert, no drift,
nothing unknown) it is taken from a series that exists only when somebody looked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """How a panel shows its series. Only `LINES`, `STACK` and `TIMELINE` look back; the others ask for this moment alone."""

    LINES = "lines"
    STACK = "stack"
    TIMELINE = "timeline"
    STAT = "stat"
    NAMES = "names"
    """A stat that shows the legend: the value is 1."""
    BARS = "bars"
    TABLE = "table"


@dataclass(frozen=True)
class Query:
    """A PromQL expression and its legend; a table has a column for each label instead."""

    expr: str
    legend: str = ""


@dataclass(frozen=True)
class Panel:
    """One panel, `width` of 24 columns wide and `height` rows of the grid high.

    `steps`: (from this value on, colour), the first from anywhere. `words`: (text, colour) by value. `top`: end of the axis. `columns`: a table's columns,
    in their order. `repeat`: a variable; one panel for each of its values."""

    title: str
    kind: Kind
    unit: str
    queries: tuple[Query, ...]
    width: int
    description: str
    steps: tuple[tuple[float, str], ...] = ()
    words: Mapping[int, tuple[str, str]] | None = None
    top: float | None = None
    columns: tuple[str, ...] = ()
    height: int = 8
    repeat: str = ""


@dataclass(frozen=True)
class Board:
    """A dashboard: sections of panels by heading. `one`: it is about one target, which is chosen by a variable."""

    uid: str
    title: str
    description: str
    one: bool
    sections: Mapping[str, tuple[Panel, ...]]


GOOD, WARNING, BAD, QUIET, NEUTRAL = "green", "orange", "red", "blue", "text"

LOW_HEADROOM = ((0.0, BAD), (0.05, WARNING), (0.15, GOOD))
"""The default thresholds of kv and memory."""

STATES = {
    1: ("ready", GOOD),
    2: ("sleeping", QUIET),
    3: ("loading", "light-blue"),
    4: ("unauthorized", WARNING),
    5: ("not_recognized", WARNING),
    6: ("stalled", BAD),
    7: ("unreachable", "dark-red"),
}
ALERT_STATES = {1: ("ok", GOOD), 2: ("pending", "yellow"), 3: ("unknown", WARNING), 4: ("firing", BAD)}
KNOWN = {0: ("unknown", WARNING), 1: ("known", GOOD)}
DRIFT = {0: ("none", GOOD), 1: ("sources disagree", WARNING)}

SAME_TARGET = "on (job, instance, target)"
"""`job` and `instance` are Prometheus' own: inspectors beside different servers may use the same target name."""
SAME_POOL = "on (job, instance, target, pool)"

_FLEET = 'instance=~"$instance", engine=~"$engine", target=~"$target"'
_ONE = 'instance=~"$instance", target="$target"'
_POOL = 'pool=~"$pool|"'


def fleet(metric: str, **labels: str) -> str:
    """The metric of the chosen targets, with these labels."""
    return _selected(metric, _FLEET, labels)


def fleet_pool(metric: str, **labels: str) -> str:
    """The metric of the chosen targets and pools, and of what belongs to no pool."""
    return _selected(metric, f"{_FLEET}, {_POOL}", labels)


def one(metric: str, **labels: str) -> str:
    """The metric of the one target, with these labels."""
    return _selected(metric, _ONE, labels)


def one_pool(metric: str, **labels: str) -> str:
    """The metric of the one target's chosen pools, and of what belongs to no pool."""
    return _selected(metric, f"{_ONE}, {_POOL}", labels)


def _selected(metric: str, chosen: str, labels: Mapping[str, str]) -> str:
    more = "".join(f', {name}="{value}"' for name, value in labels.items())
    return f"{metric}{{{chosen}{more}}}"


def state_number(series: str, words: Mapping[int, tuple[str, str]]) -> str:
    """A state set as one series: the number that `words` gives to the state it is in. `series` ends with its matchers."""
    selected = series.removesuffix("}")
    found = (f'{number} * ({selected}, state="{state}"}} == 1)' for number, (state, _) in words.items())
    return f"max without (state) ({' or '.join(found)})"


def per_second(series: str) -> str:
    return f"rate({series}[$__rate_interval])"
