"""What is to be told to Alertmanager: all that fires, again and again, and each end once. Pure but for what it remembers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from inspector.notify.notice import Labels, Notice

MOST_ENDS = 10_000
"""Ends that are kept while Alertmanager cannot be reached; of more, the oldest are dropped: Alertmanager lets those expire by itself."""


class Outbox:
    """`dropped` counts ends that were given up."""

    def __init__(self, most_ends: int = MOST_ENDS) -> None:
        self.dropped = 0
        self._most_ends = most_ends
        self._firing: dict[Labels, Notice] = {}
        self._ended: dict[Labels, Notice] = {}

    def put(self, firing: Iterable[Notice], ended: Iterable[Notice]) -> None:
        """All that fires now, and what has ended since the last time."""
        self._firing = {notice.labels: notice for notice in firing}
        for notice in ended:
            self._ended.pop(notice.labels, None)
            self._ended[notice.labels] = notice
        for labels in self._firing:
            self._ended.pop(labels, None)  # It fires anew: its end is not to be told any more.
        while len(self._ended) > self._most_ends:
            self._ended.pop(next(iter(self._ended)))
            self.dropped += 1

    @property
    def waiting(self) -> int:
        """Ends that were not delivered yet."""
        return len(self._ended)

    def batch(self) -> list[Notice]:
        """All that is to be told now; the ends first."""
        return [*self._ended.values(), *self._firing.values()]

    def settled(self, batch: Sequence[Notice], *, taken: bool = True) -> None:
        """These were taken, or refused for good: an end among them is not told again."""
        for notice in batch:
            if self._ended.get(notice.labels) is notice:
                del self._ended[notice.labels]
                self.dropped += not taken
