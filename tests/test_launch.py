"""Launch settings out of an argv and an environment, and the process that listens on a port."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import hypothesis
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspector.contract import Flag, FlagKind, FlagTable
from inspector.launch import server_argv, settings
from inspector.local import process as process_module
from inspector.local.process import REMEDY, Process, process_of, process_on, still_running
from inspector.reading import Known, Reason, Unknown

AT = 1_796_000_000.0
LLAMA = FlagTable(
    commands=frozenset({"llama-server"}),
    flags=(
        Flag("ctx_size", FlagKind.INTEGER, ("-c", "--ctx-size"), env=("LLAMA_ARG_CTX_SIZE",)),
        Flag("parallel", FlagKind.INTEGER, ("-np", "--parallel"), env=("LLAMA_ARG_N_PARALLEL",)),
        Flag("metrics", FlagKind.SWITCH, ("--metrics",), env=("LLAMA_ARG_ENDPOINT_METRICS",)),
        Flag(
            "unified",
            FlagKind.SWITCH,
            ("-kvu", "--kv-unified"),
            off=("-no-kvu", "--no-kv-unified"),
            env=("LLAMA_ARG_KV_UNIFIED",),
            env_off=("LLAMA_ARG_NO_KV_UNIFIED",),
        ),
        Flag("cache_type", FlagKind.WORD, ("-ctk", "--cache-type-k"), env=("LLAMA_ARG_CACHE_TYPE_K",), words=frozenset({"f16", "q8_0"})),
        Flag("model", FlagKind.GIVEN, ("-m", "--model"), env=("LLAMA_ARG_MODEL",)),
        Flag("api_key", FlagKind.GIVEN, ("--api-key",), env=("LLAMA_API_KEY",)),
    ),
    dashes=True,
)
VLLM = FlagTable(
    commands=frozenset({"vllm serve", "vllm.entrypoints.openai.api_server"}),
    flags=(
        Flag("max_model_len", FlagKind.SIZE, ("--max-model-len",), words=frozenset({"auto"})),
        Flag("max_num_seqs", FlagKind.INTEGER, ("--max-num-seqs",)),
        Flag("max_num_batched_tokens", FlagKind.SIZE, ("--max-num-batched-tokens",)),
        Flag("utilization", FlagKind.NUMBER, ("--gpu-memory-utilization",)),
        Flag("prefix_caching", FlagKind.SWITCH, ("--enable-prefix-caching",), off=("--no-enable-prefix-caching",)),
    ),
    unique_prefixes=True,
    dashes=True,
)


def view(argv, environ=None, table=LLAMA, live=True):
    return settings(argv, environ or {}, table, path="pid 7", live=live, at=AT)


def value(name, argv, environ=None, table=LLAMA):
    reading = view(argv, environ, table).get(name)
    return reading.value if isinstance(reading, Known) else reading


# --- Arguments ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["-c", "8192"], 8192),
        (["--ctx-size", "8192"], 8192),
        (["--ctx-size=8192"], 8192),
        (["--ctx_size", "8192"], 8192),
        (["-c", "1", "--ctx-size", "8192"], 8192),
        (["-c", "-1"], -1),
        (["-c", "0"], 0),
        (["--verbose", "-c", "8192", "--jinja"], 8192),
        (["-m", "-c", "8192"], 8192),
        (["--", "-c", "8192"], None),
        (["-C", "8192"], None),
        (["-c8192"], None),
        (["--ctx", "8192"], None),
        (["--model", "x", "8192"], None),
        ([], None),
    ],
)
def test_the_value_of_a_flag(argv, expected):
    assert value("ctx_size", argv) == expected


def test_a_setting_says_where_and_when_it_was_read():
    reading = view(["-c", "8192"]).get("ctx_size")
    assert (str(reading.origin), reading.origin.at) == ("launch:pid 7", AT)


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["-kvu"], True),
        (["-no-kvu"], False),
        (["--kv-unified", "--no-kv-unified"], False),
        (["--no-kv_unified", "--kv_unified"], True),
        (["--kv-unified=off"], False),
        (["--no-kv-unified=on"], False),
        (["--kv-unified", "false"], True),
        ([], None),
    ],
)
def test_switches(argv, expected):
    assert value("unified", argv) is expected


@pytest.mark.parametrize(
    "argv", [["-c"], ["-c", "--metrics"], ["-c", "abc"], ["-c", ""], ["-c="], ["-c", "8k"], ["-c", "8_192"], ["-c", "1e3"], ["-c", "9" * 30], ["-c", "8.0"]]
)
def test_a_value_that_is_missing_or_no_number_is_invalid(argv):
    assert value("ctx_size", argv).reason is Reason.INVALID


def test_a_flag_without_its_value_does_not_eat_the_next_flag():
    assert value("metrics", ["-c", "--metrics"]) is True


def test_a_word_is_shown_only_if_it_is_one_of_the_words():
    assert value("cache_type", ["-ctk", "q8_0"]) == "q8_0"
    refused = value("cache_type", ["-ctk", "/srv/SECRET"])
    assert refused.reason is Reason.INVALID
    assert "SECRET" not in refused.detail


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("8192", 8192),
        ("1k", 1000),
        ("1K", 1024),
        ("25.6k", 25600),
        ("2M", 2 * 2**20),
        ("2m", 2_000_000),
        ("1G", 2**30),
        ("1g", 10**9),
        ("-1", -1),
        ("auto", "auto"),
    ],
)
def test_sizes_as_vllm_reads_them(text, tokens):
    """k to g are decimal and may have a fraction, K to G binary: the words of vLLM's own help."""
    assert value("max_model_len", ["--max-model-len", text], table=VLLM) == tokens


@pytest.mark.parametrize("text", ["1.5K", "k", "1x", "1kk", "99999999999999G", "half", "-1k"])
def test_what_is_no_size(text):
    assert value("max_model_len", ["--max-model-len", text], table=VLLM).reason is Reason.INVALID


def test_only_sizes_may_have_a_unit():
    assert value("max_num_seqs", ["--max-num-seqs", "1k"], table=VLLM).reason is Reason.INVALID


@pytest.mark.parametrize(("text", "number"), [("0.9", 0.9), ("1", 1.0), (".5", 0.5)])
def test_numbers(text, number):
    assert value("utilization", [f"--gpu-memory-utilization={text}"], table=VLLM) == number


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1_0", "0,9", "1e999"])
def test_what_is_no_number(text):
    assert value("utilization", [f"--gpu-memory-utilization={text}"], table=VLLM).reason is Reason.INVALID


@pytest.mark.parametrize(
    ("argv", "name", "expected"),
    [
        (["--max-model", "4k"], "max_model_len", 4000),
        (["--max_model=4k"], "max_model_len", 4000),
        (["--max-num-s", "4"], "max_num_seqs", 4),
        (["--enable-prefix"], "prefix_caching", True),
        (["--no-enable"], "prefix_caching", False),
        (["--", "--no-enable"], "prefix_caching", None),
    ],
)
def test_shortened_flags_where_the_engines_parser_takes_them(argv, name, expected):
    assert value(name, argv, table=VLLM) == expected


def test_a_flag_that_is_shortened_too_much_may_be_any_of_several():
    """The server took it, so in its version it had one meaning: none of them is surely left out."""
    for argv in (["--max-num", "4"], ["--max-num=4"]):
        reading = value("max_num_seqs", argv, table=VLLM)
        assert isinstance(reading, Unknown)
        assert reading.reason is Reason.AMBIGUOUS
        assert value("max_num_seqs", [*argv, "--max-num-seqs", "8"], table=VLLM) == 8


# --- Environment --------------------------------------------------------------------------------------------------------------------


def test_an_argument_wins_over_the_environment():
    assert value("ctx_size", ["-c", "1"], {"LLAMA_ARG_CTX_SIZE": "2"}) == 1
    assert value("ctx_size", [], {"LLAMA_ARG_CTX_SIZE": "2"}) == 2
    assert value("ctx_size", [], {"ctx_size": "2", "LLAMA_ARG_CTX": "2"}) is None


@pytest.mark.parametrize(
    ("text", "on"), [("1", True), ("true", True), ("on", True), ("enabled", True), ("0", False), ("false", False), ("off", False), ("disabled", False)]
)
def test_switches_in_the_environment(text, on):
    assert value("metrics", [], {"LLAMA_ARG_ENDPOINT_METRICS": text}) is on


@pytest.mark.parametrize("text", ["yes", "no", "True", "ON", "", "2"])
def test_a_word_that_llama_server_refuses_is_neither_on_nor_off(text):
    """b10434 answers `invalid boolean value` to each of these."""
    assert value("unified", [], {"LLAMA_ARG_KV_UNIFIED": text}).reason is Reason.INVALID


@pytest.mark.parametrize("text", ["1", "0", ""])
def test_an_off_variable_switches_off_whatever_it_holds(text):
    assert value("unified", [], {"LLAMA_ARG_NO_KV_UNIFIED": text}) is False


def test_an_unreadable_value_in_the_environment_is_invalid_not_absent():
    assert value("ctx_size", [], {"LLAMA_ARG_CTX_SIZE": ""}).reason is Reason.INVALID


# --- Secrets and variables ----------------------------------------------------------------------------------------------------------


def test_neither_keys_nor_paths_nor_strange_flags_are_kept():
    argv = ["-m", "/srv/SECRET.gguf", "--api-key=SECRET", "--ssl-key-file", "SECRET", "SECRET", "-ctk", "SECRET", "-c", "SECRET"]
    found = view(argv, {"HF_TOKEN": "SECRET", "LLAMA_ARG_MODEL": "SECRET", "LLAMA_API_KEY": "SECRET"})
    assert "SECRET" not in repr(found)
    assert (found.get("model").value, found.get("api_key").value) == (True, True)
    assert found.get("ssl_key_file") is None
    assert "SECRET" not in repr(Process(1, AT, tuple(argv), {"HF_TOKEN": "SECRET"}))


@pytest.mark.parametrize("text", ["$CTX", "${CTX}", "${CTX:-8192}", "x${CTX}"])
def test_a_variable_that_is_not_resolved_has_no_source(text):
    for reading in (value("ctx_size", ["-c", text]), value("ctx_size", [], {"LLAMA_ARG_CTX_SIZE": text})):
        assert reading.reason is Reason.NO_SOURCE
        assert text not in reading.detail


def test_a_variable_that_stands_alone_in_a_file_may_hold_any_flag():
    written = view(["-c", "8192", "$EXTRA_ARGS"], live=False)
    assert written.get("ctx_size").value == 8192
    assert written.get("parallel").reason is Reason.NO_SOURCE
    assert view(["-c", "8192", "-m", "$MODEL"], live=False).get("parallel") is None
    assert view(["-c", "8192", "--alias", "$x"], live=True).get("parallel") is None, "a running process has no variables left"


@hypothesis.settings(deadline=None)
@given(
    st.lists(
        st.one_of(
            st.sampled_from(["-c", "-np", "--kv-unified", "--no-kv-unified=1", "--ctx-size=", "--", "-", "=", "--=", "$X", "-1", "8"]), st.text(max_size=6)
        ),
        max_size=12,
    )
)
def test_no_argv_raises(argv):
    for table in (LLAMA, VLLM):
        found = settings(argv, {}, table, path="p", live=False, at=AT)
        assert set(found.settings) <= {flag.name for flag in table.flags}
        server_argv(argv, table)


# --- Whose argv it is ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "before",
    [
        "llama-server",
        "./build/bin/llama-server",
        "/usr/bin/llama-server",
        "env LLAMA_ARG_CTX_SIZE=1 llama-server",
        "nice -n 5 /opt/llama-server",
        "nice env -i A=b taskset -c 0-3 llama-server",
        "numactl --cpunodebind=0 --membind=0 llama-server",
        "timeout 10s llama-server",
        "sudo -u llm llama-server",
        "/venv/bin/python /venv/bin/llama-server",
        "tini -- llama-server",
    ],
)
def test_a_programs_arguments(before):
    assert server_argv([*before.split(), "-c", "8192"], LLAMA) == ["-c", "8192"]


@pytest.mark.parametrize(
    "before",
    [
        "vllm serve",
        "/venv/bin/python3.12 /venv/bin/vllm serve",
        "python -m vllm.entrypoints.openai.api_server",
        "python3 -u -X dev -m vllm.entrypoints.openai.api_server",
        "python /src/vllm/entrypoints/openai/api_server.py",
        "uv run vllm serve",
        "uv run --with x python -m vllm.entrypoints.openai.api_server",
    ],
)
def test_a_modules_arguments(before):
    assert server_argv([*before.split(), "some/model", "--port", "1"], VLLM) == ["some/model", "--port", "1"]


@pytest.mark.parametrize(
    "argv",
    [
        "",
        "vim llama-server",
        "grep -r llama-server .",
        "env vim llama-server",
        "sudo tail -f llama-server",
        "llama-server-proxy -c 1",
        "my-llama-server",
        "llama-cli -c 1",
        "python -c llama-server",
        "python -m http.server llama-server",
        "python manage.py llama-server",
        "python",
        "python -m",
        "env",
        "docker-proxy -proto tcp -host-port 8080",
        "VLLM::EngineCore",
    ],
)
def test_other_programs(argv):
    assert server_argv(argv.split(), LLAMA) is None
    assert server_argv(argv.split(), VLLM) is None


def test_another_subcommand_is_no_server():
    assert server_argv(["vllm", "bench", "serve"], VLLM) is None
    assert server_argv(["vllm"], VLLM) is None


def test_a_hostile_argv_of_any_length_is_no_burden():
    assert server_argv(["env"] * 50_000 + ["x"], LLAMA) is None


# --- Processes of this machine ------------------------------------------------------------------------------------------------------

LISTEN = """
    import os, socket, sys, time
    family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
    server = socket.socket(family)
    server.bind((sys.argv[1], 0))
    server.listen()
    print(server.getsockname()[1], flush=True)
    while True:
        time.sleep(60)
"""


@pytest.fixture
def listening(tmp_path: Path):
    """Starts a process that listens on an address of its own choosing; gives (pid, port)."""
    script = tmp_path / "llama-server"
    script.write_text(textwrap.dedent(LISTEN))
    running = []

    def start(address: str = "127.0.0.1", *arguments: str, env: dict[str, str] | None = None) -> tuple[int, int]:
        argv = [sys.executable, str(script), address, *arguments]
        child = subprocess.Popen(argv, stdout=subprocess.PIPE, env={**os.environ, **(env or {})})
        running.append(child)
        return child.pid, int(child.stdout.readline())

    yield start
    for child in running:
        child.kill()
        child.wait()
        child.stdout.close()


@pytest.mark.parametrize(
    ("address", "asked"), [("127.0.0.1", "127.0.0.1"), ("127.0.0.1", "localhost"), ("0.0.0.0", "127.0.0.1"), ("127.0.0.1", "::ffff:127.0.0.1")]
)
def test_the_process_that_listens_on_a_port(listening, address, asked):
    pid, port = listening(address, "-c", "8192", env={"LLAMA_ARG_N_PARALLEL": "3"})
    found = process_on((asked, port))
    assert found.pid == pid
    assert found.created == pytest.approx(time.time(), abs=60)
    arguments = server_argv(found.argv, LLAMA)
    assert value("ctx_size", arguments, found.environ) == 8192
    assert value("parallel", arguments, found.environ) == 3


def test_a_listener_of_another_address_is_not_taken(listening):
    _, port = listening("127.0.0.2")
    missing = process_on(("127.0.0.1", port))
    assert missing.reason is Reason.NO_SOURCE
    assert str(port) in missing.detail


def test_a_remote_server_is_not_looked_for_here(listening):
    """A wildcard listener of the same port on this machine is another server."""
    _, port = listening("0.0.0.0")
    for host in ("203.0.113.9", "model.example"):
        assert process_on((host, port)).reason is Reason.NO_SOURCE


def test_a_process_runs_until_it_ends(listening):
    pid, _ = listening()
    found = process_of(pid)
    assert still_running(found)
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 20
    while psutil.Process(pid).status() != psutil.STATUS_ZOMBIE and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not still_running(found), "a zombie serves nobody"
    assert isinstance(process_of(pid), Unknown)


def test_an_id_that_was_given_to_another_process_is_not_the_same(listening):
    pid, _ = listening()
    found = process_of(pid)
    assert not still_running(Process(pid, found.created - 100, found.argv, found.environ))


@pytest.mark.parametrize("pid", [2**22 + 7, -5, 2**70])
def test_a_process_that_is_not_there(pid):
    assert process_of(pid).reason is Reason.NO_SOURCE
    assert not still_running(Process(pid, AT, (), {}))


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (psutil.AccessDenied(1), Reason.UNAUTHORIZED),
        (psutil.NoSuchProcess(1), Reason.NO_SOURCE),
        (psutil.ZombieProcess(1), Reason.NO_SOURCE),
        (OSError(5, "x"), Reason.NO_SOURCE),
    ],
)
@pytest.mark.parametrize("method", ["cmdline", "create_time", "environ"])
def test_a_process_that_hides_or_vanishes_between_two_reads(monkeypatch, method, error, reason):
    def fails(self):
        raise error

    monkeypatch.setattr(psutil.Process, method, fails)
    found = process_of(os.getpid())
    refused = found.environ if method == "environ" and isinstance(found, Process) else found
    assert isinstance(refused, Unknown)
    assert refused.reason is reason


@pytest.mark.parametrize(
    ("error", "reason"), [(psutil.AccessDenied(), Reason.UNAUTHORIZED), (OSError(2, "x"), Reason.NO_SOURCE), (ValueError("x"), Reason.NO_SOURCE)]
)
def test_a_system_that_does_not_show_its_sockets(monkeypatch, error, reason):
    def fails(kind):
        raise error

    monkeypatch.setattr(psutil, "net_connections", fails)
    refused = process_on(("127.0.0.1", 8080))
    assert refused.reason is reason
    assert REMEDY in refused.detail


def sockets(monkeypatch, *rows):
    """The machine's TCP sockets: (address, port, pid, status)."""
    family = psutil._common.addr if hasattr(psutil._common, "addr") else psutil._ntuples.addr
    made = [type("Row", (), {"laddr": family(ip, port), "pid": pid, "status": status})() for ip, port, pid, status in rows]
    monkeypatch.setattr(psutil, "net_connections", lambda kind: made)


def test_a_listener_of_another_user_is_unauthorized_with_the_remedy(monkeypatch):
    sockets(monkeypatch, ("127.0.0.1", 8080, None, "LISTEN"))
    refused = process_on(("127.0.0.1", 8080))
    assert refused.reason is Reason.UNAUTHORIZED
    assert REMEDY in refused.detail


@pytest.mark.parametrize(
    ("rows", "host"),
    [
        ([("127.0.0.1", 8080, 0, "LISTEN"), ("0.0.0.0", 8080, 1, "LISTEN"), ("::", 8080, 1, "LISTEN")], "127.0.0.1"),
        ([("0.0.0.0", 8080, 0, "LISTEN"), ("::", 8080, 1, "LISTEN")], "127.0.0.1"),
        ([("::", 8080, 0, "LISTEN"), ("127.0.0.1", 8081, 1, "LISTEN")], "127.0.0.1"),
        ([("::ffff:127.0.0.1", 8080, 0, "LISTEN")], "127.0.0.1"),
        ([("::1", 8080, 0, "LISTEN"), ("0.0.0.0", 8080, 1, "LISTEN")], "::1"),
        ([("::1", 8080, 0, "LISTEN")], "localhost"),
        ([("127.0.0.1", 8080, 0, "LISTEN"), ("127.0.0.1", 8080, 1, "ESTABLISHED")], "127.0.0.1"),
        ([("fe80::1%lo", 8080, 1, "LISTEN"), ("::1", 8080, 0, "LISTEN")], "[::1]"),
    ],
)
def test_the_socket_that_gets_the_connection_is_taken(monkeypatch, rows, host):
    pids = (os.getpid(), os.getppid())
    sockets(monkeypatch, *((ip, port, pids[which], status) for ip, port, which, status in rows))
    assert process_on((host, 8080)).pid == os.getpid()


def shared_by(monkeypatch, parents, *pids):
    sockets(monkeypatch, *(("127.0.0.1", 8080, pid, "LISTEN") for pid in pids))
    monkeypatch.setattr(process_module, "parent_of", lambda pid: parents[pid])
    monkeypatch.setattr(process_module, "process_of", lambda pid: pid)
    return process_on(("127.0.0.1", 8080))


def test_workers_that_share_a_port_stand_for_their_parent(monkeypatch):
    parents = {100: 1, 101: 100, 102: 100, 103: 101, 200: 1, 201: 200, 1: 0}
    assert shared_by(monkeypatch, parents, 101, 102) == 100
    assert shared_by(monkeypatch, parents, 100, 101, 103) == 100
    assert shared_by(monkeypatch, parents, 103, 102) == 100
    assert shared_by(monkeypatch, parents, 103) == 103
    assert shared_by(monkeypatch, parents, 1, 100) == 1, "in a container the server may be the first process"


def test_strangers_that_share_a_port_are_ambiguous(monkeypatch):
    refused = shared_by(monkeypatch, {101: 1, 201: 1, 1: 0}, 101, 201)
    assert refused.reason is Reason.AMBIGUOUS
    assert "launch" in refused.detail
