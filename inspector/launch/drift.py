"""Where a launch file and the command line that runs state different values for one setting. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from inspector.contract import LaunchView, Observation
from inspector.model import Drift
from inspector.reading import Known, Unknown


def with_launch_drift(observation: Observation, live: LaunchView | Unknown, file: LaunchView | Unknown) -> Observation:
    """The observation with every setting that both state and state differently, under the setting's name; the one that runs is believed.

    A setting that only one of them states is no disagreement here: only the adapter knows the engine's default. What the adapter compared itself is left to it.
    """
    if isinstance(live, Unknown) or isinstance(file, Unknown):
        return observation
    told = {(drift.field, drift.other) for drift in observation.drift}
    pool = observation.pools[0].id if len(observation.pools) == 1 else ""
    found = tuple(drift for drift in _differing(live, file, pool) if (drift.field, drift.other) not in told)
    return replace(observation, drift=(*observation.drift, *found)) if found else observation


def _differing(live: LaunchView, file: LaunchView, pool: str) -> Iterator[Drift]:
    for name, running in live.settings.items():
        stated = file.get(name)
        if isinstance(running, Known) and isinstance(stated, Known) and running.value != stated.value:
            yield Drift(pool, name, "launch", "launch file", f"{running.origin} says {running.value}, {stated.origin} says {stated.value}")
