"""The files of deploy/: each is valid by its own rules, says the same as the others, and starts an inspector that its configuration is good for."""

from __future__ import annotations

import copy
import json
import re
import runpy
import shutil
import subprocess
from pathlib import Path

import check_jsonschema
import jsonschema
import kubernetes_validate
import pytest
import yaml

from deployments import DEPLOY, IMAGE, KEY, ROOT, documents, filled, inspector_pods, laid_out, manifests, objects, option, pinned, understood
from inspector.address import parse_listen
from inspector.board import Board
from inspector.config import Config, ConfigError, LaunchArgv, LaunchFile, load
from inspector.contract import LaunchView
from inspector.launch import server_argv, settings
from inspector.launch.files import read_launch_file
from inspector.registry import load_adapters
from inspector.web.app import Services, application
from inspector.web.guard import OPEN_PATHS
from tools import tool

KUBERNETES = "1.37"
SCHEMAS = [json.loads(path.read_text(encoding="utf-8")) for path in (ROOT / "tests" / "testdata" / "custom_resources").glob("*.json")]
CUSTOM = {schema["properties"]["kind"]["const"]: schema for schema in SCHEMAS}
PODS = {pod.name: pod for pod in inspector_pods()}
COMPOSE = documents(DEPLOY / "compose" / "compose.yaml")[0]
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
PORT = parse_listen(Config().listen)[1]
ADAPTERS = load_adapters().adapters


def validate(document):
    if document["kind"] in CUSTOM:
        jsonschema.validate(document, CUSTOM[document["kind"]])
    else:
        kubernetes_validate.validate(document, KUBERNETES, strict=True)


@pytest.mark.parametrize("document", [pytest.param(document, id=name) for name, document in manifests()])
def test_every_object_holds_to_its_schema_and_the_schema_would_notice(document):
    validate(document)
    broken = copy.deepcopy(document)
    broken["metadata"]["lables"] = {}
    with pytest.raises((jsonschema.ValidationError, kubernetes_validate.ValidationError)):
        validate(broken)


def test_both_kinds_of_deployment_are_shipped_and_sidecars_for_both_engines():
    assert {name: pod.sidecar for name, pod in PODS.items()} == {"inference-inspector": False, "llama-server": True, "vllm": True}
    assert set(CUSTOM) == {"PodMonitor", "PrometheusRule"}


@pytest.mark.parametrize("pod", PODS.values(), ids=PODS)
def test_the_container_may_do_nothing_but_read(pod):
    held = {**pod.spec["securityContext"], **pod.container["securityContext"]}
    assert held["runAsNonRoot"] is True
    assert f"USER {held['runAsUser']}:{held['runAsGroup']}\n" in DOCKERFILE
    assert held["readOnlyRootFilesystem"] is True
    assert held["allowPrivilegeEscalation"] is False
    assert held["capabilities"] == {"drop": ["ALL"]}
    assert held["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod.spec["automountServiceAccountToken"] is False
    assert all(mount["readOnly"] for mount in pod.container["volumeMounts"])
    assert "memory" in pod.container["resources"]["requests"]
    assert "memory" in pod.container["resources"]["limits"]


@pytest.mark.parametrize("pod", PODS.values(), ids=PODS)
def test_probes_need_no_token(pod):
    probes = {name: probe["httpGet"] for name, probe in pod.container.items() if name.endswith("Probe")}
    expected = {"startupProbe": "/-/healthy", "livenessProbe": "/-/healthy"} | ({} if pod.sidecar else {"readinessProbe": "/-/ready"})
    assert {name: probe["path"] for name, probe in probes.items()} == expected
    assert set(expected.values()) <= OPEN_PATHS
    assert {probe["port"] for probe in probes.values()} == {port["name"] for port in pod.container["ports"]} == {"inspector"}
    assert pod.container.get("restartPolicy") == ("Always" if pod.sidecar else None)


@pytest.mark.parametrize("pod", PODS.values(), ids=PODS)
def test_a_pod_starts_with_its_configuration_and_not_before_the_keys_are_filled_in(pod, tmp_path):
    assert pod.container["image"] == IMAGE
    assert understood(pod.container["args"])
    named = option(pod.container["args"], "--config")
    (tmp_path / "filled").mkdir()
    config = load(laid_out(pod, tmp_path / "filled", filled())[named], {})
    assert config.listen_address == ("0.0.0.0", pod.container["ports"][0]["containerPort"])
    assert config.web.bearer_token.get_secret_value() == KEY
    assert {target.engine for target in config.targets} <= set(ADAPTERS)
    folders = {mount["mountPath"] for mount in pod.container["volumeMounts"]}
    assert {str(Path(target.logs.name).parent) for target in config.targets if target.logs is not None} <= folders
    (shipped,) = objects("Secret")
    (tmp_path / "shipped").mkdir()
    with pytest.raises(ConfigError) as refused:
        load(laid_out(pod, tmp_path / "shipped", shipped["stringData"])[named], {})
    assert any(problem.field == "web.bearer_token_file" for problem in refused.value.problems)


@pytest.mark.parametrize("pod", [pod for pod in PODS.values() if pod.sidecar], ids=lambda pod: pod.name)
def test_a_sidecar_asks_the_server_of_its_pod_and_knows_how_it_was_launched(pod, tmp_path):
    (server,) = pod.spec["containers"]
    (target,) = load(laid_out(pod, tmp_path, filled())[option(pod.container["args"], "--config")], {}).targets
    assert target.address.is_local
    assert target.url.endswith(f":{server['ports'][0]['containerPort']}")
    table = ADAPTERS[target.engine].flags
    manifest = read_launch_file(DEPLOY / "kubernetes" / "sidecar" / f"{pod.name}.yaml", "server", table, at=0.0)
    assert isinstance(manifest, LaunchView)
    assert manifest.settings["port"].value == server["ports"][0]["containerPort"]
    if pod.spec.get("shareProcessNamespace"):
        assert target.launch == "auto"
        assert target.logs.name in server["args"]
        assert "runAsUser" not in {**server["securityContext"], **pod.container["securityContext"]}  # The pod's own, so the same in both.
    else:
        assert list(target.launch.argv) == [*server["command"], *server["args"]]
        assert stated(target.launch, table) == {name: reading.value for name, reading in manifest.settings.items()}


def stated(launch: LaunchArgv, table):
    view = settings(server_argv(launch.argv, table), launch.env, table, path="argv", live=False, at=0.0)
    return {name: reading.value for name, reading in view.settings.items()}


def test_the_central_inspector_is_told_what_it_cannot_look_at(tmp_path):
    pod = PODS["inference-inspector"]
    config = load(laid_out(pod, tmp_path, filled())[option(pod.container["args"], "--config")], {})
    for target in config.targets:
        assert not target.address.is_local
        assert stated(target.launch, ADAPTERS[target.engine].flags), target.name


def test_each_pod_is_scraped_by_one_monitor_with_the_token():
    routes = {route.path for route in application(Board(lambda _: None), Services(None, lambda: "")).routes}
    selected = []
    for monitor in objects("PodMonitor"):
        (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
        assert endpoint["path"] == "/metrics"
        assert endpoint["path"] in routes
        assert endpoint["authorization"]["credentials"]["key"] == "web-token" in filled()
        assert endpoint["authorization"]["credentials"]["name"] == objects("Secret")[0]["metadata"]["name"]
        assert {"targetLabel": "job", "replacement": "inference-inspector"} in endpoint["relabelings"]
        wanted = monitor["spec"]["selector"]["matchLabels"].items()
        selected += [pod.name for pod in PODS.values() if wanted <= pod.labels.items() and endpoint["port"] == pod.container["ports"][0]["name"]]
    assert sorted(selected) == sorted(PODS)


def test_the_network_policy_lets_through_what_the_configuration_asks_and_prometheus(tmp_path):
    pod = PODS["inference-inspector"]
    (policy,) = objects("NetworkPolicy")
    assert policy["spec"]["podSelector"]["matchLabels"].items() <= pod.labels.items()
    assert [rule["ports"] for rule in policy["spec"]["ingress"]] == [[{"protocol": "TCP", "port": "inspector"}]]
    reached = set()
    for rule in policy["spec"]["egress"]:
        (namespace,) = {to["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"] for to in rule["to"]}
        reached |= {(namespace, port["port"]) for port in rule["ports"]}
    config = load(laid_out(pod, tmp_path, filled())[option(pod.container["args"], "--config")], {})
    asked = {(target.address.host.split(".")[-2], target.address.port) for target in config.targets}
    assert reached == asked | {("kube-system", 53)}


def test_the_prometheus_rule_is_the_shipped_rules_and_nothing_else(tmp_path):
    script = runpy.run_path(str(DEPLOY / "kubernetes" / "prometheus_rule.py"))
    assert script["OBJECT"].read_text(encoding="utf-8") == script["prometheus_rule"](), "run deploy/kubernetes/prometheus_rule.py"
    (rule,) = objects("PrometheusRule")
    shipped = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in script["rule_files"]()]
    assert rule["spec"]["groups"] == [group for file in shipped for group in file["groups"]]
    assert {path.name for path in script["rule_files"]()} == {"alerting-rules.yaml", "recording-rules.yaml"}
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rule["spec"]), encoding="utf-8")
    subprocess.run([tool("promtool"), "check", "rules", "rules.yaml"], cwd=tmp_path, check=True, capture_output=True)


def test_the_compose_file_holds_to_the_specification_and_the_schema_would_notice():
    schema = json.loads((Path(check_jsonschema.__file__).parent / "builtin_schemas" / "vendor" / "compose-spec.json").read_text(encoding="utf-8"))
    jsonschema.validate(COMPOSE, schema)
    broken = copy.deepcopy(COMPOSE)
    broken["services"]["inspector"]["healthchek"] = {}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(broken, schema)


@pytest.mark.parametrize("name", COMPOSE["services"])
def test_a_service_is_pinned_looked_after_and_reached_from_this_machine_only(name):
    service = COMPOSE["services"][name]
    assert pinned(service["image"])
    (published,) = service["ports"]
    host, _, port = published.split(":")
    assert host == "127.0.0.1"
    if name == "inspector":
        assert service["image"] == IMAGE
        assert "\nHEALTHCHECK " in DOCKERFILE
        assert (DEPLOY / "compose" / service["build"]["context"]).resolve() == ROOT
        assert port == str(PORT)
    else:
        assert f"127.0.0.1:{port}/" in service["healthcheck"]["test"][-1]
    if name != "llama-server":
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
    for mount in service.get("volumes", ()):
        source, target, *mode = mount.rsplit(":", 2) if mount.endswith(":ro") else mount.rsplit(":", 1)
        assert target.startswith("/")
        assert source.startswith((".", "${")) <= (mode == ["ro"]), mount
        assert source in COMPOSE["volumes"] or source.startswith("${") or (DEPLOY / "compose" / source).exists(), mount


def mounted(service: str, folder: Path) -> dict[str, Path]:
    """The files that a service finds, laid out in a folder, by their paths in the container."""
    files = {}
    for mount in COMPOSE["services"][service]["volumes"]:
        source, target = mount.removesuffix(":ro").rsplit(":", 1)
        if source.startswith("."):
            place = folder / target.lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            origin = DEPLOY / "compose" / source
            files[target] = Path(shutil.copytree(origin, place, dirs_exist_ok=True) if origin.is_dir() else shutil.copy(origin, place))
    return files


def test_the_inspector_of_the_compose_file_starts_with_its_configuration(tmp_path):
    service = COMPOSE["services"]["inspector"]
    assert understood(service["command"])
    config = load(mounted("inspector", tmp_path)[option(service["command"], "--config")], {})
    assert config.listen_address == ("0.0.0.0", PORT)
    (target,) = config.targets
    assert target.address.host in COMPOSE["services"]
    assert f"127.0.0.1:{target.address.port}:{target.address.port}" in COMPOSE["services"][target.address.host]["ports"]
    assert target.logs.name in COMPOSE["services"][target.address.host]["command"]
    assert isinstance(target.launch, LaunchFile)
    view = read_launch_file(target.launch.file, target.launch.pick, ADAPTERS[target.engine].flags, at=0.0)
    assert {name: view.settings[name].value for name in ("ctx_size", "parallel", "kv_unified")} == {"ctx_size": 32768, "parallel": 4, "kv_unified": True}


def test_prometheus_and_alertmanager_of_the_compose_file_take_what_is_mounted(tmp_path):
    services = COMPOSE["services"]
    files = mounted("prometheus", tmp_path)
    config = files[services["prometheus"]["command"][0].removeprefix("--config.file=")]
    told = subprocess.run([tool("promtool"), "check", "config", config], check=True, capture_output=True, text=True)
    rules = {path.name for path in (DEPLOY / "prometheus").glob("*-rules.yaml")}
    assert {name for name in rules if f"{config.parent / name}\n  SUCCESS" in told.stdout} == rules
    parsed = yaml.safe_load(config.read_text(encoding="utf-8"))
    (job,) = parsed["scrape_configs"]
    assert job["job_name"] == "inference-inspector"
    assert job["static_configs"] == [{"targets": [f"inspector:{PORT}"]}]
    assert parsed["alerting"]["alertmanagers"] == [{"static_configs": [{"targets": [f"alertmanager:{services['alertmanager']['ports'][0].split(':')[2]}"]}]}]
    files = mounted("alertmanager", tmp_path)
    config = files[services["alertmanager"]["command"][0].removeprefix("--config.file=")]
    subprocess.run([tool("amtool"), "check-config", config], check=True, capture_output=True)


def test_grafana_of_the_compose_file_finds_prometheus_and_the_dashboards(tmp_path):
    files = mounted("grafana", tmp_path)
    assert files.keys() >= {"/etc/grafana/provisioning", "/var/lib/grafana/dashboards"}
    provisioning = files["/etc/grafana/provisioning"]
    (source,) = [source for path in (provisioning / "datasources").glob("*.yaml") for source in yaml.safe_load(path.read_text())["datasources"]]
    environment = COMPOSE["services"]["grafana"]["environment"]
    assert environment[source["url"].strip("${}")] == "http://prometheus:9090"
    (provider,) = [provider for path in (provisioning / "dashboards").glob("*.yaml") for provider in yaml.safe_load(path.read_text())["providers"]]
    assert provider["options"]["path"] == "/var/lib/grafana/dashboards"
    assert list(files["/var/lib/grafana/dashboards"].glob("*.json"))
    made_for = re.search(r'"grafana-foundation-sdk==\d+!([\d.]+)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert COMPOSE["services"]["grafana"]["image"] == f"grafana/grafana:{made_for[1]}"


def test_every_file_that_a_deployment_names_is_there():
    files = [*DEPLOY.rglob("*.*"), ROOT / "docs" / "sidecar.md"]
    texts = [path.read_text(encoding="utf-8", errors="ignore") for path in files if path.is_file() and "__pycache__" not in path.parts]
    named = {name.rstrip(".") for text in texts for name in re.findall(r"\bdeploy/[a-z][\w./-]*", text)}
    assert named
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("words", [["serve", "--konfig", "x"], ["serve", "--log-format", "xml"], ["--config", "x"]], ids=" ".join)
def test_words_that_are_no_command_would_be_noticed(words):
    with pytest.raises(Exception):  # noqa: B017 - typer brings its own copy of click's errors.
        understood(words)
