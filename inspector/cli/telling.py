"""Targets on a terminal. What a server says is text here, never markup."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from inspector.board import Entry
from inspector.judge import Finding, Level
from inspector.views import Gauge, PoolView, Row, TargetView, view

WIDE = 10_000
"""Columns for what is no terminal."""

STYLES = {Level.OK: "green", Level.WARNING: "yellow", Level.CRITICAL: "bold red", Level.UNKNOWN: "magenta"}


class Terminal:
    """Writes to standard output, in colour only where that is a terminal."""

    def __init__(self, console: Console | None = None) -> None:
        # Into a pipe or a file lines go whole.
        self.console = console or Console(highlight=False, width=None if sys.stdout.isatty() else WIDE)

    def target(self, entry: Entry, now: float, *, every_field: bool = False) -> None:
        """A target with its headroom, its first fields (or all), and what is unknown with the remedy."""
        seen = view(entry, now)
        self._title(seen)
        for finding in seen.findings:
            self._finding(finding, name_pool=len(seen.pools) > 1)
        for pool in seen.pools:
            self._pool(pool, name_it=len(seen.pools) > 1, every_field=every_field)
        if seen.memory_gauge:
            self._gauges([seen.memory_gauge])
        self.rows(seen.memory)
        for note in seen.notes:
            self.console.print(Text(f"  note: {note}", "yellow"))

    def rows(self, rows: Sequence[Row]) -> None:
        """Known fields with source and age, then the unknown ones, those with the same remedy together."""
        table = Table(box=None, show_header=False, padding=(0, 1, 0, 2), pad_edge=True)
        for row in rows:
            if row.known:
                table.add_row(Text(row.name), Text(row.text), Text(row.where, "dim"))
        if table.row_count:
            self.console.print(table)
        by_remedy: dict[str, list[Row]] = {}
        for row in rows:
            if not row.known:
                by_remedy.setdefault(row.remedy, []).append(row)
        for remedy, unknown in by_remedy.items():
            for row in unknown:
                self.console.print(Text(f"  {row.name} ").append(row.text, STYLES[Level.UNKNOWN]))
            self.console.print(Text(f"    {remedy}", "dim"))

    def heading(self, text: str) -> None:
        self.console.print()
        self.console.print(Text(text, "bold"))

    def _title(self, seen: TargetView) -> None:
        about = f" {seen.engine} {seen.version}".rstrip()
        self.console.print(Text(seen.name, "bold").append(f" {seen.level.upper()}", STYLES[seen.level]).append(f" {seen.state},{about} at {seen.address}", ""))
        if seen.detail:
            self.console.print(Text(f"  {seen.detail}"))

    def _finding(self, finding: Finding, *, name_pool: bool) -> None:
        where = f"pool {finding.pool}: " if name_pool and finding.pool else ""
        self.console.print(Text("  ").append(str(finding.level), STYLES[finding.level]).append(f" {where}{finding.detail}", ""))

    def _pool(self, pool: PoolView, *, name_it: bool, every_field: bool) -> None:
        if name_it:
            self.console.print(Text(f"  pool {pool.id}", "bold"))
        self._gauges(pool.gauges)
        for line in pool.sessions:
            self.console.print(Text(f"  {line}"))
        rest = pool.others if every_field else [row for row in pool.others if not row.known]
        self.rows([*pool.headlines, *rest])
        if every_field:
            for layout in pool.layouts:
                self.console.print(Text(f"  KV layout{'' if len(pool.layouts) == 1 else ', one of'}: {layout}"))
            for slot in pool.slots:
                self.console.print(Text("  " + ", ".join(f"{row.name} {row.text}" for row in slot), "dim"))
            if pool.not_offered:
                self.console.print(Text(f"  not offered by this engine: {', '.join(pool.not_offered)}", "dim"))

    def _gauges(self, gauges: Sequence[Gauge]) -> None:
        for gauge in gauges:
            told = f"{gauge.text} free" if gauge.free is not None else f"{gauge.text}: {gauge.remedy}"
            self.console.print(Text(f"  {gauge.name}: {told}{f' ({gauge.tokens})' if gauge.tokens else ''}"))
