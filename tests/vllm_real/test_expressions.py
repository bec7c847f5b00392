"""Every expression of every dashboard and rule, asked of a real Prometheus that scraped an inspector of three real engines at work."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from threading import Event

import pytest
import yaml

import engines.mlx
import engines.vllm
from dashboards import FILES, expressions, load
from engines import client
from engines.builds import CurrentBuild
from engines.server import Server
from monitoring import DEPLOY, free_port, inspector, prometheus, query, wait_for
from promql import read
from tools import tool

pytestmark = [pytest.mark.engine, pytest.mark.stack]
pytest_plugins = ["engines.fixtures"]

FLAGS = ("--max-num-seqs", "2", "--no-enable-prefix-caching")
TARGETS = ("llama", "vllm", "mlx")
RULES = tuple(sorted((DEPLOY / "prometheus").glob("*-rules.yaml")))

CONFIG = """
poll: {{interval: 500ms}}
sessions: {{chat: {{prompt: 100, output: 28}}}}
thresholds: {{slots: {{warning: 0.1, critical: 0.05}}, context: {{warning: 0.1, critical: 0.05}}, sessions: {{chat: {{warning: 1, critical: 1}}}}}}
targets:
  - {{name: llama, engine: llamacpp, url: "{llama}", logs: "{llama_log}", may_wake: true, facts: {{version: b11549}}}}
  - {{name: vllm, engine: vllm, url: "{vllm}", logs: "{vllm_log}", facts: {{slots: 7}}}}
  - {{name: mlx, engine: mlx, url: "{mlx}", logs: "{mlx_log}", interval: 500ms}}
"""

EMPTY_HERE = {
    "ALERTS": "nothing fires",
    "inspector_config_last_reload_successful": "the configuration was not loaded again",
}
"""Series that three healthy servers do not have."""


@pytest.fixture(scope="module")
def monitor(current: CurrentBuild, tiny_model: Path, server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Prometheus over an inspector of three engines that work; a second of traffic for each minute that a rule looks back."""
    tool("prometheus")
    folder = tmp_path_factory.mktemp("three")
    with ExitStack() as stack:
        enter = stack.enter_context
        llama = enter(current.serve(tiny_model, folder / "llama.log", "--slots", "2", "--context", "4096", "--unified", "--metrics", "--verbosity", "4"))
        mlx = enter(engines.mlx.serve(engines.mlx.write_model(folder / "model"), folder / "mlx.log"))
        config, port = folder / "inspector.yaml", free_port()
        logs = {"llama_log": llama.log_path, "vllm_log": server.log_path, "mlx_log": mlx.log_path}
        config.write_text(CONFIG.format(llama=llama.url, vllm=server.url, mlx=mlx.url, **logs))
        enter(inspector(config, port, folder / "inspector.log"))
        enter(busy(llama.url, server.url, mlx.url))
        prom = enter(prometheus(folder, [f"127.0.0.1:{port}"], port=free_port(), rules=RULES))
        wait_for(lambda: len(query(prom.url, "inspector_target_up == 1")) == len(TARGETS), "three targets are up", 120)
        wait_for(lambda: bool(query(prom.url, 'rate(inspector_generation_tokens_total{target="vllm"}[20s]) > 0')), "vLLM is seen to generate", 60)
        wait_for(lambda: bool(query(prom.url, 'inspector_kv_reclaimable_bytes{target="mlx"}')), "MLX LM has told what it retains", 60)
        yield prom.url


class busy:
    """Short requests to all three, with pauses in seconds: the machine has few cores."""

    def __init__(self, llama: str, vllm: str, mlx: str) -> None:
        self.done = Event()
        self.work = [
            (0.5, lambda: client.complete(llama, 60, 1000)),
            (1.0, lambda: engines.vllm.complete(vllm, 60, 40)),
            (4.0, lambda: engines.mlx.complete(mlx, "abc" * 150, 5)),
        ]

    def __enter__(self) -> None:
        self.threads = ThreadPoolExecutor(max_workers=len(self.work))
        self.running = [self.threads.submit(self.again, *work) for work in self.work]

    def __exit__(self, *_: object) -> None:
        self.done.set()
        self.threads.shutdown()

    def again(self, pause, ask) -> None:
        while not self.done.is_set():
            ask()
            self.done.wait(pause)


def watched() -> list[tuple[str, str]]:
    """(rule, expression) of every rule."""
    groups = [group for path in RULES for group in yaml.safe_load(path.read_text())["groups"]]
    return [(rule.get("alert") or rule["record"], rule["expr"]) for group in groups for rule in group["rules"]]


def never_seen(monitor: str, alternatives: dict[str, list[str]], seconds: float = 90.0) -> list[str]:
    """Of named expressions, given in all their variants, those of which none returned data in time: some have any only while a request runs."""
    deadline = time.monotonic() + seconds
    missing = dict(alternatives)
    while missing and time.monotonic() < deadline:
        missing = {name: variants for name, variants in missing.items() if not any(query(monitor, variant) for variant in variants)}
    return sorted(missing)


def test_every_expression_of_the_dashboards_returns_data(monitor: str):
    """From one of the engines: a panel about preemptions has no line where an engine has none."""
    shown = {}
    for path in FILES:
        for variants in zip(*(expressions(load(path), target, "20s") for target in TARGETS), strict=True):
            shown[f"{path.stem}: {variants[0]}"] = list(variants)
    assert never_seen(monitor, shown) == []


def test_every_series_that_a_rule_looks_at_is_there(monitor: str):
    series = {}
    for _, expression in watched():
        query(monitor, expression)  # Prometheus can evaluate it.
        for selector in read(expression).selectors:
            if selector.name not in EMPTY_HERE:
                matchers = ",".join(f'{label}{sign}"{value}"' for label, sign, value in selector.matchers)
                series[f"{selector.name}{{{matchers}}}"] = [f"{selector.name}{{{matchers}}}"]
    assert never_seen(monitor, series) == []


def test_no_rule_fires_for_healthy_servers(monitor: str):
    assert [series["metric"]["alertname"] for series in query(monitor, 'ALERTS{alertstate="firing"}')] == []
