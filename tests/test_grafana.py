"""The Grafana dashboards: made from their tables, true to the metrics, and silent about what nobody measured."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

import promql
from dashboards import FILES, GRAFANA, expressions, load, panels, queries, substituted, variables
from inspector.alerts.status import AlertState
from inspector.judge import DEFAULT_THRESHOLDS
from inspector.metrics import METRICS, SLOT_METRICS, OwnStatus, own_families
from inspector.model import State
from tools import tool

FROM_PROMETHEUS = frozenset({"job", "instance"})
LOOKING_BACK = {"timeseries", "state-timeline"}


@pytest.fixture(params=FILES, ids=lambda path: path.stem)
def dashboard(request) -> dict[str, Any]:
    return load(request.param)


def labels_by_metric() -> dict[str, set[str]]:
    """Every metric of the inspector with the labels that its samples have."""
    table = {metric.name: {*metric.labels, "target", "engine"} for metric in METRICS + SLOT_METRICS}
    own = own_families(OwnStatus(reloaded=True, reloaded_at=1.0))
    return table | {sample.name: set(sample.labels) for family in own for sample in family.samples}


def build(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, GRAFANA / "build.py", *arguments], capture_output=True, text=True, check=False)


# --- The files ------------------------------------------------------------------------------------------------------------------------


def test_the_committed_dashboards_are_what_the_tables_say():
    assert {path.stem for path in FILES} == {"fleet", "target"}
    checked = build("--check")
    assert (checked.returncode, checked.stderr) == (0, "")


def test_a_changed_and_a_missing_dashboard_are_noticed_and_left_alone(tmp_path):
    changed = FILES[0].read_text(encoding="utf-8").replace("unknown", "0", 1)
    (tmp_path / "fleet.json").write_text(changed, encoding="utf-8")
    checked = build("--check", "--folder", tmp_path)
    assert checked.returncode == 1
    assert "fleet.json" in checked.stderr
    assert "target.json" in checked.stderr
    assert [(path.name, path.read_text(encoding="utf-8")) for path in tmp_path.iterdir()] == [("fleet.json", changed)]


def test_building_twice_gives_the_same_bytes(tmp_path):
    assert build("--folder", tmp_path).returncode == 0
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {path.name: path.read_bytes() for path in FILES}


def test_a_dashboard_has_a_fixed_uid_no_ids_and_cannot_be_edited(dashboard):
    assert dashboard["uid"] in {"inspector-fleet", "inspector-target"}
    assert "id" not in dashboard
    assert not [panel["title"] for panel in dashboard["panels"] if "id" in panel]
    assert dashboard["editable"] is False


# --- Panels ---------------------------------------------------------------------------------------------------------------------------


def test_every_panel_has_a_unit_and_a_description_and_says_unknown_where_there_is_no_data(dashboard):
    for panel in panels(dashboard):
        defaults = panel["fieldConfig"]["defaults"]
        assert panel["title"]
        assert panel["description"].endswith("."), panel["title"]
        assert defaults["unit"] in {"short", "percentunit", "bytes", "s", "cps"}, panel["title"]
        assert defaults["noValue"] == "unknown", panel["title"]


def test_a_unit_is_the_one_that_the_metric_has(dashboard):
    for panel, query in queries(dashboard):
        unit, expr = panel["fieldConfig"]["defaults"]["unit"], query["expr"]
        named = {"percentunit": "_ratio{" in expr or " / " in expr, "bytes": "_bytes{" in expr, "s": "_seconds{" in expr}
        if panel["type"] != "table":
            assert [name for name, fits in named.items() if fits] == ([unit] if unit in named else []), query["expr"]


def test_gaps_stay_gaps(dashboard):
    for panel in panels(dashboard):
        if panel["type"] in LOOKING_BACK:
            assert panel["fieldConfig"]["defaults"]["custom"]["spanNulls"] is False, panel["title"]


def test_only_what_looks_back_asks_for_a_range_because_the_last_value_of_a_range_may_be_long_gone(dashboard):
    for panel, query in queries(dashboard):
        looks_back = panel["type"] in LOOKING_BACK
        assert (query["range"], query["instant"]) == (looks_back, not looks_back), panel["title"]


def test_the_datasource_is_always_the_variable(dashboard):
    assert variables(dashboard)["datasource"]["query"] == "prometheus"
    asked = [*panels(dashboard), *(query for _, query in queries(dashboard)), *(v for v in variables(dashboard).values() if v["type"] == "query")]
    assert {(each["datasource"]["type"], each["datasource"]["uid"]) for each in asked} == {("prometheus", "${datasource}")}


def test_panels_do_not_overlap_and_leave_no_hole_in_a_line(dashboard):
    cells: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        at = panel["gridPos"]
        covered = set(itertools.product(range(at["x"], at["x"] + at["w"]), range(at["y"], at["y"] + at["h"])))
        assert not covered & cells, panel["title"]
        cells |= covered
    bottom = max(y for _, y in cells) + 1
    assert cells == set(itertools.product(range(24), range(bottom)))


def test_headroom_of_kv_and_memory_is_coloured_by_the_default_thresholds(dashboard):
    for panel, query in queries(dashboard):
        for resource in {"kv", "memory"} & set(re.findall(r'inspector_headroom_ratio\{[^}]*resource="(\w+)"', query["expr"])):
            limits = DEFAULT_THRESHOLDS[resource]
            steps = [(step["value"], step["color"]) for step in panel["fieldConfig"]["defaults"]["thresholds"]["steps"]]
            assert steps == [(None, "red"), (limits.critical, "orange"), (limits.warning, "green")], panel["title"]


def test_every_state_has_a_word(dashboard):
    shown = {
        "inspector_target_state": {str(state) for state in State},
        "inspector_alert_state": {str(state) for state in AlertState},
    }
    for panel, query in queries(dashboard):
        words = mapped_words(panel)
        if "max without (state)" in query["expr"]:
            metric = next(name for name in shown if name in query["expr"])
            numbered = re.findall(r'(\d) \* \([^=]*?\{[^}]*state="(\w+)"', query["expr"])
            told = {name: words[number] for number, name in numbered}
            assert told == {name: name for name, _ in told.items()}
            assert set(words.values()) == shown[metric], panel["title"]
            assert set(told) >= shown[metric] - {"ok"}, panel["title"]


def mapped_words(panel: Mapping[str, Any]) -> dict[str, str]:
    """The words that the panel shows for values."""
    overrides = [p["value"] for o in panel["fieldConfig"]["overrides"] for p in o["properties"] if p["id"] == "mappings"]
    mappings = itertools.chain(panel["fieldConfig"]["defaults"].get("mappings", []), *overrides)
    return {value: told["text"] for mapping in mappings for value, told in mapping["options"].items()}


def test_words_for_values_do_not_reach_the_labels_of_a_table(dashboard):
    assert not [panel["title"] for panel in panels(dashboard) if panel["type"] == "table" and "mappings" in panel["fieldConfig"]["defaults"]]


# --- Expressions ----------------------------------------------------------------------------------------------------------------------


def unknown_names(expr: str, known: Mapping[str, set[str]]) -> list[str]:
    """Metrics and labels in an expression that the inspector does not have."""
    named = promql.read(expr)
    wrong = [selector.name for selector in named.selectors if selector.name not in known]
    for selector in named.selectors:
        labels = {label for label, _, _ in selector.matchers}
        wrong += [f"{selector.name}{{{label}}}" for label in sorted(labels - known.get(selector.name, labels) - FROM_PROMETHEUS)]
    return wrong + sorted(named.grouped - labels_of(named.selectors, known))


def labels_of(selectors: Iterable[promql.Selector], known: Mapping[str, set[str]]) -> frozenset[str]:
    """The labels that series of these selectors have in Prometheus."""
    return FROM_PROMETHEUS.union(*(known.get(selector.name, set()) for selector in selectors))


@pytest.mark.parametrize(
    ("expr", "wrong"),
    [
        ('sum by (target) (inspector_slots{pool=~"$pool"})', []),
        ("inspector_slotz", ["inspector_slotz"]),
        ('inspector_slots{session="chat"}', ["inspector_slots{session}"]),
        ("sum by (model) (inspector_slots)", ["model"]),
    ],
)
def test_a_wrong_name_in_an_expression_is_found(expr, wrong):
    assert unknown_names(expr, labels_by_metric()) == wrong


def test_expressions_name_only_metrics_and_labels_that_exist(dashboard):
    known = labels_by_metric()
    asked = [query["expr"] for _, query in queries(dashboard)]
    asked += [re.sub(r"label_values\((.*), (\w+)\)", r"sum by (\2) (\1)", text) for text in variable_queries(dashboard)]
    assert {expr: wrong for expr in asked if (wrong := unknown_names(expr, known))} == {}


def variable_queries(dashboard: Mapping[str, Any]) -> list[str]:
    return [v["query"]["query"] for v in variables(dict(dashboard)).values() if v["type"] == "query"]


def test_legends_columns_and_links_name_only_labels_that_exist(dashboard):
    known = labels_by_metric()
    for panel, query in queries(dashboard):
        labels = labels_of(promql.read(query["expr"]).selectors, known)
        named = set(re.findall(r"\{\{(\w+)\}\}", query.get("legendFormat", "")))
        named |= {name for link in panel["fieldConfig"]["defaults"].get("links", []) for name in re.findall(r"(?:labels|fields)\.(\w+)", link["url"])}
        for change in panel.get("transformations", []):
            named |= set(change["options"].get("indexByName", {})) - {"Value"}
        assert named <= labels, panel["title"]


def test_nothing_stands_in_for_what_is_unknown(dashboard):
    assert not [expr for expr in expressions(dashboard) if re.search("vector|absent|scalar", expr)]


def test_counters_are_shown_as_rates_over_the_interval_that_grafana_chooses(dashboard):
    for _, query in queries(dashboard):
        for counter in re.findall(r"inspector_\w+_total\{[^}]*\}", query["expr"]):
            assert f"rate({counter}[$__rate_interval])" in query["expr"] or query["expr"].startswith("count(")


def test_variables_are_from_label_values_and_each_is_used(dashboard):
    assert list(variables(dashboard)) == ["datasource", "engine", "target", "instance", "pool"]
    assert [re.sub(r".*, ", "", text) for text in variable_queries(dashboard)] == ["engine)", "target)", "instance)", "pool)"]
    used = " ".join([*(query["expr"] for _, query in queries(dashboard)), *variable_queries(dashboard)])
    assert set(re.findall(r"\$(\w+)", used)) == {"engine", "target", "instance", "pool", "__rate_interval"}


def test_a_variable_with_several_values_is_matched_as_an_expression_and_one_with_a_single_value_exactly(dashboard):
    for _, query in queries(dashboard):
        for label, operator, name in re.findall(r'(\w+)(=~|=)"\$(\w+)', query["expr"]):
            assert label == name
            assert (operator == "=~") is variables(dashboard)[name]["multi"], query["expr"]


def test_all_also_stands_for_targets_that_were_not_recognized_yet(dashboard):
    several = [v for v in variables(dashboard).values() if v.get("includeAll")]
    assert {v["allValue"] for v in several} == {".*"}
    assert {v["name"] for v in several} >= {"engine", "instance", "pool"}


def test_the_dashboards_link_to_each_other_with_variables_that_the_other_has():
    by_uid = {made["uid"]: made for made in map(load, FILES)}
    for uid, made in by_uid.items():
        links = [*made["links"], *(link for panel in panels(made) for link in panel["fieldConfig"]["defaults"].get("links", []))]
        assert links
        for link in links:
            found = re.match(r"/d/([\w-]+)\?(.*)$", link["url"])
            assert found, link["url"]
            assert found[1] != uid
            assert set(re.findall(r"var-(\w+)=", found[2])) <= set(variables(by_uid[found[1]]))


# --- What Prometheus makes of them ----------------------------------------------------------------------------------------------------


def test_prometheus_parses_every_expression(dashboard, tmp_path):
    rules = [{"record": f"panel:{number}", "expr": expr} for number, expr in enumerate(expressions(dashboard))]
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}), encoding="utf-8")
    done = subprocess.run([tool("promtool"), "check", "rules", "--lint=none", file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(rules)} rules found" in done.stdout


def asked(series: Mapping[str, str], expected: Mapping[str, Mapping[str, float]], folder: Path) -> str:
    """What promtool has to complain about, if at 5 min the `series` (sampled each minute) do not give what is `expected` of each expression."""
    tests = [
        {"expr": expr, "eval_time": "5m", "exp_samples": [{"labels": labels, "value": value} for labels, value in samples.items()]}
        for expr, samples in expected.items()
    ]
    inputs = [{"series": name, "values": values} for name, values in series.items()]
    file = folder / "tests.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [], "tests": [{"interval": "1m", "input_series": inputs, "promql_expr_test": tests}]}), encoding="utf-8")
    done = subprocess.run([tool("promtool"), "test", "rules", file], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def of_panel(stem: str, title: str, number: int = 0) -> str:
    """The expression of a panel, with every variable on "All"."""
    (panel,) = [p for p in panels(load(GRAFANA / "dashboards" / f"{stem}.json")) if p["title"] == title]
    return substituted(panel["targets"][number]["expr"])


def labelled(metric: str, **labels: str) -> str:
    told = ", ".join(f'{name}="{value}"' for name, value in labels.items())
    return f"{metric}{{{told}}}"


CHAT = {"job": "inspector", "instance": "a:9836", "engine": "llamacpp", "target": "chat"}
"""The labels of a target in Prometheus."""


def chat(metric: str, **labels: str) -> str:
    return labelled(metric, **CHAT, **labels)


def state_set(metric: str, of: str, every: Iterable[str], **labels: str) -> dict[str, str]:
    return {chat(metric, state=str(state), **labels): f"{int(state == of)}x5" for state in every}


def test_no_expression_gives_anything_where_nothing_is_measured(dashboard, tmp_path):
    measured = {labelled("up", job="inspector", instance="a:9836"): "1x5"}
    assert asked(measured, {expr: {} for expr in expressions(dashboard)}, tmp_path) == ""


def test_no_expression_gives_anything_after_the_inspector_died(dashboard, tmp_path):
    """Its series end with a staleness marker."""
    gone = {series: f"{values.split('x')[0]}x3 stale" for series, values in everything_at_work().items()}
    assert asked(gone, {expr: {} for expr in expressions(dashboard)}, tmp_path) == ""


RESOURCES = ("kv", "slots", "context", "memory")
VALUES = {
    "pool": "0",
    "field": "slots",
    "bound": "guaranteed",
    "session": "long",
    "slot": "0",
    "reason": "unreachable",
    "adapter": "llamacpp",
    "version": "b1",
    "model": "tiny",
    "alert": "InspectorKvHeadroomLow",
    "severity": "warning",
    "python": "3.12.0",
}


def everything_at_work() -> dict[str, str]:
    """A sample of every metric, as a target shows it that is ready and of which all is known; counters count."""
    made = {}
    for metric, labels in labels_by_metric().items():
        own = {name: VALUES.get(name, name) for name in sorted(labels - set(CHAT) - {"state", "resource"})}
        for resource in RESOURCES if "resource" in labels else [None]:
            about = own if resource is None else own | {"resource": resource}
            if metric == "inspector_target_state":
                made |= state_set(metric, State.READY, State, **about)
            elif metric == "inspector_alert_state":
                made |= state_set(metric, AlertState.FIRING, AlertState, **about)
            else:
                made[chat(metric, **about)] = "0+60x5" if metric.endswith("_total") else "1x5"
    return made


def test_every_expression_gives_something_where_all_is_known(dashboard, tmp_path):
    not_parted = of_panel("target", "KV cache, pool $pool", FREE_OR_RECLAIMABLE)
    every = [expr for expr in expressions(dashboard, rate_interval="4m") if expr != not_parted]
    assert silent(every, everything_at_work(), tmp_path) == []


def silent(every: list[str], series: Mapping[str, str], folder: Path) -> list[str]:
    """The expressions that give nothing: promtool does not complain when it is told to expect nothing of them."""
    complaints = asked(series, {expr: {} for expr in every}, folder)
    assert ", err: " not in complaints, complaints
    quoted = {expr: expr.replace('"', '\\"') for expr in every}
    return [expr for expr in every if f'expr: "{quoted[expr]}"' not in complaints]


KV = {"capacity": "4096x5", "used": "1000x5", "reclaimable": "500x5"}
FREE, FREE_OR_RECLAIMABLE = 2, 3
THIS_POOL = labelled("", **dict(sorted({**CHAT, "pool": "0"}.items())))


@pytest.mark.parametrize(
    ("missing", "offered", "free", "free_or_reclaimable"),
    [
        ("", True, {THIS_POOL: 2596}, {}),
        ("capacity", True, {}, {}),
        ("used", True, {}, {}),
        ("reclaimable", True, {}, {}),
        ("reclaimable", False, {}, {THIS_POOL: 3096}),
    ],
)
def test_free_kv_is_what_is_left_of_the_capacity_and_only_where_all_of_it_is_known(missing, offered, free, free_or_reclaimable, tmp_path):
    series = {chat(f"inspector_kv_{name}_tokens", pool="0"): values for name, values in KV.items() if name != missing}
    if offered:
        series[chat("inspector_field_known", pool="0", field="kv_reclaimable_tokens")] = f"{int(missing != 'reclaimable')}x5"
    stack = "KV cache, pool $pool"
    expected = {of_panel("target", stack, FREE): free, of_panel("target", stack, FREE_OR_RECLAIMABLE): free_or_reclaimable}
    assert asked(series, expected, tmp_path) == ""


@pytest.mark.parametrize(
    ("measured", "offered", "busy"),
    [
        ({"slots_busy": "3x5", "requests_running": "2x5"}, True, {"inspector_slots_busy": 3}),
        ({"requests_running": "2x5"}, False, {"inspector_requests_running": 2}),
        ({"requests_running": "2x5"}, True, {}),
    ],
)
def test_running_requests_stand_for_busy_slots_only_where_the_engine_does_not_offer_these(measured, offered, busy, tmp_path):
    series = {chat(f"inspector_{name}", pool="0"): values for name, values in measured.items()}
    if offered:
        series[chat("inspector_field_known", pool="0", field="slots_busy")] = f"{int('slots_busy' in measured)}x5"
    expected = {of_panel("target", "Slots"): {chat(metric, pool="0"): value for metric, value in busy.items()}}
    assert asked(series, expected, tmp_path) == ""


def test_the_table_of_unknowns_has_each_unknown_field_or_one_line_that_there_is_none(tmp_path):
    known = chat("inspector_field_known", pool="0", field="slots")
    unknown = chat("inspector_field_known", pool="0", field="slots_busy")
    table, number = of_panel("fleet", "What is unknown"), of_panel("fleet", "Unknown fields")
    assert asked({known: "1x5", unknown: "0x5"}, {table: {unknown: 0}, number: {"{}": 1}}, tmp_path) == ""
    assert asked({known: "1x5", unknown: "1x5"}, {table: {labelled("", **CHAT): 1}, number: {"{}": 0}}, tmp_path) == ""


@pytest.mark.parametrize(("state", "rank"), [("firing", 4), ("unknown", 3), ("pending", 2)])
def test_the_table_of_alerts_has_each_that_is_not_ok(state, rank, tmp_path):
    alert = {"alert": "InspectorKvHeadroomLow", "severity": "warning", "pool": "0", "resource": "kv", "session": ""}
    series = state_set("inspector_alert_state", state, AlertState, **alert)
    fires = {'{severity="warning"}': int(state == "firing")}
    expected = {of_panel("fleet", "Alerts"): {chat("", **{k: v for k, v in alert.items() if v}): rank}, alerts_firing(): fires}
    assert asked(series, expected, tmp_path) == ""


def test_the_table_of_alerts_says_where_all_are_ok(tmp_path):
    series = state_set("inspector_alert_state", "ok", AlertState, alert="InspectorKvHeadroomLow", severity="critical", pool="0", resource="kv", session="")
    assert asked(series, {of_panel("fleet", "Alerts"): {chat(""): 1}, alerts_firing(): {'{severity="critical"}': 0}}, tmp_path) == ""


def alerts_firing() -> str:
    (expr,) = {substituted(q["expr"]) for p, q in queries(load(GRAFANA / "dashboards" / "fleet.json")) if p["title"] == "Alerts firing"}
    return expr


@pytest.mark.parametrize(("state", "lines"), [(State.READY, {chat("", state="ready"): 0}), (State.UNREACHABLE, {}), (State.LOADING, {})])
def test_no_drift_is_told_only_of_a_target_that_was_read(state, lines, tmp_path):
    assert asked(state_set("inspector_target_state", state, State), {of_panel("target", "Drift"): lines}, tmp_path) == ""


def test_drift_is_told_field_by_field(tmp_path):
    drift = {chat("inspector_drift", pool="0", field="slots"): "1x5"}
    assert asked(drift | state_set("inspector_target_state", State.READY, State), {of_panel("target", "Drift"): {next(iter(drift)): 1}}, tmp_path) == ""


def test_inspectors_beside_different_servers_may_use_the_same_target_name(tmp_path):
    """Sidecars: the same names in every pod, told apart by Prometheus' instance."""
    first = everything_at_work()
    both = first | {series.replace('instance="a:9836"', 'instance="b:9836"'): values for series, values in first.items()}
    for path in FILES:
        assert ", err: " not in asked(both, {expr: {} for expr in expressions(load(path))}, tmp_path)


# --- Provisioning ---------------------------------------------------------------------------------------------------------------------


def test_what_grafana_is_provisioned_with_cannot_be_changed_in_the_browser():
    (sources,) = (GRAFANA / "provisioning" / "datasources").glob("*.yaml")
    (boards,) = (GRAFANA / "provisioning" / "dashboards").glob("*.yaml")
    (source,) = yaml.safe_load(sources.read_text(encoding="utf-8"))["datasources"]
    (provider,) = yaml.safe_load(boards.read_text(encoding="utf-8"))["providers"]
    assert (source["type"], source["editable"]) == ("prometheus", False)
    assert (provider["type"], provider["allowUiUpdates"], provider["disableDeletion"]) == ("file", False, True)


def test_provisioning_holds_no_secret_and_no_address_of_somebody():
    for file in (GRAFANA / "provisioning").rglob("*.yaml"):
        text = file.read_text(encoding="utf-8")
        assert not re.search(r"password|token|secure|basicAuth", text)
        assert all(line.lstrip().startswith("#") or "http://" not in line for line in text.splitlines())
