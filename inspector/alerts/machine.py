"""The state of one alert: what each look at a target makes of it. Pure.

Unknown neither fires nor resolves: it stops the clocks. A value that is back, but only just, keeps a firing alert firing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from inspector.alerts.status import AlertState


class Signal(StrEnum):
    """What one look says. `almost`: not bad, but not good enough to resolve what fires."""

    BAD = "bad"
    ALMOST = "almost"
    GOOD = "good"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of bad before an alert fires, of good before it resolves, and of unknown before that is told on its own."""

    before_firing: float = 60.0
    before_resolving: float = 120.0
    before_unknown: float = 600.0


@dataclass(frozen=True, slots=True)
class Track:
    """An alert between two looks. `since`: Unix seconds at which it came into its state; `signal`: what the last look said, `decided` the last that
    could tell; `run`: seconds that count towards leaving the state."""

    state: AlertState
    since: float
    signal: Signal
    decided: Signal
    run: float = 0.0

    @property
    def is_held(self) -> bool:
        return self.signal is Signal.UNKNOWN and self.state in (AlertState.PENDING, AlertState.FIRING)


def unseen(at: float) -> Track:
    """An alert that nothing is known of yet."""
    return held(AlertState.UNKNOWN, at)


def held(state: AlertState, at: float) -> Track:
    """An alert in a state that no look of ours has led to."""
    return Track(state, at, Signal.UNKNOWN, Signal.UNKNOWN)


def step(track: Track, signal: Signal, *, elapsed: float, at: float, before_firing: float, before_resolving: float) -> Track:
    """The alert after a look that came `elapsed` seconds after the last one, at Unix time `at`."""
    # Time counts where the last look that could tell said the same: of a server that answers every other time, half of it. What an unknown was, is not known.
    ran = elapsed if signal is track.decided else 0.0
    match track.state, signal:
        case AlertState.PENDING | AlertState.FIRING, Signal.UNKNOWN:
            return replace(track, signal=signal)
        case AlertState.FIRING, Signal.GOOD:
            return _run(track, signal, ran, before_resolving, AlertState.OK, at)
        case AlertState.FIRING, _:
            return replace(track, signal=signal, decided=signal, run=0.0)
        case AlertState.PENDING, Signal.BAD:
            return _run(track, signal, ran, before_firing, AlertState.FIRING, at)
        case _, Signal.BAD:
            return _entered(AlertState.FIRING if before_firing <= 0 else AlertState.PENDING, signal, at)
        case _:
            wanted = AlertState.UNKNOWN if signal is Signal.UNKNOWN else AlertState.OK
            return _entered(wanted, signal, track.since if wanted is track.state else at)


def _entered(state: AlertState, signal: Signal, at: float) -> Track:
    return Track(state, at, signal, signal)


def _run(track: Track, signal: Signal, ran: float, needed: float, then: AlertState, at: float) -> Track:
    run = track.run + ran
    return _entered(then, signal, at) if run >= needed else replace(track, signal=signal, decided=signal, run=run)
