"""What the documentation says is there, and what is there is documented: metrics, alerts, keys, commands, adapters, events, links, examples."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml
from prometheus_client.parser import text_string_to_metric_families
from pydantic import BaseModel

import promql
from documents import PAGES, ROOT, Fence, Typed, anchors, commands, fences, links, maker, of_page, prose, relative, spans, text, typed
from inspector.alerts.catalogue import KINDS
from inspector.board import Board
from inspector.config import Config, ConfigError, load
from inspector.config.errors import models_in
from inspector.metrics import METRICS, SLOT_METRICS, OwnStatus, own_families
from inspector.model import State
from inspector.notify import Deliveries
from inspector.reading import Reason
from inspector.registry import load_adapters
from inspector.web.app import Services, application
from tools import tool

DOCS = ROOT / "docs"
RULES = ROOT / "deploy" / "prometheus"
FROM_PROMETHEUS = frozenset({"job", "instance"})

EXAMPLES = {"inspector_toy"}
"""Names in an example that are not the inspector's."""

PAGES_BY_NAME = pytest.mark.parametrize("page", PAGES, ids=relative)


def table(page: str, heading: str) -> list[list[str]]:
    """The cells of the first table below a heading."""
    section = text(of_page(page)).split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    rows = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in rows[2:]]


# --- What is made ------------------------------------------------------------------------------------------------------------------------------


def generate(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, DOCS / "generate.py", *arguments], capture_output=True, text=True, check=False)


def test_the_made_parts_are_what_the_program_says():
    done = generate("--check")
    assert done.returncode == 0, done.stderr


def test_a_changed_part_is_noticed_left_alone_and_made_again_with_the_rest_kept(tmp_path):
    for name in ("metrics.md", "commands.md"):
        shutil.copy(DOCS / name, tmp_path)
    page = tmp_path / "metrics.md"
    right = page.read_text()
    wrong = right.replace("| `inspector_slots` |", "| `inspector_slotz` |") + "\nBy hand.\n"
    page.write_text(wrong)
    done = generate("--check", "--folder", tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert "metrics.md" in done.stderr
    assert page.read_text() == wrong
    assert generate("--folder", tmp_path).returncode == 0
    assert page.read_text() == right + "\nBy hand.\n"


def test_a_part_that_nobody_makes_is_refused():
    done = subprocess.run(
        [sys.executable, "-c", "import generate; generate.filled('<!-- made: nothing -->\\n<!-- end -->')"],
        cwd=DOCS,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "there is no part 'nothing'" in done.stderr


# --- Metrics -----------------------------------------------------------------------------------------------------------------------------------


def own_metrics() -> dict[str, set[str]]:
    own = own_families(OwnStatus(reloaded=True, reloaded_at=1.0, deliveries=Deliveries()))
    return {sample.name: set(sample.labels) for family in own for sample in family.samples}


def metrics() -> dict[str, set[str]]:
    """Every metric of the inspector, and its labels."""
    return {metric.name: {*metric.labels, "target", "engine"} for metric in METRICS + SLOT_METRICS} | own_metrics()


def recorded() -> set[str]:
    groups = yaml.safe_load((RULES / "recording-rules.yaml").read_text())["groups"] + yaml.safe_load((RULES / "alerting-rules.yaml").read_text())["groups"]
    return {rule["record"] for group in groups for rule in group["rules"] if "record" in rule}


def test_every_metric_stands_in_the_tables_once():
    rows = re.findall(r"^\| `(inspector_\w+)` \|", text(DOCS / "metrics.md"), re.MULTILINE)
    assert {name: times for name, times in Counter(rows).items() if times > 1} == {}
    assert set(rows) == set(metrics())


def test_every_series_of_the_golden_page_has_labels_and_values_that_are_documented():
    """`team` is a label of its configuration."""
    reference = maker("metric_reference")
    told = {metric.name: metric.labels for metric in reference.families()}
    for family in text_string_to_metric_families((ROOT / "tests" / "golden" / "metrics.prom").read_text()):
        for sample in family.samples:
            assert set(sample.labels) - {"team"} == set(told[sample.name]), sample
            for label, value in sample.labels.items():
                values = "" if label == "team" else reference.values_of(label, sample.name)
                assert isinstance(values, str) or value in values, (sample.name, label, value)


def test_the_engines_of_a_metric_are_those_that_offer_the_field():
    cells = re.findall(r"^\| `inspector_(\w+)` \|[^|]*\|[^|]*\| ([\w, ]+) \|", text(DOCS / "metrics.md"), re.MULTILINE)
    told = {name: set(engines.split(", ")) for name, engines in cells}
    adapters = load_adapters().adapters
    for field in frozenset().union(*(adapter.offers(None) for adapter in adapters.values())) - {"model", "kv_unified"}:
        offering = {name for name, adapter in adapters.items() if field in adapter.offers(None)}
        assert told[field] == ({"all"} if offering == set(adapters) else offering), field


@PAGES_BY_NAME
def test_a_metric_that_a_page_names_exists(page):
    packages = {path.name for path in (ROOT / "adapters").iterdir()}
    # `inspector_x_*` stands for several, which must be there.
    named = re.findall(r"(?<![\w/])((?:\w+:)?inspector_[a-z0-9_]+(?::[a-z]\w*)?)(\*|…)?", text(page))
    for name, several in named:
        known = {*metrics(), *recorded(), *packages, *EXAMPLES}
        assert any(each.startswith(name) for each in known) if several else name in known, name


@PAGES_BY_NAME
def test_a_selector_in_a_text_names_labels_and_values_that_exist(page):
    for span in spans(page):
        if re.match(r"(inspector_|headroom_)\w+\{[^}]*[=~]", span):
            expression = span if span.startswith("inspector_") else f"inspector_{span}"
            assert wrong_names(expression) == [], span


def wrong_names(expression: str) -> list[str]:
    """What an expression names that the inspector does not have: metrics, labels, values of labels."""
    known, named = metrics(), promql.read(expression)
    wrong = [selector.name for selector in named.selectors if selector.name not in known]
    for selector in named.selectors:
        for label, operator, value in selector.matchers:
            if label not in known.get(selector.name, {label}) | FROM_PROMETHEUS:
                wrong.append(f"{selector.name}{{{label}}}")
            elif selector.name in known and label not in FROM_PROMETHEUS:
                values = maker("metric_reference").values_of(label, selector.name)
                given = set(value.split("|")) if operator in ("=~", "!~") else {value}
                wrong += [] if isinstance(values, str) else sorted(given - set(values))
    labels = FROM_PROMETHEUS.union(*(known.get(selector.name, set()) for selector in named.selectors))
    return wrong + sorted(named.grouped - labels)


@pytest.mark.parametrize(
    ("expression", "wrong"),
    [
        ('sum by (target) (inspector_headroom_ratio{resource="kv", bound="guaranteed"})', []),
        ("rate(inspector_slotz[5m])", ["inspector_slotz"]),
        ('inspector_slots{session="chat"}', ["inspector_slots{session}"]),
        ('inspector_headroom_ratio{resource="disk"}', ["disk"]),
        ('inspector_target_state{state=~"ready|firing"}', ["firing"]),
        ("sum by (model) (inspector_slots)", ["model"]),
    ],
)
def test_a_wrong_name_in_an_expression_is_found(expression, wrong):
    assert wrong_names(expression) == wrong


def examples() -> list[tuple[str, str]]:
    """(page, expression) of each PromQL example; a blank line, a comment or a line that is not indented begins the next."""
    found = []
    for fence in fences("promql"):
        for line in fence.text.splitlines():
            if line.startswith((" ", ")")):
                found[-1] = (fence.page, f"{found[-1][1]}\n{line}")
            elif line and not line.startswith("#"):
                found.append((fence.page, line))
    return found


@pytest.mark.parametrize(("page", "expression"), examples())
def test_an_example_names_only_what_exists(page, expression):
    assert wrong_names(expression) == []


def test_prometheus_takes_every_example(tmp_path):
    rules = [{"record": f"example:{number}", "expr": expression} for number, (_, expression) in enumerate(examples())]
    assert len(rules) > 10
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "examples", "rules": rules}]}), encoding="utf-8")
    done = subprocess.run([tool("promtool"), "check", "rules", "--lint=none", file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(rules)} rules found" in done.stdout


# --- Alerts ------------------------------------------------------------------------------------------------------------------------------------


def alerts() -> set[str]:
    groups = yaml.safe_load((RULES / "alerting-rules.yaml").read_text())["groups"]
    return {rule["alert"] for group in groups for rule in group["rules"] if "alert" in rule} | {kind.name for kind in KINDS}


def test_every_alert_has_a_section_and_its_runbook_link_leads_there():
    assert {name.lower() for name in alerts()} <= anchors(DOCS / "alerts.md")
    assert {kind.runbook.rpartition("#")[2] for kind in KINDS} <= anchors(DOCS / "alerts.md")


@PAGES_BY_NAME
def test_an_alert_that_a_page_names_exists(page):
    assert set(re.findall(r"\bInspector[A-Z]\w+", text(page))) <= alerts()


# --- Configuration -----------------------------------------------------------------------------------------------------------------------------


def keys(section: type[BaseModel], before: str = "") -> Iterator[str]:
    """Every key of the configuration with those above it: `poll.interval`, `targets.tls.ca_file`. `NAME` stands for names that are the operator's."""
    for name, info in section.model_fields.items():
        key = f"{before}{info.alias or name}"
        yield key
        named = f"{key}.NAME" if str(info.annotation).startswith("dict[") else key
        if named != key:
            yield named
        for inner in sorted(models_in(info.annotation), key=lambda model: model.__name__):
            yield from keys(inner, f"{named}.")


KEYS = set(keys(Config))
TOP = set(Config.model_fields)

SECTIONS: Mapping[str, tuple[str, ...]] = {"targets.": ("",), "targets.facts.": ("",)}
"""Sections whose keys stand in a table of their own, without what is above them."""


def shortened(key: str) -> set[str]:
    """The ways in which a page may name a key."""
    return {key, *(key.removeprefix(section) for section in SECTIONS if key.startswith(section))}


SHORT = {name for key in KEYS for name in shortened(key)}


def test_every_key_is_documented():
    """By its name in the page, after a brace or a dot, or alone."""
    page = text(DOCS / "configuration.md")
    missing = [key for key in KEYS if not key.endswith("NAME") and not re.search(rf"[`.{{ ]{key.rpartition('.')[2]}[`.:]", page)]
    assert missing == []


def test_every_key_of_a_table_exists():
    """A key that was renamed or taken out leaves its line behind."""
    cells = re.findall(r"^\| `([a-z][\w.]*)` \|", text(DOCS / "configuration.md"), re.MULTILINE)
    assert len(cells) > 40
    assert [cell for cell in cells if cell not in SHORT] == []


OTHERS = {"authorization", "llama_context"}
"""What stands in a text like a key of ours and is not: Prometheus' keys, lines of a server's log."""


@PAGES_BY_NAME
def test_a_key_that_a_page_names_exists(page):
    for span in spans(page):
        dotted = re.fullmatch(r"([a-z_]+)(\.[a-z_]+|\.NAME)+", span)
        if dotted and dotted[1] in TOP and not span.endswith((".yaml", ".md", ".json", ".txt", ".log")):
            assert span in KEYS, span
        given = re.match(r"([a-z]+(?:_[a-z]+)*): ?(\{|\S+$)", span)
        if given and not re.match(r"\w+:(/|\S)", span):
            assert given[1] in {key.rpartition(".")[2] for key in KEYS} | OTHERS, span


def configurations() -> list[Fence]:
    """The YAML blocks that are configurations of the inspector."""
    return [fence for fence in fences("yaml") if TOP & set(re.findall(r"^(\w+):", fence.text, re.MULTILINE))]


@pytest.mark.parametrize("fence", configurations(), ids=str)
def test_a_configuration_in_a_page_is_taken(fence, tmp_path):
    for name, content in named_files(yaml.safe_load(fence.text), tmp_path):
        (tmp_path / name).write_bytes(content)
    file = tmp_path / "inspector.yaml"
    file.write_text(fence.text, encoding="utf-8")
    load(file, {})


def test_configurations_are_found():
    assert {"docs/configuration.md", "docs/alerts.md"} <= {fence.page for fence in configurations()}


def test_a_wrong_configuration_would_be_noticed(tmp_path):
    file = tmp_path / "inspector.yaml"
    file.write_text("poll: {intervall: 5s}", encoding="utf-8")
    with pytest.raises(ConfigError, match="intervall"):
        load(file, {})


def named_files(data: Any, folder: Path) -> Iterator[tuple[str, bytes]]:
    """The files that a configuration names, with something in each that it may hold."""
    if isinstance(data, list):
        for each in data:
            yield from named_files(each, folder)
    elif isinstance(data, dict):
        for key, value in data.items():
            if key == "ca_file":
                yield value, trustme.CA().cert_pem.bytes()
            elif isinstance(value, str) and (key == "file" or key.endswith("_file")):
                yield value, b"k3y-of-a-test"
            else:
                yield from named_files(value, folder)


# --- Commands ----------------------------------------------------------------------------------------------------------------------------------


def test_every_command_and_option_is_documented():
    """Each in the section of its command."""
    page = text(DOCS / "commands.md")
    for name, command in commands().items():
        section = page.split(f"## inspector {name}\n", 1)[1].split("\n## ", 1)[0]
        for option in maker("command_reference").options(command):
            assert all(re.search(rf"[` ]{re.escape(word)}[`, ]", section) for word in (*option.opts, *option.secondary_opts)), (name, option.opts)


@pytest.mark.parametrize("line", [line for line in typed() if " ".join(line.words) not in {"started", "stops"}], ids=str)
def test_a_command_that_a_page_shows_exists_with_its_options(line: Typed):
    if line.words and line.words[0] in ("COMMAND", "--version", "--help"):
        return
    name = next((" ".join(line.words[:length]) for length in (2, 1) if " ".join(line.words[:length]) in commands()), None)
    assert name is not None, f"there is no such command: {line}"
    words = list(line.words[len(name.split()) :])
    known = {word for option in maker("command_reference").options(commands()[name]) for word in (*option.opts, *option.secondary_opts)} | {"-h", "--help"}
    assert [word for word in words if word.startswith("-") and word.partition("=")[0] not in known] == []
    if line.whole:
        commands()[name].make_context(name, words)


@pytest.mark.parametrize("words", [["--jsonn"], ["--config"], ["--every", "2s"]])
def test_words_that_are_no_command_would_be_noticed(words):
    with pytest.raises(Exception, match=r"(?i)option"):
        commands()["check"].make_context("check", words)


@PAGES_BY_NAME
def test_a_target_of_make_that_a_page_names_exists(page):
    known = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    lines = [line for fence in fences("", "sh") if fence.page == relative(page) for line in fence.text.splitlines()]
    assert {match[1] for line in [*lines, *spans(page)] if (match := re.match(r"make ([a-z-]+)", line))} <= known


# --- Adapters ----------------------------------------------------------------------------------------------------------------------------------

NAMES = {"llamacpp": "llama.cpp", "vllm": "vLLM", "mlx": "MLX LM"}


def test_every_adapter_has_a_page_and_stands_in_the_readme():
    adapters = load_adapters().adapters
    assert set(adapters) == set(NAMES)
    for name in adapters:
        assert (ROOT / "adapters" / f"inspector_{name}" / "README.md").is_file()
        assert NAMES[name] in text(ROOT / "README.md")


@pytest.mark.parametrize("name", sorted(NAMES))
def test_the_page_of_an_adapter_names_every_route_that_it_may_ask_and_every_field_that_it_offers(name):
    adapter, page = load_adapters().adapters[name], text(ROOT / "adapters" / f"inspector_{name}" / "README.md")
    assert [route.path for route in adapter.routes if f"`{route.path}" not in page] == []
    several = [re.compile(span.replace("*", r"\w+")) for span in re.findall(r"`(\w+\*\w*)`", page)]
    missing = {field for field in adapter.offers(None) if field not in page and not any(pattern.fullmatch(field) for pattern in several)}
    assert missing == set()


# --- Events, states, reasons, routes -----------------------------------------------------------------------------------------------------------


def events() -> set[str]:
    """Every event that the inspector logs: the first word of each call of a logger."""
    found = set()
    for path in (ROOT / "inspector").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant) and _is_logger(node.func):
                found.add(node.args[0].value)
    return found


def _is_logger(called: ast.expr) -> bool:
    name = ast.unparse(called)
    return name == "log" or bool(re.fullmatch(r"(self\._log|self\._logger|log|logger|structlog\.get_logger\(\))\.(debug|info|warning|error|exception)", name))


def test_every_event_of_the_log_is_documented_and_each_documented_one_exists():
    told = [re.findall(r"``(.+?)``|`([^`]+)`", row[0]) for row in table("docs/operations.md", "Logs")]
    assert {long or short for cell in told for long, short in cell} == events()


def test_every_reason_and_every_state_is_explained_and_no_other():
    section = text(DOCS / "operations.md").split("## When something is unknown\n", 1)[1].split("\n## ", 1)[0]
    first = {name for row in re.findall(r"^\| (`[a-z_]+`(?:, `[a-z_]+`)*) \|", section, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}
    assert {str(reason) for reason in Reason} | {str(state) for state in State} == first


def test_every_path_of_the_web_is_documented():
    web = application(Board(lambda snapshot: None), Services(None, None))
    told = " ".join([*spans(ROOT / "README.md"), *spans(DOCS / "operations.md")])
    assert [route.path for route in web.routes if route.path not in told.replace("?", " ").replace("[", " ").split()] == []


# --- Links -------------------------------------------------------------------------------------------------------------------------------------


@PAGES_BY_NAME
def test_every_link_leads_somewhere(page):
    for link in links(page):
        name, _, anchor = link.partition("#")
        there = (page.parent / name).resolve() if name else page
        assert there.exists(), link
        assert not anchor or anchor in anchors(there), link


@PAGES_BY_NAME
def test_every_path_of_the_repository_that_a_page_names_is_there(page):
    for span in spans(page):
        if re.fullmatch(r"(docs|deploy|adapters|inspector|tests|bench)/[\w./*-]+", span):
            assert list(ROOT.glob(span.rstrip("/"))), span


@PAGES_BY_NAME
def test_a_page_is_linked_from_another(page):
    """A page that no other leads to is never read."""
    if page.name in ("README.md", "CHANGELOG.md") and page.parent == ROOT:
        return
    linked = {(other.parent / link.partition("#")[0]).resolve() for other in PAGES if other != page for link in links(other)}
    folders = {page.parent} if page.name == "README.md" else set()
    assert linked & {page, *folders}


def test_every_room_of_the_core_stands_in_the_architecture_and_no_other():
    (rooms,) = [fence.text for fence in fences("") if fence.page == "docs/architecture.md" and fence.text.startswith("cli/")]
    drawn = {name.rstrip("/") for line in rooms.splitlines() for name in line[:43].split()}
    there = {path.stem for path in (ROOT / "inspector").iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert drawn <= there
    assert {name for name in there if not name.startswith("_")} - drawn <= set(spans(DOCS / "architecture.md"))


def test_headings_become_the_anchors_of_github(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# One, two & `three`\n## A [link](x.md)!\n## Same\n## Same\n```\n# no heading\n```\n")
    assert anchors(page) == {"one-two--three", "a-link", "same", "same-1"}
    assert prose(page).count("#") == 7
