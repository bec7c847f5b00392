"""The committed Grafana dashboards, as tests read them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

GRAFANA = Path(__file__).parents[1] / "deploy" / "grafana"
FILES = tuple(sorted((GRAFANA / "dashboards").glob("*.json")))

EVERYTHING = ".*"
"""What a variable stands for while "All" is chosen."""


def load(path: Path) -> dict[str, Any]:
    dashboard: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return dashboard


def panels(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    """The panels that show something: all but the headings."""
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def variables(dashboard: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {variable["name"]: variable for variable in dashboard["templating"]["list"]}


def queries(dashboard: dict[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """(panel, query) of every query."""
    yield from ((panel, query) for panel in panels(dashboard) for query in panel["targets"])


def substituted(text: str, target: str = "chat", rate_interval: str = "1m") -> str:
    """What Grafana makes of `text` with every variable on "All", and one target where only one can be chosen."""
    text = text.replace('target="$target"', f'target="{target}"').replace("$__rate_interval", rate_interval)
    for name in ("instance", "engine", "target", "pool"):
        text = text.replace(f"${name}", EVERYTHING)
    return text


def expressions(dashboard: dict[str, Any], target: str = "chat", rate_interval: str = "1m") -> list[str]:
    """Every PromQL expression of the dashboard, ready to be run. `target`: the one that a dashboard of one target shows."""
    return [substituted(query["expr"], target, rate_interval) for _, query in queries(dashboard)]
