"""What `deploy/` gives to Prometheus and Alertmanager, tried with their own tools: the rules do what docs/alerts.md says, and their tests can fail."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

import promql
from inspector.alerts import catalogue
from inspector.alerts.catalogue import BY_NAME, RUNBOOKS
from inspector.alerts.conditions import HYSTERESIS
from inspector.alerts.machine import Timing
from inspector.alerts.status import AlertState
from inspector.board import Board, TargetInfo
from inspector.headroom import RESOURCES
from inspector.judge import DEFAULT_THRESHOLDS
from inspector.metrics import METRICS, SLOT_METRICS, OwnStatus, own_families
from inspector.model import State
from inspector.notify import Deliveries
from inspector.web.app import Services, application
from prometheus_cases import CASES, END, KINDS, OWN, Case, Fires, notation, over, promtool_file, series, summary, target, watched
from tools import tool

ROOT = Path(__file__).parent.parent
PROMETHEUS = ROOT / "deploy" / "prometheus"
RULE_FILES = ("alerting-rules.yaml", "recording-rules.yaml")
RULES: Mapping[str, list[dict[str, Any]]] = {
    name: [rule for group in yaml.safe_load((PROMETHEUS / name).read_text())["groups"] for rule in group["rules"]] for name in RULE_FILES
}
EVERY = [rule for rules in RULES.values() for rule in rules]
WATCHERS = [rule for rule in RULES["alerting-rules.yaml"] if "record" in rule]
ALERTS = {(rule["alert"], rule["labels"]["severity"]): rule for rule in RULES["alerting-rules.yaml"] if "alert" in rule}
IDS = ["-".join(key) for key in ALERTS]

OWN_STATUS = OwnStatus(reloaded=True, reloaded_at=1.0, deliveries=Deliveries())
"""With everything that the inspector can tell of itself."""

Rule = Mapping[str, Any]


def run(*words: str, given: str | None = None, cwd: Path = PROMETHEUS) -> subprocess.CompletedProcess[str]:
    return subprocess.run([tool(words[0]), *words[1:]], input=given, capture_output=True, text=True, cwd=cwd, timeout=60, check=False)


def tried(folder: Path, rules: list[Rule], tests: Mapping[str, Any]) -> subprocess.CompletedProcess[str]:
    """The tests, run by promtool with these rules alone. JSON is YAML."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "rules.yaml").write_text(json.dumps({"groups": [{"name": "inspector", "rules": rules}]}))
    (folder / "tests.yaml").write_text(json.dumps({"rule_files": ["rules.yaml"], **tests}))
    return run("promtool", "test", "rules", "tests.yaml", cwd=folder)


def seconds(duration: str | None) -> float:
    """A duration of a rule; none is no time."""
    return 0.0 if duration is None else float(duration[:-1]) * {"s": 1, "m": 60}[duration[-1]]


# The files as they are


@pytest.mark.parametrize("words", [["check", "rules", *RULE_FILES], ["check", "config", "prometheus.yaml"]], ids=["rules", "config"])
def test_prometheus_takes_the_files(words):
    checked = run("promtool", *words)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "duplicate" not in checked.stdout + checked.stderr


def test_alertmanager_takes_its_file():
    checked = run("amtool", "check-config", str(ROOT / "deploy" / "alertmanager" / "alertmanager.yaml"))
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_prometheus_finds_no_fault_in_our_exposition():
    checked = run("promtool", "check", "metrics", given=(ROOT / "tests" / "golden" / "metrics.prom").read_text())
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")


def test_the_alerts_are_those_of_the_inspector_and_three_about_itself():
    of_inspector = {(kind.name, severity) for kind in catalogue.KINDS for severity in kind.severities}
    assert set(ALERTS) == of_inspector | {(name, severity) for name, (severity, _) in OWN.items()}


def test_inhibition_names_alerts_and_labels_that_exist():
    """A name that is misspelled there would hide nothing, and nobody would see it."""
    rules = yaml.safe_load((ROOT / "deploy" / "alertmanager" / "alertmanager.yaml").read_text())["inhibit_rules"]
    patterns = [re.split(r"\s*(?:=~|!~|!=|=)\s*", matcher) for rule in rules for key in ("source_matchers", "target_matchers") for matcher in rule[key]]
    named = [pattern for label, value in patterns for pattern in value.split("|") if label == "alertname"]
    assert named
    assert all(any(re.fullmatch(pattern, alert) for alert, _ in ALERTS) for pattern in named)
    assert {label for label, _ in patterns} == {"alertname", "severity", "instance"}
    assert {label for rule in rules for label in rule["equal"]} <= {"alertname", "job", "instance", "target", "pool", "session"}


def test_each_scrape_job_is_one_that_the_alert_about_the_inspector_looks_for():
    config = yaml.safe_load((PROMETHEUS / "prometheus.yaml").read_text())
    matchers = [m for s in promql.read(ALERTS["InspectorDown", "critical"]["expr"]).selectors for m in s.matchers]
    assert set(matchers) == {("job", "=~", ".*inspector.*")}
    assert all("inspector" in job["job_name"] for job in config["scrape_configs"])
    assert set(config["rule_files"]) == set(RULE_FILES)


def test_the_job_about_the_inspector_itself_takes_what_has_no_target():
    """That is all of its own metrics, and none of those that the probes bring."""
    config = yaml.safe_load((PROMETHEUS / "prometheus.yaml").read_text())
    (rule,) = next(job["metric_relabel_configs"] for job in config["scrape_configs"] if job["job_name"] == "inspector-self")
    assert rule == {"source_labels": ["target"], "regex": ".+", "action": "drop"}
    assert not any("target" in sample.labels for family in own_families(OWN_STATUS) for sample in family.samples)


# What the rules say


@pytest.mark.parametrize("key", ALERTS, ids=IDS)
def test_times_and_words_are_those_of_the_inspector(key):
    """Both may be in use side by side, so they must not differ."""
    alert, _ = key
    rule, kind, timing = ALERTS[key], BY_NAME.get(alert), Timing()
    assert rule["annotations"]["summary"] == summary(alert)
    assert rule["annotations"]["runbook_url"] == f"{RUNBOOKS}#{alert.lower()}"
    assert seconds(rule["keep_firing_for"]) == timing.before_resolving
    if kind is catalogue.UNKNOWN:
        assert seconds(rule["for"]) == timing.before_unknown
    elif "inspector_alert_state" in promql.names(rule["expr"]):
        assert "for" not in rule, "the inspector has waited already"
    elif kind is not None:
        assert seconds(rule.get("for")) == (timing.before_firing if kind.before_firing is None else kind.before_firing)
    if kind is not None and kind.window:
        assert {seconds(window) for window in re.findall(r"\[(\w+)\]|offset (\w+)", rule["expr"]) for window in window if window} == {kind.window}


@pytest.mark.parametrize("alert", ["InspectorKvHeadroomLow", "InspectorMemoryHeadroomLow"])
@pytest.mark.parametrize("severity", ["warning", "critical"])
def test_thresholds_are_the_defaults_of_the_inspector(alert, severity):
    resource = BY_NAME[alert].resource
    mark = getattr(DEFAULT_THRESHOLDS[resource], severity)
    low, back = re.findall(r"([<>]=?) (\d\.\d+)", ALERTS[alert, severity]["expr"])
    assert low[0] == "<"
    assert float(low[1]) == mark
    assert back[0] == ">="
    assert float(back[1]) == pytest.approx(mark + HYSTERESIS)


def test_only_resources_with_a_default_threshold_have_one_in_the_rules():
    """All others are compared by the inspector, which knows its configuration."""
    compared = {m[2] for rule in ALERTS.values() for s in promql.read(rule["expr"]).selectors if s.name == "inspector_headroom_ratio" for m in s.matchers}
    assert compared - {"guaranteed", "possible"} == set(DEFAULT_THRESHOLDS)


ABOUT_ALL = {"job", "instance"}


def labels_of_metrics() -> dict[str, set[str]]:
    """Each metric that may be named, and its labels: ours, those that the rules record, and Prometheus' own."""
    found = {metric.name: {*metric.labels, "target", "engine", *ABOUT_ALL} for metric in METRICS + SLOT_METRICS}
    found |= {sample.name: {*sample.labels, *ABOUT_ALL} for family in own_families(OWN_STATUS) for sample in family.samples}
    ours = set().union(*found.values())
    found |= {"up": ABOUT_ALL, "ALERTS": {"alertname", "alertstate", *ours}}
    recorded = {rule["record"]: rule["expr"] for rule in EVERY if "record" in rule}
    for name, expr in recorded.items():
        found[name] = set().union(*(found[source] for source in promql.names(expr) if source not in recorded))
    return found


@pytest.mark.parametrize("rule", EVERY, ids=[rule.get("alert", rule.get("record")) for rule in EVERY])
def test_an_expression_names_only_what_exists(rule):
    known = labels_of_metrics()
    for selector in promql.read(rule["expr"]).selectors:
        assert selector.name in known
        assert {label for label, _, _ in selector.matchers} <= known[selector.name], selector
    assert promql.labels(rule["expr"]) <= set().union(*(known[name] for name in promql.names(rule["expr"])))


def test_a_matched_value_is_one_that_the_metric_has():
    values = {
        ("inspector_target_state", "state"): {str(state) for state in State},
        ("inspector_alert_state", "state"): {str(state) for state in AlertState},
        ("inspector_alert_state", "alert"): set(BY_NAME),
        ("inspector_headroom_ratio", "resource"): set(RESOURCES),
        ("inspector_headroom_ratio", "bound"): {"guaranteed", "possible"},
        ("ALERTS", "alertstate"): {"firing"},
    }
    for rule in EVERY:
        for selector in promql.read(rule["expr"]).selectors:
            for label, operator, value in selector.matchers:
                allowed = values.get((selector.name, label))
                assert allowed is None or set(value.split("|") if operator == "=~" else [value]) <= allowed, rule


@pytest.mark.parametrize("key", ALERTS, ids=IDS)
def test_an_alert_holds_itself_and_no_other(key):
    own = {("alertname", "=", key[0]), ("severity", "=", key[1]), ("alertstate", "=", "firing")}
    held = [set(s.matchers) for s in promql.read(ALERTS[key]["expr"]).selectors if s.name == "ALERTS"]
    assert held == ([] if key[0] == "InspectorDown" else [own])


def test_recorded_names_say_level_metric_and_operation():
    assert all(re.fullmatch(r"[a-z_]+:inspector_[a-z_]+:[a-z0-9_]+", rule["record"]) for rule in EVERY if "record" in rule)


# What the rules do


def test_every_alert_has_every_kind_of_case():
    assert set(CASES) == set(ALERTS)
    for key, cases in CASES.items():
        assert {case.kind for case in cases} >= set(KINDS), key
        assert all(case.fires for case in cases if case.kind == "bad"), key
        assert not any(case.fires for case in cases if case.kind == "good"), key
        assert any(case.fires for case in cases if case.kind == "unknown"), key


@pytest.mark.parametrize("key", ALERTS, ids=IDS)
def test_an_alert_does_as_its_cases_say(key, tmp_path):
    done = tried(tmp_path, [*WATCHERS, ALERTS[key]], promtool_file(*key, CASES[key]))
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_is_critical_may_become_a_warning(tmp_path):
    """Both severities side by side, in the file as it is: the mild one does not keep the grave one."""
    labels = {**target("better"), "pool": "0", "resource": "kv"}
    better = over((15, 0.03), (END, 0.1))
    ratios = {k: v for bound in ("guaranteed", "possible") for k, v in series("inspector_headroom_ratio", {**labels, "bound": bound}, better).items()}
    told = "at most {} of the KV cache of pool 0 is left for new work."
    fires = (Fires(1, 15, told.format("3%")), Fires(15, END, told.format("10%")))
    case = Case("bad", "better", labels, {**watched("better"), **ratios}, fires)
    tests = promtool_file("InspectorKvHeadroomLow", "warning", [case])
    for test in tests["tests"][0]["alert_rule_test"]:
        if 1 <= int(test["eval_time"].removesuffix("m")) < 17:
            # Until it is over, the critical one says what it saw last.
            milder = test["exp_alerts"][0]
            words = {**milder["exp_annotations"], "description": "better: " + told.format("3%")}
            test["exp_alerts"].append({"exp_labels": {**milder["exp_labels"], "severity": "critical"}, "exp_annotations": words})
    done = tried(tmp_path, RULES["alerting-rules.yaml"], tests)
    assert done.returncode == 0, done.stdout + done.stderr


def test_sums_are_over_what_is_known(tmp_path):
    """Two servers; of the second nobody knows how much KV cache it has, nor how much of a third is used."""
    known = [("a", "kv_used_tokens", 10), ("a", "kv_capacity_tokens", 100), ("b", "kv_used_tokens", 90), ("c", "kv_capacity_tokens", 1000)]
    inputs = {k: v for name, metric, value in known for k, v in series(f"inspector_{metric}", {**target(name), "pool": "0"}, over((END, value))).items()}
    for field, value in (("slots", 1), ("kv_capacity_tokens", 0)):
        inputs |= series("inspector_field_known", {**target("b"), "pool": "0", "field": field}, over((END, value)))
    for bound, value in (("guaranteed", 0.25), ("possible", 0.5)):
        for pool, more in (("0", 0.0), ("1", 0.25)):
            inputs |= series("inspector_headroom_ratio", {**target("a"), "pool": pool, "resource": "kv", "bound": bound}, over((END, value + more)))
    where = '{engine="llamacpp", instance="host:9836", job="inspector", target="%s"%s}'
    expected = {
        "engine:inspector_kv_used_tokens:ratio": [('{engine="llamacpp"}', 0.1)],
        "target:inspector_field_unknown:sum": [(where % ("b", ""), 1)],
        "target_resource_bound:inspector_headroom_ratio:min": [
            (where % ("a", f', resource="kv", bound="{bound}"'), value) for bound, value in (("guaranteed", 0.25), ("possible", 0.5))
        ],
        "resource:inspector_headroom_ratio:min": [('{resource="kv"}', 0.25)],
        "engine:inspector_slots_busy:ratio": [],
    }
    checks = [
        {"expr": name, "eval_time": "10m", "exp_samples": [{"labels": name + labels, "value": value} for labels, value in samples]}
        for name, samples in expected.items()
    ]
    inputs_told = [{"series": key, "values": notation(samples)} for key, samples in inputs.items()]
    tests = {"evaluation_interval": "1m", "tests": [{"interval": "1m", "input_series": inputs_told, "promql_expr_test": checks}]}
    done = tried(tmp_path, RULES["recording-rules.yaml"], tests)
    assert done.returncode == 0, done.stdout + done.stderr


# What the cases notice

COMPARISON = re.compile(r" (?:<=|>=|==|!=|<|>) (?!bool)[\w.]+")
SECOND_LINE = re.compile(r"\n\s+(?:unless|and) on \(.*")
HOLD = re.compile(r"\nor\b.*", re.DOTALL)


def broken(rule: Rule) -> Iterator[tuple[str, Rule]]:
    """The rule with one thing of it taken away."""
    for gone in ("for", "keep_firing_for"):
        if gone in rule:
            yield gone, {key: value for key, value in rule.items() if key != gone}
    expr = rule["expr"]
    parts = [*COMPARISON.finditer(expr), *SECOND_LINE.finditer(expr), *HOLD.finditer(expr)]
    assert "record" in rule or HOLD.search(expr)
    for part in parts:
        yield part.group().strip().split("\n")[0], {**rule, "expr": expr[: part.start()] + expr[part.end() :]}


def unnoticed(folder: Path, mutants: Mapping[str, list[Rule]], key: tuple[str, str]) -> list[str]:
    """Mutants with which all cases still come out right."""
    tests = promtool_file(*key, CASES[key])
    tool("promtool")

    def survives(numbered: tuple[int, str]) -> bool:
        number, name = numbered
        done = tried(folder / str(number), mutants[name], tests)
        assert done.returncode == 0 or "got:" in done.stdout + done.stderr, f"{name} is no rule any more: {done.stdout}{done.stderr}"
        return done.returncode == 0

    with ThreadPoolExecutor(2) as pool:
        names = list(mutants)
        return [name for name, survived in zip(names, pool.map(survives, enumerate(names)), strict=True) if survived]


@pytest.mark.stack
@pytest.mark.parametrize("key", ALERTS, ids=IDS)
def test_an_alert_without_its_threshold_time_or_hold_is_noticed(key, tmp_path):
    mutants = {f"{i} {what}": [*WATCHERS, mutant] for i, (what, mutant) in enumerate(broken(ALERTS[key]))}
    assert len(mutants) >= 3
    assert unnoticed(tmp_path, mutants, key) == []


@pytest.mark.stack
@pytest.mark.parametrize(
    ("record", "key"),
    [
        ("target:inspector_watched:max", ("InspectorTargetDown", "critical")),
        ("pool:inspector_watched:max", ("InspectorKvHeadroomLow", "warning")),
        ("alert:inspector_watched:max", ("InspectorSlotsHeadroomLow", "warning")),
    ],
    ids=["target", "pool", "alert"],
)
def test_a_wrong_list_of_what_is_watched_is_noticed(record, key, tmp_path):
    rule = next(rule for rule in WATCHERS if rule["record"] == record)
    mutants = {f"{i} {what}": [mutant if other is rule else other for other in WATCHERS] + [ALERTS[key]] for i, (what, mutant) in enumerate(broken(rule))}
    assert unnoticed(tmp_path, mutants, key) == []


# Service discovery


async def listed(*names: str) -> str:
    """What the inspector answers on /sd."""
    of_targets = Board()
    for name in names:
        of_targets.add(TargetInfo(name, "", "http://127.0.0.1:8080", stale_after=15.0))

    async def no_probe(_: str) -> bool:
        return True

    app = application(of_targets, Services(no_probe, lambda: ""))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://inspector.test:9836") as asking:
        return (await asking.get("/sd")).text


@pytest.mark.anyio
async def test_prometheus_makes_each_target_of_sd_an_instance(tmp_path):
    """With the answer of the inspector's own /sd, and the relabelling of the shipped job: `promtool` finds what Prometheus would scrape."""
    config = yaml.safe_load((PROMETHEUS / "prometheus.yaml").read_text())
    job = next(job for job in config["scrape_configs"] if job["job_name"] == "inspector-probe")
    (discovery,) = job.pop("http_sd_configs")
    assert discovery["url"].endswith("/sd")
    (tmp_path / "sd.json").write_text(await listed("chat", "night"))
    asked = {**job, "file_sd_configs": [{"files": [str(tmp_path / "sd.json")]}]}
    (tmp_path / "prometheus.yaml").write_text(json.dumps({"scrape_configs": [asked]}))
    found = run("promtool", "check", "service-discovery", "--timeout=2s", "prometheus.yaml", "inspector-probe", cwd=tmp_path)
    assert found.returncode == 0, found.stdout + found.stderr
    scraped = {entry["labels"]["instance"]: entry["labels"] for entry in json.loads(found.stdout)}
    assert set(scraped) == {"chat", "night"}
    for name, labels in scraped.items():
        assert (labels["__address__"], labels["__metrics_path__"], labels["__param_target"]) == ("inspector.test:9836", "/probe", name)
        assert labels["job"] == "inspector-probe"


# The runbook


def runbook() -> dict[str, str]:
    sections = re.split(r"^## (.+)$", (ROOT / "docs" / "alerts.md").read_text(), flags=re.MULTILINE)
    return dict(zip(sections[1::2], sections[2::2], strict=True))


@pytest.mark.parametrize("alert", sorted({alert for alert, _ in ALERTS}))
def test_every_alert_has_a_section_in_the_runbook(alert):
    """What it means, what to look at, what to do; and per engine where it is about an engine."""
    section = runbook()[alert]
    for part in ("**It means**", "**Look at**", "**Do**"):
        assert part in section
    if alert not in OWN:
        assert all(engine in section for engine in ("llama.cpp", "vLLM", "MLX LM"))


def test_the_runbook_tells_of_no_alert_and_no_metric_that_is_not_there():
    text = (ROOT / "docs" / "alerts.md").read_text()
    assert set(re.findall(r"\bInspector[A-Z]\w+", text)) == {alert for alert, _ in ALERTS}
    assert set(re.findall(r"\binspector_[a-z0-9_]+", text)) <= set(labels_of_metrics())


# The reader of expressions


@pytest.mark.parametrize(
    ("expr", "names", "labels"),
    [
        ("up", {"up"}, set()),
        ('a{x="1", y=~"b|c"} > 0.5', {"a"}, {"x", "y"}),
        ("sum by (x, y) (rate(a_total[5m])) / on (x) group_left (z) b", {"a_total", "b"}, {"x", "y", "z"}),
        ("sum(a) without (x)", {"a"}, {"x"}),
        ('a{x="b{c}\\" and d"} offset 5m or -max_over_time(e:f:g[10m:1m] @ start())', {"a", "e:f:g"}, {"x"}),
        ('topk(3, a{target=~"$target"}[$__rate_interval]) # and no comment', {"a"}, {"target"}),
        ("histogram_quantile(0.9, sum by (le) (rate(a_bucket[${window}]))) >= bool 1e3", {"a_bucket"}, {"le"}),
        ('{__name__=~"inspector_.+"}', set(), {"__name__"}),
        ("absent(a) unless ignoring (x) b ^ NaN + Inf", {"a", "b"}, {"x"}),
        ("count_values('v', a) and b atan2 1", {"a", "b"}, set()),
        ("by + sum_of_all", {"sum_of_all"}, set()),
    ],
)
def test_an_expression_is_read_as_prometheus_reads_it(expr, names, labels):
    assert promql.names(expr) == names
    assert promql.labels(expr) == labels


@pytest.mark.parametrize("expr", ["a{x=}", "a{x", "a ~ b", "sum by (x"])
def test_what_is_no_expression_is_refused(expr):
    with pytest.raises(ValueError, match=r"\w"):
        promql.read(expr)
