"""How much a server's counter rose in a stretch of time, across restarts of the server. Pure but for what it remembers."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field


@dataclass(slots=True)
class Rise:
    """The rises of one counter that were seen within the last `window` seconds."""

    window: float
    watched_since: float | None = None
    _rises: deque[float] = field(default_factory=deque)
    _last: float | None = None

    def see(self, value: float, now: float) -> None:
        """A known value of the counter, at `now` in monotonic seconds. One that fell began anew; how old the first one is that was seen, nobody knows."""
        if self._last is None:
            self.watched_since = now
        elif value > (self._last if value >= self._last else 0):
            self._rises.append(now)
        self._last = value

    def rose(self, now: float) -> bool:
        """Whether it rose within the window."""
        while self._rises and now - self._rises[0] > self.window:
            self._rises.popleft()
        return bool(self._rises)

    def covered(self, now: float) -> bool:
        """Whether it was watched for the whole window, so that "it did not rise" is known."""
        return self.watched_since is not None and now - self.watched_since >= self.window
