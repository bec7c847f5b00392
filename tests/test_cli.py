"""The command line: what it prints, and its exit codes. In this process where that is enough, for a process of its own takes half a second to start."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import httpx
import psutil
import pytest
import rich  # noqa: F401 - before `serve` keeps it out of its process, which is ours here

from engines.builds import missing
from inspector.cli import main
from recorded_server import BUSY, DISABLED, recorded_server

INSPECTOR = [sys.executable, "-m", "inspector"]
KEY = "sk-command-line-secret"
PATIENCE = 30


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def run(monkeypatch, capsys):
    """Runs a command line in this process."""

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["inspector", *map(str, words)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        return Done(ended.value.code, *capsys.readouterr())

    return run


def config_file(folder, *targets, head=""):
    path = folder / "inspector.yaml"
    path.write_text(head + "targets:\n" + "".join(f"  - {json.dumps({'launch': 'none', **target})}\n" for target in targets))
    return path


@pytest.fixture(scope="module")
def busy():
    with recorded_server() as server:
        yield server


# --- Exit codes of check ------------------------------------------------------------------------------------------------------------


def test_check_of_an_address_finds_out_the_engine_and_what_is_left(run, busy):
    done = run("check", busy.url)
    assert "llamacpp" in done.stdout
    assert "kv_used_tokens" in done.stdout
    assert "unknown (" in done.stdout
    assert done.stderr == ""


def test_check_sends_get_requests_only(run, busy):
    run("check", busy.url)
    assert {method for method, _, _ in busy.asked} == {"GET"}


SPLIT = {"kv_unified": False, "slots": 4}


@pytest.mark.parametrize(
    ("threshold", "code", "verdict"),
    [("{warning: 0.01}", 0, "ok"), ("{warning: 0.99}", 1, "warning"), ("{warning: 0.99, critical: 0.98}", 2, "critical")],
)
def test_check_tells_its_verdict_by_the_exit_code(run, busy, tmp_path, threshold, code, verdict):
    slots = json.loads(BUSY["/slots"][1])
    taken = sum(slot["is_processing"] for slot in slots)
    assert 0 < taken < len(slots), "the recorded server has free slots and busy ones"
    file = config_file(tmp_path, {"name": "chat", "url": busy.url, "facts": SPLIT}, head=f"thresholds: {{kv: {threshold}}}\n")
    done = run("check", "--config", file, "--json")
    report = json.loads(done.stdout)
    assert (done.returncode, report["targets"][0]["verdict"]) == (code, verdict)


def test_check_of_several_targets_counts_the_worst_and_names_them_in_order(run, busy, tmp_path):
    with recorded_server({**BUSY, "/slots": DISABLED, "/metrics": DISABLED}) as dark:
        file = config_file(
            tmp_path,
            {"name": "dark", "url": dark.url, "engine": "llamacpp"},
            {"name": "chat", "url": busy.url, "facts": SPLIT},
            {"name": "down", "url": "http://127.0.0.1:1", "engine": "llamacpp"},
        )
        all_of_them = run("check", "--config", file, "--json")
        dark_and_chat = run("check", "--config", file, "dark", "chat")
        chat = run("check", "--config", file, "chat")
    assert [t["target"] for t in json.loads(all_of_them.stdout)["targets"]] == ["dark", "chat", "down"]
    assert all_of_them.returncode == 2, "down is worse than unknown"
    assert dark_and_chat.returncode == 3, "the KV threshold cannot be decided"
    assert chat.returncode == 0
    assert "down" not in chat.stdout


def test_check_of_a_wrong_key_is_an_unknown(run, tmp_path):
    (tmp_path / "key").write_text("sk-wrong")
    with recorded_server(key=KEY) as server:
        done = run("check", "--config", config_file(tmp_path, {"name": "chat", "url": server.url, "engine": "llamacpp", "api_key_file": "key"}))
    assert done.returncode == 3
    assert "unauthorized" in done.stdout


def test_check_by_address_uses_the_settings_of_the_file(run, busy, tmp_path):
    file = config_file(tmp_path, {"name": "other", "url": "http://127.0.0.1:1"}, head="thresholds: {kv: {}}\n")
    done = run("check", "--config", file, busy.url, "--json")
    assert [t["target"] for t in json.loads(done.stdout)["targets"]] == [busy.url.removeprefix("http://")]


# --- What is refused ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ["bogus"],
        ["check", "--bogus"],
        ["check", "nobody"],
        ["check", "ftp://127.0.0.1"],
        ["check", "http://user:pass@127.0.0.1"],
        ["check", "abacus=http://127.0.0.1:1"],
        ["check", "--config", "missing.yaml"],
        ["serve", "http://127.0.0.1:1", "--config", "missing.yaml"],
        ["serve", "nonsense"],
        ["serve", "--listen", "0.0.0.0:0", "http://127.0.0.1:1"],
        ["serve", "--listen", "nowhere"],
        ["serve", "--log-level", "loud"],
        ["explain"],
        ["explain", "nobody"],
        ["config"],
        ["config", "check"],
        ["config", "check", "missing.yaml"],
        ["demo", "--seconds", "soon"],
    ],
    ids=" ".join,
)
def test_what_is_not_understood_exits_with_3_and_says_so_on_stderr(run, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = run(*words)
    assert done.returncode == 3
    assert done.stderr.strip() or words == ["config"]
    assert "Traceback" not in done.stderr
    assert "pass@" not in done.stdout + done.stderr


def test_a_name_that_is_not_in_the_file_is_answered_with_those_that_are(run, tmp_path):
    done = run("check", "--config", config_file(tmp_path, {"name": "chat", "url": "http://127.0.0.1:1"}), "chta")
    assert done.returncode == 3
    assert done.stderr == "inspector: chta: there is no target of this name; its targets are: chat\n"


def test_every_problem_of_a_file_is_told_with_its_line(run, tmp_path):
    file = tmp_path / "inspector.yaml"
    file.write_text("listne: 127.0.0.1:1\ntargets:\n  - {name: a, url: nonsense}\n  - {name: a, url: 'http://127.0.0.1:1', engine: abacus}\n")
    done = run("config", "check", file)
    assert done.returncode == 3
    lines = done.stderr.splitlines()
    assert len(lines) == 4
    assert [f"{file}:{number}" in line for number, line in zip((1, 3, 4, 4), lines, strict=True)] == [True] * 4


def test_a_good_file_is_said_to_be_good(run, tmp_path):
    done = run("config", "check", config_file(tmp_path, {"name": "chat", "url": "http://127.0.0.1:1"}))
    assert (done.returncode, done.stdout) == (0, f"{tmp_path / 'inspector.yaml'}: good, 1 target\n")


def test_config_show_masks_what_is_secret(run, tmp_path):
    (tmp_path / "key").write_text(KEY)
    launch = {"argv": ["llama-server", "--api-key", KEY]}
    target = {"name": "chat", "engine": "llamacpp", "url": "http://127.0.0.1:1", "api_key_file": "key", "headers": {"x-team": "hush-hush"}, "launch": launch}
    done = run("config", "show", config_file(tmp_path, target))
    assert done.returncode == 0
    assert "chat" in done.stdout
    assert KEY not in done.stdout
    assert "hush-hush" not in done.stdout


# --- Help ---------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", ["", "serve", "check", "watch", "explain", "plan", "adapters", "config", "config check", "config show", "demo"])
def test_every_command_has_help(run, words):
    done = run(*words.split(), "--help")
    assert done.returncode == 0
    assert "Usage" in done.stdout
    assert "[[" not in done.stdout, "Typer puts the brackets around what may be left out or repeated"


def test_help_loads_nothing_of_the_engine_room():
    script = "import sys, inspector.cli; print([m for m in ('httpx', 'pydantic', 'starlette', 'prometheus_client', 'structlog') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_serve_loads_no_library_for_screens():
    script = (
        "import sys; from inspector import cli\n"
        "sys.argv = ['inspector', 'serve', '--listen', 'nowhere']\n"
        "try: cli.main()\n"
        "except SystemExit: pass\n"
        "print([m for m in ('rich', 'rich.console') if sys.modules.get(m)], 'inspector.daemon' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[] True\n"


def test_a_usage_error_of_a_real_process_exits_with_3():
    done = subprocess.run([*INSPECTOR, "bogus"], capture_output=True, text=True, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (3, False)


def test_version(run):
    done = run("--version")
    assert (done.returncode, done.stdout.split()[0]) == (0, "inference-inspector")


def test_adapters_are_listed_with_what_they_may_ask(run):
    done = run("adapters")
    assert done.returncode == 0
    assert "llamacpp" in done.stdout
    assert "GET /props?autoload=false" in done.stdout


# --- Explain ------------------------------------------------------------------------------------------------------------------------


def with_prompt(body, prompt):
    slots = json.loads(body)
    for slot in slots:
        slot["prompt"] = prompt
        slot["params"] = {"stop": [prompt], "grammar": prompt}
    return json.dumps(slots).encode()


def test_explain_shows_requests_replies_and_what_became_of_them_but_no_secret(run, tmp_path):
    prompt = "tell nobody that the cat is called Murka"
    (tmp_path / "key").write_text(KEY)
    props = json.loads(BUSY["/props"][1]) | {"model_path": "/home/murka/models/tiny.gguf"}
    bodies = {**BUSY, "/slots": (200, with_prompt(BUSY["/slots"][1], prompt)), "/props": (200, json.dumps(props).encode())}
    bundle = tmp_path / "bundle.json"
    with recorded_server(bodies, key=KEY) as server:
        file = config_file(tmp_path, {"name": "chat", "url": server.url, "engine": "llamacpp", "api_key_file": "key"})
        done = run("explain", "chat", "--config", file, "--save", bundle)
    assert done.returncode == 0
    saved = json.loads(bundle.read_text())
    paths = [path for _, path, _ in server.asked]
    assert [r["path"] + ("?" + r["query"] if r["query"] else "") for r in saved["requests"]] == paths, "every request is shown, and none that was not made"
    assert all(f"GET {path}" in done.stdout for path in paths)
    for told in ("kv_used_tokens", "unknown (", "KV layout", "200"):
        assert told in done.stdout
    for hidden in ("Murka", KEY, "/home/murka"):
        assert hidden not in done.stdout + done.stderr + bundle.read_text()
    assert saved["engine"] == "llamacpp"
    assert saved["report"]["pools"][0]["fields"]["slots"]["value"] == len(json.loads(BUSY["/slots"][1]))


def test_a_masked_bundle_holds_every_number_of_the_reply(run, tmp_path, busy):
    bundle = tmp_path / "bundle.json"
    run("explain", busy.url, "--save", bundle)
    (slots,) = [json.loads(r["body"]) for r in json.loads(bundle.read_text())["requests"] if r["path"] == "/slots"]
    real = json.loads(BUSY["/slots"][1])
    assert [(s["id"], s["n_ctx"], s["is_processing"], s.get("n_prompt_tokens")) for s in slots] == [
        (s["id"], s["n_ctx"], s["is_processing"], s.get("n_prompt_tokens")) for s in real
    ]


def test_explain_of_a_server_that_is_down_says_what_was_tried(run):
    done = run("explain", "llamacpp=http://127.0.0.1:1")
    assert done.returncode == 0
    assert "GET /health" in done.stdout
    assert "unreachable" in done.stdout


def test_a_bundle_that_cannot_be_written_is_a_sentence(run, tmp_path, busy):
    done = run("explain", busy.url, "--save", tmp_path / "no" / "such" / "folder.json")
    assert done.returncode == 1
    assert "cannot be written" in done.stderr
    assert "Traceback" not in done.stderr


# --- Broken off ---------------------------------------------------------------------------------------------------------------------

WRITERS = [(["check", "{url}"], 3), (["check", "--json", "{url}"], 3), (["explain", "{url}"], 1), (["adapters"], 1), (["config", "show", "{file}"], 1)]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
@pytest.mark.parametrize(("words", "code"), WRITERS)
def test_output_that_cannot_be_written_is_one_line_and_no_traceback(words, code, busy, tmp_path):
    words = [word.format(url=busy.url, file=config_file(tmp_path, {"name": "a", "url": busy.url})) for word in words]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([*INSPECTOR, *words], stdout=full, stderr=subprocess.PIPE, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == code
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("inspector: broken off: OSError (No space left on device)")


@pytest.mark.parametrize(("words", "code"), WRITERS)
def test_a_reader_that_went_away_is_no_reason_to_complain(words, code, busy, tmp_path):
    words = [word.format(url=busy.url, file=config_file(tmp_path, {"name": "a", "url": busy.url})) for word in words]
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as gone:
        done = subprocess.run([*INSPECTOR, *words], stdout=gone, stderr=subprocess.PIPE, text=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stderr) == (code, "")


@pytest.mark.parametrize(("command", "code"), [("check", 3), ("adapters", 1)])
def test_a_mistake_of_ours_is_one_line_without_text_or_folder(run, monkeypatch, command, code):
    def broken(*_words, **_options):
        raise RuntimeError(KEY)

    monkeypatch.setattr(import_module(f"inspector.cli.{command}"), command, broken)
    done = run(command)
    assert done.returncode == code
    assert done.stderr.startswith("inspector: broken off: RuntimeError at test_cli.py:")
    assert KEY not in done.stderr
    assert "/" not in done.stderr


def test_what_was_typed_reaches_the_terminal_without_control_characters(run, tmp_path):
    done = run("check", "\x1b[31mred\r")
    assert done.stderr.rstrip("\n").isprintable()


# --- Serve --------------------------------------------------------------------------------------------------------------------------


@contextmanager
def process_of(*words, **pipes):
    """A process that does not outlive the block, nor our patience."""
    process = subprocess.Popen([*INSPECTOR, *words], text=True, **pipes)
    watchdog = threading.Timer(2 * PATIENCE, process.kill)
    watchdog.start()
    try:
        yield process
    finally:
        watchdog.cancel()
        process.kill()
        process.communicate()


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def first_event(process, name):
    for line in process.stderr:
        event = json.loads(line)
        if event["event"] == name:
            return event
    raise AssertionError(f"ended without the event {name}")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_serve_answers_until_it_is_told_to_end_and_exits_with_0(busy, number):
    with process_of("serve", busy.url, "--listen", "127.0.0.1:0", stderr=subprocess.PIPE) as process:
        address = first_event(process, "inspector started")["address"]
        assert first_event(process, "target state")["state"] == "ready"
        assert "inspector_target_up" in httpx.get(f"{address}metrics", trust_env=False).text
        process.send_signal(number)
        assert process.wait(PATIENCE) == 0
    with pytest.raises(httpx.ConnectError):
        httpx.get(address, trust_env=False)


def writer_once_read(fifo):
    """The writing end of a pipe, once somebody waits at the other one."""
    give_up = time.monotonic() + PATIENCE
    while True:
        with suppress(OSError):
            return os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
        assert time.monotonic() < give_up, "the file was not read again"
        time.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_configuration_that_hangs_while_it_is_read_again_does_not_keep_serve_from_ending(tmp_path, number):
    """As on a dead mount: the thread that reads never comes back."""
    file = config_file(tmp_path)
    file.write_text("targets: []\n")
    with process_of("serve", "--config", str(file), "--listen", "127.0.0.1:0", stderr=subprocess.PIPE) as process:
        first_event(process, "inspector started")
        file.unlink()
        os.mkfifo(file)
        process.send_signal(signal.SIGHUP)
        writer = writer_once_read(file)
        try:
            process.send_signal(number)
            assert process.wait(PATIENCE) == 0
        finally:
            os.close(writer)


def test_a_port_in_use_is_a_sentence_and_exit_code_1(run):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for command in (["serve", "http://127.0.0.1:1"], ["demo"]):
            done = run(*command, "--listen", f"127.0.0.1:{port}")
            assert (done.returncode, done.stderr) == (1, f"inspector: 127.0.0.1:{port} is already in use; choose another with --listen\n")


def test_a_daemon_without_a_target_says_what_it_looks_for():
    with process_of("serve", "--listen", "127.0.0.1:0", "--log-format", "json", stderr=subprocess.PIPE) as process:
        assert first_event(process, "inspector started")["targets"] == 0
        events = {json.loads(process.stderr.readline())["event"]}
        assert events <= {"no model server found on this machine; looking again", "server found"}
        process.terminate()
        assert process.wait(PATIENCE) == 0


def test_an_idle_daemon_holds_at_most_60_mb_and_65_once_its_page_was_looked_at(busy):
    """The page's template library is loaded when somebody looks."""
    with process_of("serve", busy.url, "--listen", "127.0.0.1:0", stderr=subprocess.PIPE) as process:
        address = first_event(process, "inspector started")["address"]
        first_event(process, "target fields")
        for path, most in (("metrics", 60e6), ("api/v1/targets", 60e6), ("", 65e6)):
            assert httpx.get(address + path, trust_env=False).status_code == 200
            resident = psutil.Process(process.pid).memory_info().rss
            assert resident <= most, f"{resident / 1e6:.1f} MB after /{path}"


# --- Demo ---------------------------------------------------------------------------------------------------------------------------


@pytest.mark.engine
@pytest.mark.parametrize("ending", ["seconds", "interrupt"])
def test_the_demo_shows_a_real_server_under_load_and_leaves_nothing(ending):
    if find_spec("xllamacpp") is None:
        missing("xllamacpp is not installed")
    words = ["demo", "--listen", f"127.0.0.1:{free_port()}"] + (["--seconds", "8"] if ending == "seconds" else [])
    said = []
    with process_of(*words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        for line in process.stdout:
            said.append(line)
            if "kv_used_tokens" in line:
                break
        children = psutil.Process(process.pid).children(recursive=True)
        address = next(line.split()[-1] for line in said if "Prometheus" in line)
        metrics = httpx.get(address, trust_env=False).text
        if ending == "interrupt":
            process.send_signal(signal.SIGINT)
        rest, errors = process.stdout.read(), process.stderr.read()
        process.wait(PATIENCE)
    assert (process.returncode, errors) == (0, "")
    assert 'inspector_target_up{engine="llamacpp",target="demo"} 1.0' in metrics
    used = [float(line.split()[-1]) for line in metrics.splitlines() if line.startswith("inspector_kv_used_tokens{")]
    assert used
    assert used[0] > 0
    assert "} 0.0" in "\n".join(line for line in metrics.splitlines() if line.startswith("inspector_field_known{"))
    assert "unknown (" in "".join(said) + rest
    assert children, "the engine ran as a child"
    assert not [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]
