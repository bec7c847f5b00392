"""The live screen: a title line, the targets with the worst first, and as much of each as the window has room for. Pure; asked anew whenever it is drawn."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from inspector.board import Entry
from inspector.cli.bars import ASCII, DRAWN, Signs, legend
from inspector.cli.panel import Line, Panel
from inspector.cli.parts import UNSURE
from inspector.cli.telling import STYLES
from inspector.clocks import Clock
from inspector.judge import RANK, Level
from inspector.views import FleetView, fleet, now_of, view

INDENT = 12
"""Columns before a line's text, for its label."""

NARROW = 50
"""Columns below which the labels get fewer of them."""

LONGEST_BAR = 24


@dataclass(slots=True)
class Screen:
    """What is to be seen: it reads the entries whenever it is drawn, into a window of any size.

    `first`: how many targets are scrolled away; `keys`: whether the keyboard is read; `empty`: what to say while there is no target; `bugs`: how
    often a target's task failed, which is ours."""

    entries: Callable[[], Sequence[Entry]]
    keys: bool = True
    empty: str = ""
    first: int = 0
    bugs: Callable[[], int] = lambda: 0
    clock: Clock = time.time
    monotonic: Clock = time.monotonic

    def scroll(self, steps: int) -> None:
        """Further down the list, or back; its ends hold."""
        self.first = max(0, min(self.first + steps, len(self.entries()) - 1))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width, height = options.max_width, options.height or console.height
        yield Text("\n", no_wrap=True, overflow="crop", end="").join(self.rows(console, width, height))

    def rows(self, console: Console, width: int, height: int) -> list[Text]:
        """The window's rows, at most `height` of them, none wider than `width`."""
        signs = DRAWN if console.encoding.startswith("utf") else ASCII
        now, monotonic = self.clock(), self.monotonic()
        seen = fleet(view(entry, now_of(entry, monotonic, now)) for entry in self.entries())
        cells = max(4, min(LONGEST_BAR, (width - INDENT) // 3))
        panels = [Panel(target, signs, cells) for target in seen.targets]
        room = max(0, height - 2)
        self.first = max(0, min(self.first, len(panels) - 1))
        # No target is scrolled away for which there is room.
        while self.first and _whole(panels[self.first - 1 :], console, width, room):
            self.first -= 1
        told = _wrapped(Text("" if panels else self.empty), console, width)
        told = told or _whole(panels[self.first :], console, width, room) or _filled(panels[self.first :], console, width, room)
        rows = [_title(seen, now, width), *told]
        rows = rows[: max(1, height - 1)]
        rows += [Text("")] * (height - 1 - len(rows))
        footer = [self._footer(signs, width)] if height > 1 else []
        return [_fitting(row, width) for row in rows + footer]

    def _footer(self, signs: Signs, width: int) -> Text:
        keys = "q quit, j k scroll" if self.keys else "Ctrl-C quit"
        above = f"; {self.first} above" if self.first else ""
        bugs = f"; {self.bugs()} failures of the inspector itself" if self.bugs() else ""
        return _at_both_ends(Text(f"{keys}{above}{bugs}", "dim"), Text(legend(signs), "dim"), width)


def _title(seen: FleetView, now: float, width: int) -> Text:
    count = len(seen.targets)
    title = Text.assemble(("inspector watch", "bold"), f"  {count} target{'' if count == 1 else 's'}", _levels(seen.levels))
    if seen.firing:
        title.append(f"; {len(seen.firing)} alert{'' if len(seen.firing) == 1 else 's'} firing", STYLES[Level.CRITICAL])
    return _at_both_ends(title, Text(time.strftime("%H:%M:%S", time.localtime(now)), "dim"), width)


def _levels(levels: Mapping[Level, int]) -> Text:
    """`: 1 critical, 2 ok`, the worst first."""
    told = [Text(f"{levels[level]} {level}", STYLES[level]) for level in reversed(RANK) if levels.get(level)]
    return Text(": ").append_text(Text(", ").join(told)) if told else Text()


def _filled(panels: Sequence[Panel], console: Console, width: int, rows: int) -> list[Text]:
    """What of the targets is told where they do not all fit: one row for each, or for as many as half of the rows hold; what is left goes to the worst
    first, without what nothing hangs on, then with it."""
    listed = min(len(panels), rows, 1 + rows // 2)
    chosen = [[told.brief] for told in panels[:rows]]
    spare = max(0, rows - listed)
    for short in (True, False):
        for number, told in enumerate(panels[:listed]):
            lines = _cut(_laid_out(told, console, width, short=short), told, spare + len(chosen[number]))
            if len(lines) > len(chosen[number]):
                spare -= len(lines) - len(chosen[number])
                chosen[number] = lines
    return _as_many_as_fit(chosen, panels, rows)


def _whole(panels: Sequence[Panel], console: Console, width: int, rows: int) -> list[Text]:
    """All that there is to tell, apart from one another if there is room; nothing where it does not fit."""
    laid: list[list[Text]] = []
    total = 0
    for told in panels:
        if total + len(panels) - len(laid) > rows:  # Each needs a row at least.
            return []
        laid.append(_laid_out(told, console, width))
        total += len(laid[-1])
    gap = [Text("")] if total + len(laid) <= rows else []
    return [row for lines in laid for row in gap + lines] if total <= rows else []


def _cut(lines: list[Text], told: Panel, rows: int) -> list[Text]:
    """The lines, or as many as fit and how many are missing."""
    if len(lines) <= rows:
        return lines
    return [*lines[: rows - 1], Text(f"  … {len(lines) - rows + 1} more lines; for all of them: inspector check {told.name}", "italic")] if rows > 2 else []


def _as_many_as_fit(chosen: Sequence[Sequence[Text]], panels: Sequence[Panel], rows: int) -> list[Text]:
    """What was chosen for the first of the panels, and how many of them are not told."""
    filled: list[Text] = []
    for number, lines in enumerate(chosen):
        if len(filled) + len(lines) + (number + 1 < len(panels)) > rows:
            return [*filled, *_more(panels[number:])]
        filled += lines
    return filled


def _more(panels: Sequence[Panel]) -> Iterator[Text]:
    yield Text.assemble((f"… and {len(panels)} more", "italic"), _levels(Counter(panel.level for panel in panels)))


def _laid_out(told: Panel, console: Console, width: int, *, short: bool = False) -> list[Text]:
    lines = told.lines()
    kept = [line for line in lines if not (short and line.extra)]
    if len(kept) < len(lines):
        kept.append(Line("unknown", Text(f"more that is not shown here: inspector check {told.name}", "dim"), UNSURE))
    return [told.title, *(row for line in kept for row in _with_label(line, console, width))]


def _with_label(line: Line, console: Console, width: int) -> Iterator[Text]:
    indent = INDENT if width >= NARROW else 2
    label = f"  {line.label}"
    if len(label) >= indent and line.label:
        body = Text.assemble((f"{line.label} ", line.style), line.body)
        label = ""
    else:
        body = line.body
    for number, row in enumerate(_wrapped(body, console, max(1, width - indent))):
        yield Text.assemble(((label if number == 0 else "").ljust(indent), line.style), row)


def _wrapped(text: Text, console: Console, width: int) -> Sequence[Text]:
    return list(_printable(text).wrap(console, width, overflow="fold")) if text else []


def _fitting(row: Text, width: int) -> Text:
    fitting = _printable(row)
    fitting.truncate(width, overflow="ellipsis")
    return fitting


def _at_both_ends(left: Text, right: Text, width: int) -> Text:
    """Both in one row, or the left one alone where there is no room for both."""
    gap = width - left.cell_len - right.cell_len
    return left.append(" " * gap).append_text(right) if gap > 1 else left


def _printable(text: Text) -> Text:
    """What a server or a file says is text: a control character would move the cursor, an invisible one would hide or turn other text."""
    shown = text.copy()
    shown.plain = "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text.plain)
    return shown
