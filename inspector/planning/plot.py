"""The frontier of sessions against tokens as a picture. matplotlib is an extra, loaded only here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from inspector.planning.frontier import Point

FORMATS = (".svg", ".png")
COLOUR, LIMIT_COLOUR = "#1f5fa8", "#9a5b00"
INCHES = (8.0, 5.0)


class PlotError(ValueError):
    """A picture that cannot be made: why, and what to do."""


def check_plot(file: Path) -> None:
    """Raises PlotError where a picture of this name cannot be made."""
    if file.suffix.lower() not in FORMATS:
        raise PlotError("is neither .svg nor .png; name the picture accordingly")
    _figure_class()


def plot(points: Sequence[Point], file: Path, title: str, ceiling: int | None) -> None:
    """Writes the picture. Raises PlotError where there is nothing to show or the file cannot be written."""
    shown = [point for point in points if point.tokens > 0]
    if not shown:
        raise PlotError("has nothing to show: not even one session fits")
    figure = _figure_class()(figsize=INCHES, layout="constrained")
    _draw(figure.subplots(), shown, title, ceiling)
    try:
        figure.savefig(file, format=file.suffix.lower().removeprefix("."), dpi=130)
    except OSError as error:
        raise PlotError(f"cannot be written ({error.strerror}); name a file in a folder that you may write to") from None


def _draw(axes: Any, points: Sequence[Point], title: str, ceiling: int | None) -> None:
    sessions, tokens = [point.sessions for point in points], [point.tokens for point in points]
    axes.plot(sessions, tokens, color=COLOUR, marker="o", markersize=4, linewidth=1.8, label="most tokens of each session")
    axes.fill_between(sessions, tokens, color=COLOUR, alpha=0.12)
    if ceiling is not None:
        axes.axhline(ceiling, color=LIMIT_COLOUR, linestyle="--", linewidth=1.2, label=f"the model's context, {ceiling:,} tokens")
    axes.set_xscale("log", base=2)
    axes.set_xticks([count for count in sessions if count & (count - 1) == 0], labels=[str(count) for count in sessions if count & (count - 1) == 0])
    axes.minorticks_off()
    axes.set_ylim(0, max([*tokens, *([] if ceiling is None else [ceiling])]) * 1.12)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set_xlabel("sessions at once")
    axes.set_ylabel("tokens of a session, prompt and output")
    axes.set_title(title)
    axes.grid(visible=True, alpha=0.3)
    axes.legend(loc="best", frameon=False)


def _figure_class() -> Any:
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 (an extra, and slow to load)
    except ImportError:
        raise PlotError("needs matplotlib, which is not installed; pip install 'inference-inspector[plot]'") from None
    return Figure
