"""All targets at once: the worst first, how many are at each level, and the alerts that fire."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from inspector.judge import RANK, Level, worst
from inspector.views.target import AlertView, TargetView


@dataclass(frozen=True, slots=True)
class FleetView:
    """`targets` with the least headroom first. `levels`: how many targets are at each level, worst first. `firing`: (target, alert), critical first."""

    targets: Sequence[TargetView]
    level: Level
    levels: Mapping[Level, int]
    firing: Sequence[tuple[TargetView, AlertView]]

    @property
    def summary(self) -> str:
        """`1 critical, 2 ok`."""
        return ", ".join(f"{n} {level}" for level, n in self.levels.items() if n) or "no targets"


def fleet(targets: Iterable[TargetView]) -> FleetView:
    ordered = sorted(targets, key=_headroom)
    firing = [(target, alert) for target in ordered for alert in target.alerts if alert.firing]
    return FleetView(
        targets=ordered,
        level=worst([target.urgency for target in ordered]),
        levels={level: sum(target.urgency is level for target in ordered) for level in reversed(RANK)},
        firing=sorted(firing, key=lambda pair: -RANK.index(pair[1].level)),
    )


def _headroom(target: TargetView) -> tuple[int, bool, float, str]:
    """Worst level first, then least headroom. Where headroom is unknown the order says so too: after the known ones, but a target that is down before them."""
    down = target.urgency is Level.CRITICAL and target.least_free is None
    unknown = target.least_free is None and not down
    return -RANK.index(target.urgency), unknown, -1.0 if target.least_free is None else target.least_free, target.name
