"""From a real server's KV cache to what people are told: by Prometheus with the shipped rules, and by the inspector alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from alerting_real.load import full_pool
from engines.builds import CurrentBuild
from engines.server import Server
from monitoring import DEPLOY, Receiver, alertmanager, free_port, get, hastened, inspector, prometheus, query, receiver, wait_for
from tools import tool

pytestmark = [pytest.mark.engine, pytest.mark.stack]
pytest_plugins = ["engines.fixtures"]

KV = "InspectorKvHeadroomLow"

CONFIG = """
poll: {{interval: 300ms}}
alerts: {{for: 0, keep_firing_for: 1s}}
{alertmanager}
targets:
  - {{name: chat, engine: llamacpp, url: "{url}", logs: "{log}", may_wake: true}}
"""


@pytest.fixture
def server(current: CurrentBuild, tiny_model: Path, tmp_path: Path) -> Iterator[Server]:
    """One pool of 8,192 cells for four slots; the log tells the layout."""
    flags = ("--slots", "4", "--context", "8192", "--unified", "--metrics", "--verbosity", "4")
    with current.serve(tiny_model, tmp_path / "server.log", *flags) as started:
        yield started


@pytest.fixture
def people() -> Iterator[Receiver]:
    with receiver() as made:
        yield made


def configured(server: Server, folder: Path, alertmanager_url: str | None = None) -> Path:
    told = f'alertmanager: {{url: "{alertmanager_url}", resend: 5s}}' if alertmanager_url else ""
    file = folder / "inspector.yaml"
    file.write_text(CONFIG.format(url=server.url, log=server.log_path, alertmanager=told))
    return file


def active(url: str) -> set[tuple[str, str]]:
    """The alerts that fire in an Alertmanager."""
    return {(alert["labels"]["alertname"], alert["labels"]["severity"]) for alert in get(f"{url}/api/v2/alerts")}


def test_the_kv_alert_reaches_alertmanager_by_the_shipped_rules_and_resolves(server: Server, people: Receiver, tmp_path: Path):
    tool("prometheus")
    rules = [hastened(path, tmp_path) for path in sorted((DEPLOY / "prometheus").glob("*-rules.yaml"))]
    port, alerts_port, prometheus_port = free_port(), free_port(), free_port()
    with (
        alertmanager(tmp_path, people.url, alerts_port) as alerts,
        inspector(configured(server, tmp_path), port, tmp_path / "inspector.log"),
        prometheus(tmp_path, [f"127.0.0.1:{port}"], port=prometheus_port, alertmanager=alerts.url, rules=rules) as monitor,
    ):
        wait_for(lambda: bool(query(monitor.url, 'inspector_headroom_ratio{resource="kv",bound="guaranteed"} == 1')), "an idle pool is scraped")
        with full_pool(server.url):
            wait_for(lambda: (KV, "warning") in active(alerts.url), "the alert reaches Alertmanager")
            firing = query(monitor.url, f'ALERTS{{alertname="{KV}",severity="warning",alertstate="firing"}}')
            assert [(series["metric"]["target"], series["metric"]["engine"]) for series in firing] == [("chat", "llamacpp")]
        wait_for(lambda: "resolved" in people.of(KV, "warning"), "people are told that it resolved")
    assert people.of(KV, "warning") == ["firing", "resolved"]


def test_the_same_without_prometheus_and_over_a_restart_of_alertmanager(server: Server, people: Receiver, tmp_path: Path):
    tool("prometheus-alertmanager")
    port, alerts_port = free_port(), free_port()
    with alertmanager(tmp_path, people.url, alerts_port) as alerts, inspector(configured(server, tmp_path, alerts.url), port, tmp_path / "inspector.log"):
        with full_pool(server.url):
            wait_for(lambda: (KV, "warning") in active(alerts.url), "the alert reaches Alertmanager")
            wait_for(lambda: people.of(KV, "warning") == ["firing"], "people are told")
            alerts.stop()
            with alertmanager(tmp_path, people.url, alerts_port) as again:
                wait_for(lambda: (KV, "warning") in active(again.url), "the restarted Alertmanager is told")
                again.stop()
        # It ends while nobody is there to be told.
        ended = f"http://127.0.0.1:{port}/metrics"
        wait_for(lambda: f'alert="{KV}"' in metrics(ended) and not firing(ended), "the alert ends")
        with alertmanager(tmp_path, people.url, alerts_port) as last:
            wait_for(lambda: "resolved" in people.of(KV, "warning"), "people are told that it resolved")
            assert (KV, "warning") not in active(last.url)
    assert people.of(KV, "warning") == ["firing", "resolved"]


def metrics(url: str) -> str:
    return httpx.get(url, timeout=10.0, trust_env=False, verify=False).text


def firing(url: str) -> bool:
    lines = [line for line in metrics(url).splitlines() if f'alert="{KV}"' in line and 'state="firing"' in line and 'severity="warning"' in line]
    return any(line.endswith(" 1.0") for line in lines)
