"""`inspector adapters`: what is installed, what it may ask, what it offers."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from inspector.contract import Adapter, Deadline, Route
from inspector.model import MEMORY_FIELDS, POOL_FIELDS
from inspector.registry import load_adapters


def adapters() -> int:
    """Lists the adapters. Exits with 1 when one of them cannot be used, or when there is none."""
    registry = load_adapters()
    console = Console(highlight=False)
    for adapter in registry.adapters.values():
        _tell(console, adapter)
    for broken in registry.broken:
        console.print(f"[bold red]{escape(broken.name)}[/] cannot be used: {escape(broken.problem)} ({escape(broken.distribution)})")
    if not registry.adapters:
        console.print("no adapter is installed")
    return 0 if registry.adapters and not registry.broken else 1


def _tell(console: Console, adapter: Adapter[Any]) -> None:
    offered = adapter.offers(None)
    console.print(f"[bold]{escape(adapter.name)}[/]  {escape(adapter.title)}, polled every {adapter.interval:g} s")
    table = Table(box=None, show_header=False, padding=(0, 1, 0, 2))
    for number, route in enumerate(adapter.routes):
        table.add_row("may ask" if number == 0 else "", _route(route))
    table.add_row("offers", ", ".join(name for name in (*POOL_FIELDS, *MEMORY_FIELDS) if name in offered))
    table.add_row("not", ", ".join(name for name in (*POOL_FIELDS, *MEMORY_FIELDS) if name not in offered))
    console.print(table)


def _route(route: Route) -> str:
    query = "&".join([f"{name}={value}" for name, value in route.required] + [f"[{name}=…]" for name in sorted(route.allowed)])
    every = {0.0: "every poll", None: "once for each server process"}.get(route.every.seconds, f"every {route.every.seconds:g} s")
    waits = ", may wait behind a decode" if route.deadline is Deadline.MAY_BLOCK else ""
    return escape(f"GET {route.path}{'?' + query if query else ''}  ({every}{waits})")
