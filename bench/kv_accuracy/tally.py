"""Counts of predictions held against an engine, by class of models and by half: cases that the formulas were written with, and cases made afterwards."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Tally:
    """`told`: lines to print below the table, of what was not exact."""

    counts: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    told: list[str] = field(default_factory=list)

    def add(self, half: str, kind: str, verdict: str, detail: str = "") -> None:
        """`verdict`: exact, unknown, wrong, or refused where the engine itself does not run the case."""
        self.counts[half, kind, verdict] += 1
        if verdict != "exact":
            self.told.append(f"{verdict}: {half} {kind}: {detail}")

    def report(self, engine: str) -> int:
        """Prints the table; 1 if any prediction was wrong, or if nothing was exact."""
        print(f"{engine:<14} {'class':<26} {'half':<7} {'cases':>6} {'exact':>6} {'unknown':>8} {'wrong':>6} {'refused':>8}")
        for half, kind in sorted({(half, kind) for half, kind, _ in self.counts}):
            self._row("", kind, half, [self.counts[half, kind, verdict] for verdict in VERDICTS])
        for half in sorted({half for half, _, _ in self.counts}):
            self._row("", "all", half, [self._all(half, verdict) for verdict in VERDICTS])
        print(*self.told, sep="\n")
        halves = {half for half, _, _ in self.counts}
        return int(any(self._all(half, "wrong") for half in halves) or not all(self._all(half, "exact") for half in halves) or not halves)

    def _all(self, half: str, verdict: str) -> int:
        return sum(number for (of, _, what), number in self.counts.items() if (of, what) == (half, verdict))

    @staticmethod
    def _row(first: str, kind: str, half: str, numbers: list[int]) -> None:
        exact, unknown, wrong, refused = numbers
        print(f"{first:<14} {kind:<26} {half:<7} {sum(numbers):>6} {exact:>6} {unknown:>8} {wrong:>6} {refused:>8}")


VERDICTS = ("exact", "unknown", "wrong", "refused")
