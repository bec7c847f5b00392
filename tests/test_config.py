"""The configuration: every mistake has its file in testdata/config, and is refused with file, line, field and remedy, all at once."""

import ast
import os
import re
from pathlib import Path

import pytest
import yaml

from inspector import model
from inspector.address import parse_address
from inspector.config import Config, ConfigError, Facts, LaunchArgv, LaunchFile, LaunchPid, LogSource, from_targets, load, target_from_argument
from inspector.config.yaml_file import LARGEST_FILE, MOST_NODES
from inspector.reading import Kind

ROOT = Path(__file__).parent
FILES = ROOT / "testdata" / "config"
ENVIRONMENT = {"EMPTY_KEY": " ", "GOOD_KEY": "sk-from-environment"}

NO_ENGINE = "is given for a target that names no engine, so that a stranger could be sent it; write `engine: NAME`, as `inspector adapters` lists it"

MISTAKES = {
    "alertmanager-socket": [
        "1: alertmanager.url: is a socket; write http://host:port",
    ],
    "alertmanager-two-permissions": [
        "4: alertmanager.basic_auth: is given beside bearer_token_file; keep one of the two",
    ],
    "alertmanager-tls": [
        "3: alertmanager.tls: has a ca_file that holds no usable certificate; name a PEM file",
        "3: alertmanager.tls: is given for a URL that is not https; write https:// in url, or take tls out",
    ],
    "alerts-for": [
        '2: alerts.before_firing: unknown key; did you mean "keep_firing_for"?',
        "3: alerts.for: is not a duration; write 5s, 500ms, 1m, or a number of seconds",
    ],
    "boolean-as-number": [
        "1: poll.stale_after: must be a whole number",
    ],
    "broken-scalar": [
        "1: poll.stale_after: cannot be read as the value that it looks like; put text in quotes",
    ],
    "ca-file-missing": [
        "4: targets[0].tls.ca_file: cannot be read (no such file or directory); name a file that the inspector's user may read",
    ],
    "ca-file-not-pem": [
        "4: targets[0].tls: has a ca_file that holds no usable certificate; name a PEM file",
    ],
    "cert-file-not-pem": [
        "4: targets[0].tls: has a cert_file and key_file that do not go together; name PEM files of one certificate, its key not encrypted",
    ],
    "duplicate-key": [
        "3: poll.timeout: is given twice; keep one of the two",
    ],
    "duplicate-name": [
        "4: targets[2].name: is the name of targets[0] too; give each target a name of its own",
    ],
    "duration-boolean": [
        "2: poll.timeout: is not a duration; write 5s, 500ms, 1m, or a number of seconds",
    ],
    "duration-unit": [
        "2: poll.interval: is not a duration; write 5s, 500ms, 1m, or a number of seconds",
    ],
    "duration-zero": [
        "2: poll.timeout: must be above zero and at most 24h",
    ],
    "engine-no": [
        "2: targets[0].engine: is not the name of an engine; see: inspector adapters",
    ],
    "fact-live": [
        "4: targets[0].facts.kv_usage_ratio: unknown key; see docs/configuration.md",
    ],
    "fact-type": [
        "4: targets[0].facts.slots: must be a whole number",
        "4: targets[0].facts.kv_capacity_tokens: must be at least 1",
        "4: targets[0].facts.kv_unified: must be true or false",
    ],
    "header-name": [
        "5: targets[0].headers.…: is not the name of an HTTP header",
    ],
    "header-newline": [
        "5: targets[0].headers.X-Tenant: is not the value of an HTTP header; write one line of printable ASCII without spaces at the ends",
    ],
    "header-number": [
        "4: targets[0].headers.X-Tenant: must be text; put it in quotes",
    ],
    "header-override": [
        "4: targets[0].headers.X-HTTP-Method-Override: is a header that the inspector does not send; it would change what is asked",
    ],
    "interval-too-short": [
        "1: poll.interval: is too short for a server to be asked; take 50ms or more",
        "3: targets[0].interval: is too short for a server to be asked; take 50ms or more",
    ],
    "url-of-a-client": [
        "2: targets[0].url: ends in /v1, which clients of the server add; write http://127.0.0.1:8080",
        "3: targets[1].url: ends in /v1, which clients of the server add; write http://127.0.0.1:8080/base",
    ],
    "key-and-header": [
        "6: targets[0].headers.authorization: is given beside api_key_file; keep one of the two",
    ],
    "key-file-empty": [
        "2: targets[0].api_key_file: holds nothing; put the key there, alone on one line",
    ],
    "key-file-folder": [
        "2: targets[0].api_key_file: is no file; name a file that holds the key alone",
    ],
    "key-file-missing": [
        "4: targets[0].api_key_file: cannot be read (no such file or directory); name a file that the inspector's user may read",
    ],
    "key-file-two-lines": [
        "2: targets[0].api_key_file: holds more than a key; a key is one line of printable ASCII without spaces",
    ],
    "key-not-text": [
        "1: has a key that is not text; put keys in quotes",
    ],
    "key-variable-empty": [
        "2: targets[0].api_key_env: names a variable that holds nothing; put the key there, alone on one line",
    ],
    "key-variable-not-set": [
        "2: targets[0].api_key_env: names an environment variable that is not set; set it for the inspector's process",
    ],
    "key-without-engine": [
        f"2: targets[0].api_key_file: {NO_ENGINE}",
        f"3: targets[1].api_key_env: {NO_ENGINE}",
        f"4: targets[2].headers: {NO_ENGINE}",
    ],
    "label-name": [
        "4: targets[0].labels.room-number: is not a Prometheus label name; use letters, digits and underscores, no digit first",
    ],
    "label-reserved": [
        "4: targets[0].labels.instance: is a label name that the inspector or Prometheus uses itself; choose another",
    ],
    "label-underscores": [
        "4: targets[0].labels.__address__: is a label name that the inspector or Prometheus uses itself; choose another",
    ],
    "launch-argv-empty": [
        "2: targets[0].launch.argv: must not be empty",
    ],
    "launch-argv-number": [
        "2: targets[0].launch.argv[2]: must be text; put it in quotes",
    ],
    "launch-file-missing": [
        "2: targets[0].launch.file: cannot be read (no such file or directory); name a file that the inspector's user may read",
    ],
    "launch-null": [
        "4: targets[0].launch: must be auto, none, {pid: NUMBER}, {file: PATH} or {argv: [WORD, …]}",
    ],
    "launch-pid": [
        "2: targets[0].launch.pid: must be a whole number",
    ],
    "launch-two": [
        "6: targets[0].launch.argv: does not go with the key beside it; keep one of the two",
    ],
    "launch-word": [
        "2: targets[0].launch: must be auto, none, {pid: NUMBER}, {file: PATH} or {argv: [WORD, …]}",
    ],
    "listen-bracketless": [
        "1: listen: has an IPv6 address without brackets; write [::1]:9836",
    ],
    "listen-form": [
        "1: listen: is not host:port; write 127.0.0.1:9836",
    ],
    "listen-name": [
        "1: listen: is not a loopback address, so that everyone on the network could read; set web.bearer_token_file, or web.allow_unauthenticated: true",
    ],
    "listen-open": [
        "1: listen: is not a loopback address, so that everyone on the network could read; set web.bearer_token_file, or web.allow_unauthenticated: true",
    ],
    "logs-unit": [
        "2: targets[0].logs: names no unit of the journal; write journal:NAME.service",
    ],
    "may-wake-text": [
        "2: targets[0].may_wake: must be true or false",
    ],
    "merge-text": [
        "1: poll: merges (<<) something that is not a mapping; merge an anchored mapping",
    ],
    "metrics-word": [
        "2: targets[0].metrics: must be 'auto' or 'never'",
    ],
    "missing-url": [
        "2: targets[0].url: required key is missing",
    ],
    "name-with-spaces": [
        "2: targets[0].name: is not a usable name; use 1 to 100 characters without spaces, quotes, braces and backslashes",
    ],
    "not-a-mapping": [
        "1: must be a mapping of keys",
    ],
    "not-yaml": [
        "3: is not valid YAML: a line that does not go with those above at column 2; look for a missing quote, bracket or space",
    ],
    "number-as-name": [
        "2: targets[0].name: must be text; put it in quotes",
    ],
    "self-alias": [
        " is too large or too deep once its aliases are written out; write the file without nested aliases",
    ],
    "session-none": [
        "3: thresholds.sessions.chat: is not a session of this file; describe it under sessions",
    ],
    "session-shape": [
        "2: sessions.chat.prompt: must be at least 1",
    ],
    "session-unknown": [
        '3: targets[0].sessions[0]: is not a session of this file; did you mean "chat"?',
    ],
    "socket-relative": [
        "2: targets[0].url: names no socket file; write unix:/path/of/socket with an absolute path",
    ],
    "stale-after-zero": [
        "1: poll.stale_after: must be at least 1",
    ],
    "tag": [
        "1: listen: has a YAML tag; write plain values",
    ],
    "targets-not-a-list": [
        "1: targets: must be a list",
    ],
    "threshold-above-one": [
        "2: thresholds.kv.warning: must be at most 1.0",
    ],
    "threshold-nan": [
        "2: thresholds.kv.warning: must be a finite number",
    ],
    "threshold-order": [
        "2: thresholds.kv: has a critical mark above the warning mark; headroom falls through warning first, so make critical the smaller one",
    ],
    "threshold-session-order": [
        "4: thresholds.sessions.chat: has a critical mark above the warning mark; headroom falls through warning first, so make critical the smaller one",
    ],
    "threshold-session-share": [
        "3: thresholds.sessions.chat.warning: must be a whole number",
    ],
    "tls-key-alone": [
        "4: targets[0].tls: has a key_file without a cert_file; name the client certificate too",
    ],
    "tls-without-https": [
        "4: targets[0].tls: has a ca_file that holds no usable certificate; name a PEM file",
        "4: targets[0].tls: is given for a URL that is not https; write https:// in url, or take tls out",
    ],
    "token-file-missing": [
        "2: web.bearer_token_file: cannot be read (no such file or directory); name a file that the inspector's user may read",
    ],
    "two-keys": [
        "5: targets[0].api_key_env: is given beside api_key_file; keep one of the two",
    ],
    "unknown-key-without-likeness": [
        "2: poll.zzz: unknown key; known here: interval, stale_after, timeout",
    ],
    "unknown-key": [
        '4: targets[0].intervall: unknown key; did you mean "interval"?',
    ],
    "unknown-top-key": [
        '2: traget: unknown key; did you mean "targets"?',
    ],
    "url-climbs": [
        "2: targets[0].url: has a base path with dots, a query or a fragment; give the plain path under which the server answers",
    ],
    "url-port": [
        "2: targets[0].url: has a host or port that cannot be; write http://host:port with a port from 1 to 65535",
    ],
    "url-with-password": [
        "2: targets[0].url: holds a user name or password; put it into a key file (api_key_file) or into headers",
    ],
    "url-with-query": [
        "2: targets[0].url: has a query or a fragment; give only host, port and base path",
    ],
    "url-without-scheme": [
        "2: targets[0].url: is not a URL that can be asked; write http://host:port, https://host:port or unix:/path",
    ],
}
"""File -> what is said of it, each behind the file's name."""


@pytest.fixture
def in_files(monkeypatch):
    monkeypatch.chdir(FILES)


def write(folder: Path, text: str) -> Path:
    path = folder / "inspector.yaml"
    path.write_text(text)
    return path


def refusal(path: Path) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        load(path, ENVIRONMENT)
    assert len(refused.value.problems) == len(str(refused.value).splitlines())
    return str(refused.value).splitlines()


@pytest.mark.parametrize("name", MISTAKES)
def test_each_mistake_is_refused_in_exactly_these_words(name, in_files):
    assert refusal(Path(f"{name}.yaml")) == [f"{name}.yaml:{said}" for said in MISTAKES[name]]


def test_each_bad_file_is_in_the_table():
    assert {path.stem for path in FILES.glob("*.yaml")} == {*MISTAKES, "whole"}


@pytest.mark.parametrize("key", ["web: {bearer_token_file: pipe}", "targets: [{name: a, engine: llamacpp, url: 'http://127.0.0.1:1', api_key_file: pipe}]"])
def test_a_pipe_is_refused_as_a_key_file_and_not_waited_for(tmp_path, key):
    os.mkfifo(tmp_path / "pipe")
    (said,) = refusal(write(tmp_path, key))
    assert said.endswith("is no file; name a file that holds the key alone")


def test_mistakes_of_every_kind_are_reported_at_once(tmp_path):
    path = write(
        tmp_path,
        """
listen: 0.0.0.0:9836
pol: {}
poll: {stale_after: many}
poll: {timeout: 0s}
targets:
  - {name: chat, url: "http://127.0.0.1:8080", api_key_file: no.key}
  - {name: chat, url: 8080, sessions: [x], intervall: 1s}
""",
    )
    places = [re.match(rf"{re.escape(str(path))}:(\d+): ([^:]+): ", line).groups() for line in refusal(path)]
    assert sorted(places) == sorted(
        [
            ("2", "listen"),
            ("3", "pol"),
            ("5", "poll"),
            ("5", "poll.timeout"),
            ("7", "targets[0].api_key_file"),
            ("7", "targets[0].api_key_file"),
            ("8", "targets[1].name"),
            ("8", "targets[1].url"),
            ("8", "targets[1].sessions[0]"),
            ("8", "targets[1].intervall"),
        ]
    )


@pytest.mark.parametrize("name", sorted(path.stem for path in FILES.glob("*.yaml") if "hunter2" in path.read_text()))
def test_no_error_repeats_a_secret(name, in_files):
    with pytest.raises(ConfigError) as refused:
        load(Path(f"{name}.yaml"), ENVIRONMENT)
    assert "hunter2" not in str(refused.value) + repr(refused.value) + repr(refused.value.problems)
    assert refused.value.__cause__ is None


SECRET_PLACES = [
    "api_key_env: [{}]",
    "api_key_file: {{x: {}}}",
    "headers: {}",
    "headers: [{}]",
    "headers: {{X-Key: [{}]}}",
    'headers: {{X-Key: "a\\n{}"}}',
    "launch: {}",
    "launch: {{argv: {}}}",
    "launch: {{argv: [[{}]]}}",
    "launch: {{argv: [a], env: {}}}",
    "launch: {{argv: [a], env: {{K: [{}]}}}}",
    "launch: {{argv: [a], pick: {}}}",
    "url: 'http://u:{}@h:1'",
    "url: 'http://h:1/?k={}'",
    "url: 'http://h:{}'",
    "url: '{}'",
    "headers: !x {}",
    "headers: !!int {}",
    "headers: '{}",
    "headers: *{}",
    "headers: !{}!x y",
    "headers: !<tag:{}> y",
    "headers: &{} 1\n    launch: &{} 1",
    'headers: "\\q{}"',
    "headers: [{}",
    "headers: [1, 2]\n  {}",
    "headers: |{}",
    "headers: {{'Bearer {}': x}}",
    "headers: {{'{}': [x]}}",
    "headers: {{'sk-{}': ''}}",
    "launch: {{argv: [a], env: {{'{}': [x]}}}}",
    "'Bearer {}': 1",
    "'{}:{}': 1",
    "headers: {{K: {}: x}}",
]


@pytest.mark.parametrize("place", SECRET_PLACES)
def test_a_secret_in_the_wrong_place_is_not_repeated(place, tmp_path):
    url = "" if place.startswith("url") else "    url: http://127.0.0.1:1\n"
    path = write(tmp_path, f"targets:\n  - name: chat\n{url}    {place.replace('{}', 'hunter2').format()}\n")
    assert "hunter2" not in "\n".join(refusal(path))


def test_no_control_character_of_a_file_reaches_the_terminal(tmp_path):
    path = write(tmp_path, 'targets:\n  - {name: a, url: "http://127.0.0.1:1", "\\e[31mred\\n\\u202e": 1, headers: {"\\e]0;x": y}}\nsessions: {"\\a": 1}\n')
    assert all(line.isprintable() for line in refusal(path))


def test_a_folder_is_no_log_but_a_file_that_is_yet_to_be_written_is(tmp_path):
    def with_logs(name):
        return write(tmp_path, f"targets:\n  - {{name: a, url: 'http://127.0.0.1:1', logs: {name}}}\n")

    (tmp_path / "folder").mkdir()
    assert [line.partition(": ")[2] for line in refusal(with_logs("folder"))] == [
        "targets[0].logs: is a folder; name the file that the server's output goes to"
    ]
    assert load(with_logs("not-yet.log"), ENVIRONMENT).targets


def test_the_whole_file_is_read(in_files):
    config = load(Path("whole.yaml"), ENVIRONMENT)
    chat, journal, by_pid, by_file = config.targets
    assert (config.listen_address, config.web.reload, config.alertmanager.url) == (("127.0.0.1", 9836), True, "http://127.0.0.1:9093")
    assert (config.poll.interval, config.poll.timeout, config.poll.stale_after) == (5.0, 3.0, 3)
    assert (config.alerts.before_firing, config.alerts.keep_firing_for, config.alerts.unknown_after) == (0.0, 60.0, 300.0)
    assert (config.alertmanager.basic_auth.username, config.alertmanager.password.get_secret_value()) == ("ops", "sk-good-key")
    assert config.alertmanager.resend == 30.0
    assert (config.thresholds.kv.warning, config.thresholds.kv.critical) == (0.2, 0.1)
    assert (config.thresholds.memory.warning, config.thresholds.slots.warning, config.thresholds.context.critical) == (None, 0.25, 0.1)
    assert config.thresholds.sessions["chat"].warning == 2
    assert (config.sessions["chat"].prompt, config.sessions["chat"].output) == (6000, 800)
    assert chat.endpoint.api_key.get_secret_value() == "sk-good-key"
    assert chat.endpoint.headers["X-Tenant"].get_secret_value() == "secret-tenant"
    assert chat.logs == LogSource("file", str(FILES / "server.log"))
    assert chat.launch == LaunchArgv(argv=("llama-server", "-c", "8192", "-m", "/models/private.gguf"), env={"LLAMA_API_KEY": "secret-env"})
    assert (chat.may_wake, chat.metrics, chat.sessions, chat.interval, chat.labels) == (False, "never", ("chat",), 2.0, {"room": "lab"})
    assert {name: (fact.value, fact.origin.kind, fact.origin.at) for name, fact in chat.stated(7.0).items()} == {
        "kv_unified": (True, Kind.OPERATOR, 7.0),
        "slots": (4, Kind.OPERATOR, 7.0),
        "version": ("b11434", Kind.OPERATOR, 7.0),
    }
    assert (journal.logs, journal.launch, journal.address.socket) == (LogSource("journal", "llama-server.service"), "none", "/run/llama.sock")
    assert (by_pid.launch, by_pid.address.root) == (LaunchPid(pid=123), "https://[::1]:8443/base")
    assert by_file.launch == LaunchFile(file=FILES / "whole.yaml", pick="chat")


@pytest.mark.parametrize("text", ["", "\n", "# nothing\n", "{}", "\ufeff"])
def test_an_empty_file_is_all_defaults(text, tmp_path):
    config = load(write(tmp_path, text))
    assert config == Config()
    assert (config.listen, config.poll.interval, config.poll.timeout, config.poll.stale_after) == ("127.0.0.1:9836", None, 3.0, 3)
    assert [(t.warning, t.critical) for t in (config.thresholds.kv, config.thresholds.memory)] == [(0.15, 0.05)] * 2
    assert [(t.warning, t.critical) for t in (config.thresholds.slots, config.thresholds.context)] == [(None, None)] * 2
    assert (config.targets, config.thresholds.sessions, config.web.allow_unauthenticated, config.web.reload) == ((), {}, False, False)


def test_a_target_with_name_and_url_alone_has_the_defaults(tmp_path):
    target = load(write(tmp_path, "targets: [{name: a, url: 'http://127.0.0.1:1'}]")).targets[0]
    assert (target.engine, target.launch, target.may_wake, target.metrics, target.sessions, target.interval) == (None, "auto", False, "auto", None, None)
    assert target.endpoint.api_key is None
    assert target.stated(0.0) == {}


def test_a_key_comes_from_the_environment(tmp_path):
    target = load(write(tmp_path, "targets: [{name: a, engine: llamacpp, url: 'http://127.0.0.1:1', api_key_env: GOOD_KEY}]"), ENVIRONMENT).targets[0]
    assert target.endpoint.api_key.get_secret_value() == "sk-from-environment"


def test_a_changed_key_file_makes_another_configuration(tmp_path):
    """A reload compares configurations to see what changed."""
    path = write(tmp_path, "targets: [{name: a, engine: llamacpp, url: 'http://127.0.0.1:1', api_key_file: k}]")
    (tmp_path / "k").write_text("one")
    first = load(path)
    assert load(path) == first
    (tmp_path / "k").write_text("two")
    assert load(path) != first


@pytest.mark.parametrize(("text", "seconds"), [("5s", 5), ("500ms", 0.5), ("1m", 60), ("2h", 7200), ("1.5s", 1.5), ("5 s", 5), (3, 3), (0.25, 0.25)])
def test_durations(text, seconds, tmp_path):
    assert load(write(tmp_path, yaml.safe_dump({"poll": {"timeout": text}}))).poll.timeout == seconds


@pytest.mark.parametrize("text", ["-5s", "5", "s", "5d", "5s5", "1e3s", "٣s", "", "25h", 0, -1, ".inf", [], True, None])
def test_what_is_no_duration_is_refused(text, tmp_path):
    assert "poll.timeout" in refusal(write(tmp_path, yaml.safe_dump({"poll": {"timeout": text}})))[0]


def test_the_nearest_interval_counts(tmp_path):
    text = "poll: {interval: 5s}\ntargets: [{name: a, url: 'http://127.0.0.1:1'}, {name: b, url: 'http://127.0.0.1:2', interval: 1m}]"
    config = load(write(tmp_path, text))
    assert [config.interval_of(target, 15.0) for target in config.targets] == [5.0, 60.0]
    assert Config().interval_of(config.targets[0], 15.0) == 15.0


def test_sessions_of_a_target_are_those_it_names_or_all(tmp_path):
    text = """
sessions: {chat: {prompt: 1, output: 2}, code: {prompt: 3, output: 4}}
targets: [{name: a, url: 'http://127.0.0.1:1'}, {name: b, url: 'http://127.0.0.1:2', sessions: [code]}, {name: c, url: 'http://127.0.0.1:3', sessions: []}]"""
    config = load(write(tmp_path, text))
    assert [list(config.sessions_of(target)) for target in config.targets] == [["chat", "code"], ["code"], []]


@pytest.mark.parametrize(
    ("url", "launch", "looks"),
    [
        ("http://127.0.0.1:1", "auto", True),
        ("http://localhost:1", "auto", True),
        ("http://[::1]:1", "auto", True),
        ("unix:/run/a.sock", "auto", True),
        ("http://10.0.0.7:1", "auto", False),
        ("http://localhost.example:1", "auto", False),
        ("http://127.0.0.1:1", "none", False),
        ("http://127.0.0.1:1", "{pid: 3}", False),
    ],
)
def test_only_a_local_process_is_looked_for(url, launch, looks, tmp_path):
    assert load(write(tmp_path, f"targets: [{{name: a, url: '{url}', launch: {launch}}}]")).targets[0].looks_at_process is looks


class TestMasking:
    def test_what_is_shown_holds_no_secret(self, in_files):
        config = load(Path("whole.yaml"), ENVIRONMENT)
        shown = yaml.safe_dump(config.masked()) + repr(config) + str(config)
        for secret in ("sk-good-key", "secret-tenant", "secret-env", "private.gguf"):
            assert secret not in shown

    def test_what_is_shown_says_that_there_is_one(self, in_files):
        target = load(Path("whole.yaml"), ENVIRONMENT).masked()["targets"][0]
        assert target["api_key_file"] == str(FILES / "good.key")
        assert target["headers"] == {"X-Tenant": "**********"}
        assert target["launch"] == {"argv": "(5 arguments, hidden)", "env": {"LLAMA_API_KEY": "**********"}}
        assert target["logs"] == str(FILES / "server.log")

    def test_an_endpoint_shows_no_key(self, in_files):
        endpoint = load(Path("whole.yaml"), ENVIRONMENT).targets[0].endpoint
        assert "sk-good-key" not in repr(endpoint)
        assert "secret-tenant" not in repr(endpoint)

    def test_the_bearer_token_is_not_shown(self, tmp_path):
        (tmp_path / "token").write_text("sk-token\n")
        config = load(write(tmp_path, "listen: 0.0.0.0:9836\nweb: {bearer_token_file: token}"))
        assert config.web.bearer_token.get_secret_value() == "sk-token"
        assert "sk-token" not in repr(config) + str(config.masked())


class TestYaml:
    def test_a_file_that_is_not_there(self, tmp_path):
        path = tmp_path / "none.yaml"
        assert refusal(path) == [f"{path}: cannot be read (no such file or directory); name a file that the inspector's user may read"]

    def test_a_file_that_is_no_text(self, tmp_path):
        path = tmp_path / "inspector.yaml"
        path.write_bytes(b"listen: a\npoll: \xff\n")
        assert refusal(path) == [f"{path}:2: is not UTF-8 text; save the file as UTF-8"]

    def test_a_control_character(self, tmp_path):
        path = write(tmp_path, "listen: a\npoll: \x07\n")
        assert refusal(path) == [f"{path}:2: has a character that YAML does not allow; save the file as plain UTF-8 text"]

    def test_a_file_that_is_too_large(self, tmp_path):
        path = write(tmp_path, "#" * (LARGEST_FILE + 1))
        assert refusal(path) == [f"{path}: is larger than 1 MiB; name the inspector's own YAML file"]

    @pytest.mark.parametrize("opening", ["[", "{a: ", "- "])
    def test_deep_nesting(self, opening, tmp_path):
        assert "too deep" in refusal(write(tmp_path, opening * 5000))[0]

    @pytest.mark.parametrize("kind", ["list", "merge"])
    def test_aliases_that_multiply(self, kind, tmp_path):
        """Nine lines that would be 9^9 values."""
        lines = ["a0: &a0 {k: 1}"] if kind == "merge" else ["a0: &a0 [x]"]
        for level in range(1, 10):
            inner = ", ".join([f"*a{level - 1}"] * 9)
            lines.append(f"a{level}: &a{level} {{<<: [{inner}]}}" if kind == "merge" else f"a{level}: &a{level} [{inner}]")
        assert "aliases" in refusal(write(tmp_path, "\n".join(lines)))[0]

    def test_too_many_values(self, tmp_path):
        assert "too large" in refusal(write(tmp_path, "a: [" + "1," * MOST_NODES + "]"))[0]

    def test_aliases_and_merges_work_and_keep_their_lines(self, tmp_path):
        text = """
targets:
  - &first {name: a, url: 'http://127.0.0.1:1', metrics: never, labels: &l {room: lab}}
  - {<<: *first, name: b, labels: *l}
  - {<<: *first, name: c, nonsense: 1}
"""
        path = write(tmp_path, text)
        assert refusal(path) == [f"{path}:5: targets[2].nonsense: unknown key; see docs/configuration.md"]
        path.write_text(text.replace(", nonsense: 1", ""))
        targets = load(path).targets
        assert [(t.name, t.metrics, t.labels) for t in targets] == [(name, "never", {"room": "lab"}) for name in "abc"]

    def test_a_date_is_text(self, tmp_path):
        config = load(write(tmp_path, "targets: [{name: a, url: 'http://127.0.0.1:1', labels: {since: 2026-11-30}}]"))
        assert config.targets[0].labels == {"since": "2026-11-30"}

    def test_an_impossible_date_is_refused(self, tmp_path):
        assert "put text in quotes" in refusal(write(tmp_path, "listen: 2026-99-99"))[0]


class TestCommandLine:
    @pytest.mark.parametrize(
        ("argument", "name", "engine", "root"),
        [
            ("http://127.0.0.1:8080", "127.0.0.1:8080", None, "http://127.0.0.1:8080"),
            ("http://chat.example/base/", "chat.example:80/base", None, "http://chat.example/base"),
            ("llamacpp=http://[::1]:8080", "[::1]:8080", "llamacpp", "http://[::1]:8080"),
            ("https://h:8443/a=b", "h:8443/a=b", None, "https://h:8443/a=b"),
            ("unix:/run/llama.sock", "llama.sock", None, "http://localhost"),
            ("vllm=unix:/run/v.sock:/v", "v.sock/v", "vllm", "http://localhost/v"),
        ],
    )
    def test_a_target(self, argument, name, engine, root):
        target = target_from_argument(argument)
        assert (target.name, target.engine, target.address.root) == (name, engine, root)

    @pytest.mark.parametrize(
        "argument",
        ["", "127.0.0.1:8080", "localhost", "ftp://h", "http://", "http://h:0", "http://h:", "http://h:99999", "http://h:x", "http://h/?a", "http://h/#a", "http://h/%2e%2E/a",
         "http://[::1", "unix:", "unix:run", "unix:/run/", "unix:/a:b", "=http://h", "Llama Cpp=http://h", "LLAMA=http://h", "http://h\n", "http://h h", "http://h\x00"],
    )  # fmt: skip
    def test_what_is_no_target_is_refused_with_a_remedy(self, argument):
        with pytest.raises(ValueError, match="; "):
            target_from_argument(argument)

    def test_targets_are_named_apart(self):
        config = from_targets(["http://h:1", "llamacpp=http://h:1", "http://h:1", "http://h:2"])
        assert [target.name for target in config.targets] == ["h:1", "h:1-2", "h:1-3", "h:2"]

    def test_targets_join_those_of_a_file(self, in_files):
        config = from_targets(["http://h:1"], load(Path("whole.yaml"), ENVIRONMENT))
        assert [target.name for target in config.targets] == ["chat", "journal", "by-pid", "by-file", "h:1"]
        assert config.poll.interval == 5.0

    def test_all_bad_arguments_are_reported_and_no_password(self):
        with pytest.raises(ConfigError) as refused:
            from_targets(["http://u:hunter2@h:1", "http://h:1", "h:1"])
        assert str(refused.value).splitlines() == [
            "command line: target 1: holds a user name or password; put it into a key file (api_key_file) or into headers",
            "command line: target 3: is not a URL that can be asked; write http://host:port, https://host:port or unix:/path",
        ]

    @pytest.mark.parametrize("listen", ["0.0.0.0:1", "[::]:1", "10.0.0.7:1", "inspector.example:1", "[::ffff:10.0.0.7]:1"])
    def test_another_listen_address_is_guarded_too(self, listen):
        with pytest.raises(ConfigError, match=r"--listen: is not a loopback address.*web\.bearer_token_file"):
            Config().with_listen(listen)
        open_to_all = Config.model_validate({"web": {"allow_unauthenticated": True}})
        assert open_to_all.with_listen(listen).listen == listen

    @pytest.mark.parametrize(
        ("listen", "address"),
        [("127.0.0.1:0", ("127.0.0.1", 0)), ("[::1]:9", ("::1", 9)), ("localhost:9", ("localhost", 9)), ("127.8.8.8:9", ("127.8.8.8", 9))],
    )
    def test_a_loopback_listen_address_is_free(self, listen, address):
        assert Config().with_listen(listen).listen_address == address

    @pytest.mark.parametrize("listen", ["", ":9", "localhost", "localhost:", "localhost:x", "localhost:65536", "::1:9", "localhost:-1"])
    def test_what_is_no_listen_address_is_refused(self, listen):
        with pytest.raises(ConfigError, match=r"--listen: .*; write"):
            Config().with_listen(listen)


def test_facts_are_the_static_fields_of_the_model_and_the_version():
    static = {name for table in (model.POOL_FIELDS, model.MEMORY_FIELDS) for name, info in table.items() if not info.live}
    assert set(Facts.model_fields) == static | {"version"}


FACT_TYPES = {name: str(kind) for owner in (model.Pool, model.Memory) for name, kind in owner.__annotations__.items() if name in Facts.model_fields}


@pytest.mark.parametrize(("field", "kind"), FACT_TYPES.items())
def test_a_fact_has_the_type_of_its_field(field, kind):
    right = {"Reading[int]": 4, "Reading[float]": 4.5, "Reading[bool]": True, "Reading[str]": "text"}
    assert getattr(Facts.model_validate({field: right[kind]}), field) == right[kind]
    for other, value in right.items():
        if other != kind and (other, kind) != ("Reading[int]", "Reading[float]"):
            with pytest.raises(ValueError):
                Facts.model_validate({field: value})


@pytest.mark.parametrize("line", re.findall(r"^launch: (.+?)(?:\s+#.*)?$", (ROOT.parent / "docs" / "configuration.md").read_text(), re.MULTILINE))
def test_documented_launch_forms_are_valid(line, tmp_path):
    (tmp_path / "compose.yaml").write_text("")
    assert load(write(tmp_path, f"targets: [{{name: a, url: 'http://127.0.0.1:1', launch: {line}}}]")).targets[0].launch


def test_the_configuration_knows_no_adapter():
    """The engine's name is checked where adapters are known."""
    for path in (ROOT.parent / "inspector").glob("config*.py"):
        imported = {node.module for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)}
        assert not [name for name in imported if name.startswith(("inspector.registry", "inspector_"))]


def test_an_address_of_a_mapped_loopback_is_local():
    assert parse_address("http://[::ffff:127.0.0.1]:1").is_local
    assert not parse_address("http://[::ffff:10.0.0.7]:1").is_local


def test_an_engine_that_no_adapter_knows_is_among_all_the_other_mistakes(tmp_path):
    text = "targets:\n  - {name: a, url: 'http://127.0.0.1:1', engine: lamacpp}\n  - {name: a, url: 'http://127.0.0.1:2', engine: abacus}\n"
    with pytest.raises(ConfigError) as refused:
        load(write(tmp_path, text), engines=("llamacpp", "vllm"))
    assert sorted(str(problem).partition(".yaml:")[2] for problem in refused.value.problems) == [
        '2: targets[0].engine: no adapter for lamacpp is installed; did you mean "llamacpp"?',
        "3: targets[1].engine: no adapter for abacus is installed; known here: llamacpp, vllm",
        "3: targets[1].name: is the name of targets[0] too; give each target a name of its own",
    ]
    assert load(write(tmp_path, text.replace("a, url: 'http://127.0.0.1:2'", "b, url: 'http://127.0.0.1:2'"))).targets
