"""Bars and slots drawn with characters. Pure. The shapes differ, so that they can be told apart without colour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.text import Text

from inspector.views import Bar, PartKind, SlotState


@dataclass(frozen=True, slots=True)
class Signs:
    """One character for each part of a bar and for each state of a slot."""

    bars: Mapping[PartKind, str]
    slots: Mapping[SlotState, str]


DRAWN = Signs(
    {PartKind.USED: "█", PartKind.HELD: "▓", PartKind.RECLAIMABLE: "░", PartKind.FREE: "·", PartKind.UNSURE: "?"},
    {SlotState.BUSY: "■", SlotState.IDLE: "□", SlotState.UNKNOWN: "?"},
)
ASCII = Signs(
    {PartKind.USED: "#", PartKind.HELD: "+", PartKind.RECLAIMABLE: "=", PartKind.FREE: ".", PartKind.UNSURE: "?"},
    {SlotState.BUSY: "#", SlotState.IDLE: "-", SlotState.UNKNOWN: "?"},
)
"""For a terminal that shows no others."""

STYLES = {PartKind.USED: "cyan", PartKind.HELD: "cyan", PartKind.RECLAIMABLE: "blue", PartKind.FREE: "dim", PartKind.UNSURE: "magenta"}


def draw(bar: Bar, signs: Signs, cells: int) -> Text:
    """The bar in so many cells, each part in proportion; what is there at all has at least one."""
    drawn = Text()
    for part, number in zip(bar.parts, _cells([part.share for part in bar.parts], cells), strict=True):
        drawn.append(signs.bars[part.kind] * number, STYLES[part.kind])
    return drawn


def _cells(shares: Sequence[float], cells: int) -> list[int]:
    """Cells for each part: rounded at the parts' borders, so that they add up; then the smallest get theirs from the largest."""
    borders = [round(cells * sum(shares[: number + 1])) for number in range(len(shares))]
    given = [border - before for border, before in zip(borders, [0, *borders], strict=False)]
    for number, share in enumerate(shares):
        if share > 0 and given[number] == 0:
            given[given.index(max(given))] -= 1
            given[number] = 1
    return given


def legend(signs: Signs) -> str:
    """What the parts of a bar mean."""
    meant = {PartKind.USED: "used", PartKind.HELD: "held", PartKind.RECLAIMABLE: "reclaimable", PartKind.FREE: "free", PartKind.UNSURE: "unsure"}
    return " ".join(f"{signs.bars[kind]} {meaning}" for kind, meaning in meant.items())
