"""Two clocks: Unix time for stamps, and a monotonic one for durations, because the first may be set at any moment."""

from __future__ import annotations

import time
from collections.abc import Callable

Clock = Callable[[], float]


def monotonic_beside(clock: Clock) -> Clock:
    """The monotonic clock, in seconds, that goes with a clock of Unix time: the system's, or for any other clock that one itself."""
    return time.monotonic if clock is time.time else clock
