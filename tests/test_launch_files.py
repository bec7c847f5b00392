"""Launch files of every kind: one server, written in each, gives one table of facts; what they do not settle is unknown."""

import os
import plistlib
import shutil
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inspector.contract import FlagTable, LaunchView
from inspector.launch.files import LaunchFileReader, read_launch_file
from inspector.launch.files.files import LARGEST_FILE
from inspector.reading import Known, Reason, Unknown
from inspector_llamacpp.flags import FLAGS as LLAMA
from inspector_mlx.flags import FLAGS as MLX
from inspector_vllm.flags import FLAGS as VLLM

FIXTURES = Path(__file__).parent / "fixtures" / "launch"
AT = 1_796_000_000.0
SECRETS = ("SECRET", "/srv", "HF_TOKEN", "LLAMA_API_KEY")
CHAT = {"ctx_size": 65536, "parallel": 2, "kv_unified": True, "cache_type_k": "q8_0", "port": 8080}
KINDS = [
    "chat.plist", "shell-in-plist.plist", "chat.service", "chat.container", "compose.yaml", "compose-lists.yaml", "deployment.yaml", "start.sh",
    "run-container.sh", "supervisord.conf", "llama-swap.yaml",
]  # fmt: skip


@pytest.fixture
def chat(tmp_path: Path) -> Path:
    """The folder of the llama.cpp files, with the unit's environment file where the unit says that it is."""
    folder = tmp_path / "chat"
    shutil.copytree(FIXTURES / "llamacpp", folder)
    unit = folder / "chat.service"
    unit.write_text(unit.read_text().replace("@FOLDER@", str(folder)))
    return folder


def read(path: Path, table: FlagTable = LLAMA, pick: str | None = None) -> LaunchView | Unknown:
    view = read_launch_file(path, pick, table, at=AT)
    assert not any(secret in repr(view) for secret in SECRETS)
    return view


def of(path: Path, table: FlagTable = LLAMA, pick: str | None = None) -> dict[str, object]:
    """The known settings of a file; None for those that the file names and does not settle."""
    view = read(path, table, pick)
    assert isinstance(view, LaunchView), view
    return {name: reading.value if isinstance(reading, Known) else None for name, reading in view.settings.items()}


def written(tmp_path: Path, name: str, text: str | bytes) -> Path:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def refused(path: Path, reason: Reason, table: FlagTable = LLAMA, pick: str | None = None) -> str:
    view = read(path, table, pick)
    assert isinstance(view, Unknown), view
    assert view.reason is reason
    assert view.detail.startswith(f"{path.name}: ")
    assert str(path.parent) not in view.detail
    return view.detail


@pytest.mark.parametrize("name", KINDS)
def test_one_server_written_in_every_kind_of_file_gives_the_same_facts(chat: Path, name: str) -> None:
    view = read(chat / name)
    assert isinstance(view, LaunchView), view
    told = of(chat / name)
    assert {field: told.get(field) for field in CHAT} == CHAT
    assert view.missing == ""
    assert view.path == name
    assert view.live is False
    assert all(reading.origin.path == name and reading.origin.at == AT for reading in view.settings.values() if isinstance(reading, Known))


def test_a_binary_property_list_says_the_same_as_its_xml(chat: Path) -> None:
    binary = written(chat, "binary.plist", plistlib.dumps(plistlib.loads((chat / "chat.plist").read_bytes()), fmt=plistlib.FMT_BINARY))
    assert of(binary) == of(chat / "chat.plist")


MLX_SAMPLES = {
    ("sample-launchd.plist", None): {
        "model": "Qwen3-32B-4bit", "port": 8080, "decode_concurrency": 4, "prompt_concurrency": 1, "prefill_step_size": 512, "prompt_cache_size": 6,
        "prompt_cache_bytes": 8_000_000_000, "max_tokens": 4096,
    },
    ("sample-shell.sh", None): {
        "model": "gemma-3-27b-it-4bit", "port": 8080, "prompt_concurrency": 2, "decode_concurrency": 2, "prompt_cache_bytes": 12_000_000_000,
        "prompt_cache_size": 20,
    },
    ("sample-compose.yaml", "mlx"): {"model": "tiny-mlx", "port": 8080, "decode_concurrency": 2, "prompt_cache_bytes": 512_000_000},
    ("sample-compose.yaml", "mlx-string-form"): {"model": "tiny-mlx", "port": 8081, "max_tokens": 1024},
}  # fmt: skip


@pytest.mark.parametrize(("name", "pick"), MLX_SAMPLES)
def test_the_samples_of_mlx_lm_are_read_as_they_are_written(name: str, pick: str | None) -> None:
    told = of(FIXTURES / "mlx" / name, MLX, pick)
    told.pop("host", None)
    assert told == MLX_SAMPLES[name, pick]


def test_the_unit_of_mlx_lm_with_its_environment_file(tmp_path: Path) -> None:
    unit = (FIXTURES / "mlx" / "sample-systemd.service").read_text()
    there = written(tmp_path, "mlx.service", unit.replace("/etc/default/mlx-lm", str(FIXTURES / "mlx" / "sample-default-env.txt")))
    expected = {"model": "tiny-mlx", "port": 8085, "kv_bits": 8, "kv_group_size": 64, "quantized_kv_start": 4096, "prompt_cache_size": 2}
    assert of(there, MLX) == expected
    absent = written(tmp_path, "absent.service", unit.replace("/etc/default/mlx-lm", str(tmp_path / "absent.env")))
    assert of(absent, MLX) == {**expected, "port": None}


def test_several_servers_of_the_engine_are_ambiguous_until_one_is_picked() -> None:
    path = FIXTURES / "mlx" / "sample-compose.yaml"
    assert "pick" in refused(path, Reason.AMBIGUOUS, MLX)
    assert "pick" in refused(path, Reason.NO_SOURCE, MLX, pick="no-such-service")


# --- systemd ------------------------------------------------------------------------------------------------------------------------


def unit(tmp_path: Path, *lines: str, name: str = "engine.service") -> Path:
    return written(tmp_path, name, "\n".join(["[Unit]", "Description=x", "[Service]", *lines, ""]))


def test_an_environment_file_that_is_not_read_leaves_no_default_and_no_variable_sure(tmp_path: Path) -> None:
    path = unit(tmp_path, f"EnvironmentFile={tmp_path}/gone.env", "Environment=LLAMA_ARG_CTX_SIZE=8192", "ExecStart=/usr/bin/llama-server -np 4 -b ${BATCH}")
    view = read(path)
    assert isinstance(view, LaunchView)
    assert "gone.env" in view.missing
    assert str(tmp_path) not in view.missing
    assert isinstance(view.get("ctx_size"), Unknown), "the file could set it over"
    assert isinstance(view.get("batch_size"), Unknown)
    assert isinstance(view.get("kv_unified"), Unknown)
    assert view.get("parallel") == Known(4, view.origin)


def test_what_is_unresolved_outside_a_shell_stays_so_inside_it(tmp_path: Path) -> None:
    shell = unit(tmp_path, "ExecStart=/bin/sh -c 'llama-server -c 4096 --threads ${N} $EXTRA' sh")
    view = read(shell)
    assert isinstance(view, LaunchView)
    assert isinstance(view.get("parallel"), Unknown)
    program = written(tmp_path, "x.conf", '[program:x]\ncommand=bash -c "llama-server -c 4096 %(ENV_MORE)s"\n')
    view = read(program)
    assert isinstance(view, LaunchView)
    assert isinstance(view.get("parallel"), Unknown)


def test_an_entry_point_for_an_image_that_is_not_known_is_not_guessed_at(tmp_path: Path) -> None:
    for entry in ("--entrypoint /app/llama-server", "--entrypoint=/app/llama-server"):
        refused(written(tmp_path, "x.sh", f"docker run {entry} -e LLAMA_ARG_N_PARALLEL=2 -c 512 mine -c 4096"), Reason.NO_SOURCE)
        known = written(tmp_path, "x.sh", f"docker run {entry} -eLLAMA_ARG_N_PARALLEL=2 -c 512 llama.cpp:server -c 4096")
        assert of(known) == {"ctx_size": 4096, "parallel": 2}


def test_the_name_of_a_container_is_not_its_command(tmp_path: Path) -> None:
    refused(written(tmp_path, "x.sh", "docker run --name llama-server -c 512 mine -c 4096"), Reason.NO_SOURCE)
    assert of(written(tmp_path, "x.sh", "docker run --name llama-server -c 512 mine llama-server -c 4096")) == {"ctx_size": 4096}


def test_an_environment_file_counts_over_environment_and_the_command_line_over_both(tmp_path: Path) -> None:
    env = written(tmp_path, "x.env", "LLAMA_ARG_CTX_SIZE=4096\nLLAMA_ARG_N_PARALLEL=3\n")
    path = unit(tmp_path, f"EnvironmentFile={env}", "Environment=LLAMA_ARG_CTX_SIZE=8192", "ExecStart=/usr/bin/llama-server --parallel 1")
    assert of(path) == {"ctx_size": 4096, "parallel": 1}


def test_systemd_splits_a_bare_variable_and_keeps_a_braced_one_whole(tmp_path: Path) -> None:
    path = unit(tmp_path, 'Environment="FLAGS=-c 8192 -np 2" "PAIR=-b 64"', "ExecStart=/usr/bin/llama-server $FLAGS ${PAIR} --port 1$$ -ub $NOT_SET_HERE")
    view = read(path)
    assert isinstance(view, LaunchView)
    told = of(path)
    assert told["ctx_size"] == 8192
    assert told["parallel"] == 2
    assert "batch_size" not in told
    assert told["port"] is None
    assert told["ubatch_size"] is None


@pytest.mark.parametrize("prefix", ["-", ":", "+", "!", "!!", "-:+", "@"])
def test_the_marks_before_a_command_are_not_part_of_it(tmp_path: Path, prefix: str) -> None:
    told_name = " chat" if prefix == "@" else ""
    assert of(unit(tmp_path, f"ExecStart={prefix}/usr/bin/llama-server{told_name} -c 8192")) == {"ctx_size": 8192}


def test_a_specifier_makes_only_its_own_value_unknown(tmp_path: Path) -> None:
    path = unit(tmp_path, "ExecStart=/usr/bin/llama-server -c 8192 --port %i -m %h/%i.gguf", name="engine@8080.service")
    view = read(path)
    assert isinstance(view, LaunchView)
    assert view.missing == ""
    assert of(path)["ctx_size"] == 8192
    assert of(path)["port"] is None


def test_drop_ins_are_taken_in_the_order_of_their_names_and_those_of_a_template_first(tmp_path: Path) -> None:
    path = unit(tmp_path, "Environment=LLAMA_ARG_CTX_SIZE=1", "ExecStart=/usr/bin/llama-server", name="engine@a.service")
    for folder, name, size in [("engine@a.service.d", "20.conf", 3), ("engine@a.service.d", "10.conf", 2), ("engine@.service.d", "15.conf", 4)]:
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / name).write_text(f"[Service]\nEnvironment=LLAMA_ARG_CTX_SIZE={size}\n")
    (tmp_path / "engine@a.service.d" / "99.conf.off").write_text("[Service]\nEnvironment=LLAMA_ARG_CTX_SIZE=9\n")
    assert of(path) == {"ctx_size": 3}


def test_a_unit_that_starts_a_container_or_a_shell(tmp_path: Path) -> None:
    run = unit(tmp_path, "ExecStart=/usr/bin/podman run --rm -e LLAMA_ARG_N_PARALLEL=2 ghcr.io/ggml-org/llama.cpp:server -c 4096")
    assert of(run) == {"ctx_size": 4096, "parallel": 2}
    shell = unit(tmp_path, "Environment=CTX=4096", "ExecStart=/bin/bash -c 'exec llama-server -c $$CTX \"$@\"' -- -np 2")
    assert of(shell) == {"ctx_size": 4096, "parallel": 2}
    env = unit(tmp_path, "ExecStart=/usr/bin/env LLAMA_ARG_N_PARALLEL=2 llama-server -c 4096")
    assert of(env) == {"ctx_size": 4096, "parallel": 2}


# --- Compose, Kubernetes, and the rest ----------------------------------------------------------------------------------------------


def test_remarks_in_a_folded_command_stay_words(tmp_path: Path) -> None:
    text = "services:\n  x:\n    image: ghcr.io/ggml-org/llama.cpp:server\n    command: >\n      -c 30000   # room\n      --parallel 1  # one\n"
    assert of(written(tmp_path, "compose.yaml", text)) == {"ctx_size": 30000, "parallel": 1}


def compose(tmp_path: Path, command: str, more: str = "") -> Path:
    return written(tmp_path, "compose.yaml", f"services:\n  x:\n    image: llama.cpp:server\n    command: {command}\n{more}")


@pytest.mark.parametrize(
    ("written_as", "context"),
    [
        ("${CTX:-4096}", 4096), ("${CTX-4096}", 4096), ("${CTX:-${OTHER:-4096}}", 4096), ("${SET}", 512), ("$SET", 512), ("${SET:-4096}", 512),
        ("${EMPTY:-4096}", 4096), ("${SET:+4096}", 4096), ("${CTX:?must be set}", None), ("${CTX}", None), ("$$CTX", None), ("${CTX/a/b}", None),
    ],
)  # fmt: skip
def test_the_variables_of_compose(tmp_path: Path, written_as: str, context: int | None) -> None:
    (tmp_path / ".env").write_text("SET=512\nEMPTY=\n")
    assert of(compose(tmp_path, f'["-c", "{written_as}"]')) == {"ctx_size": context}


def test_compose_takes_its_environment_in_both_forms_and_files_before_it(tmp_path: Path) -> None:
    (tmp_path / "a.env").write_text("LLAMA_ARG_CTX_SIZE=1\nLLAMA_ARG_N_PARALLEL=2\n")
    listed = "    env_file: a.env\n    environment: [LLAMA_ARG_CTX_SIZE=8192, LLAMA_ARG_BATCH]\n"
    assert of(compose(tmp_path, "[]", listed)) == {"ctx_size": 8192, "parallel": 2, "batch_size": None}
    mapped = "    env_file: [a.env, gone.env]\n    environment: {LLAMA_ARG_CTX_SIZE: 8192}\n"
    view = read(compose(tmp_path, "[]", mapped))
    assert isinstance(view, LaunchView)
    assert "gone.env" in view.missing
    assert of(tmp_path / "compose.yaml") == {"ctx_size": 8192, "parallel": None}


def test_an_unknown_image_counts_only_when_it_is_picked_and_its_own_flags_stay_unknown(tmp_path: Path) -> None:
    path = written(tmp_path, "compose.yaml", "services:\n  x: {image: example.net/mine, command: [-c, '4096']}\n")
    refused(path, Reason.NO_SOURCE)
    view = read(path, pick="x")
    assert isinstance(view, LaunchView)
    assert of(path, pick="x") == {"ctx_size": 4096}
    assert isinstance(view.get("parallel"), Unknown)


def test_a_manifest_of_vllm_in_the_equals_form(tmp_path: Path) -> None:
    text = """
apiVersion: v1
kind: List
items:
  - apiVersion: apps/v1
    kind: StatefulSet
    metadata: {name: big}
    spec: {template: {spec: {containers: [{name: vllm, image: "vllm/vllm-openai:v0.23.0", args: [--max-num-seqs=64, --max-model-len, $(LENGTH)],
      env: [{name: BASE, value: "81"}, {name: LENGTH, value: $(BASE)92}]}]}}}
  - apiVersion: batch/v1
    kind: CronJob
    metadata: {name: small}
    spec: {jobTemplate: {spec: {template: {spec: {containers: [{name: vllm, image: other, command: [/bin/sh, -c], args: ["vllm serve m --max-num-seqs 8"]}]}}}}}
"""
    path = written(tmp_path, "all.yaml", text)
    refused(path, Reason.AMBIGUOUS, VLLM)
    big = of(path, VLLM, "big")
    assert (big["max_num_seqs"], big["max_model_len"]) == (64, 8192)
    assert of(path, VLLM, "small")["max_num_seqs"] == 8
    refused(path, Reason.AMBIGUOUS, VLLM, "vllm")


@pytest.mark.parametrize("source", ["configMapRef: {name: elsewhere}", "secretRef: {name: elsewhere}"])
def test_environment_from_elsewhere_leaves_what_is_not_set_unknown(tmp_path: Path, source: str) -> None:
    text = f"apiVersion: v1\nkind: Pod\nspec:\n  containers:\n    - {{name: x, image: 'llama.cpp:server', args: [-c, '8192'], envFrom: [{{{source}}}]}}\n"
    view = read(written(tmp_path, "pod.yaml", text))
    assert isinstance(view, LaunchView)
    assert view.get("ctx_size") == Known(8192, view.origin)
    assert isinstance(view.get("parallel"), Unknown)


def test_a_pod_is_read_as_json_too(tmp_path: Path) -> None:
    text = '{"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "x", "command": ["llama-server", "-c", "8192"]}]}}'
    assert of(written(tmp_path, "pod.json", text)) == {"ctx_size": 8192}


# --- Shell --------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("llama-server -c 8192 # remark -np 3", {"ctx_size": 8192}),
        ("llama-server -c 81\\\n92 \\\n -np 3", {"ctx_size": 8192, "parallel": 3}),
        ("C=8192; llama-server -c $C -np ${N:-3}", {"ctx_size": 8192, "parallel": 3}),
        ("F='-c 8192 -np 3'\nllama-server $F", {"ctx_size": 8192, "parallel": 3}),
        ("F='-c 8192 -np 3'\nllama-server \"$F\" -b 1", {"batch_size": 1}),
        ("F=(-c 8192 -np 3); llama-server \"${F[@]}\"", {"ctx_size": 8192, "parallel": 3}),
        ("F=\"-c 8192\"; F+=\" -np 3\"; llama-server $F", {"ctx_size": 8192, "parallel": 3}),
        ("LLAMA_ARG_CTX_SIZE=8192 nohup ./llama-server -np 3 &", {"ctx_size": 8192, "parallel": 3}),
        ("LLAMA_ARG_CTX_SIZE=8192\nllama-server -np 3", {"parallel": 3}),
        ("set -a; LLAMA_ARG_CTX_SIZE=8192; set +a; llama-server -np 3", {"ctx_size": 8192, "parallel": 3}),
        ("if nvidia-smi; then C=1; else C=2; fi; llama-server -c $C -np 3", {"ctx_size": None, "parallel": 3}),
        ("C=1; [ -n \"$2\" ] && C=2\nllama-server -c $C -np 3", {"ctx_size": None, "parallel": 3}),
        ("case $1 in big) C=1;; *) C=2;; esac; llama-server -c $C -np 3", {"ctx_size": None, "parallel": 3}),
        ("llama-server -c $(free | awk '{print $2}') -np 3", {"ctx_size": None, "parallel": 3}),
        ("llama-server -c `nproc` -np 3", {"ctx_size": None, "parallel": 3}),
        ("llama-server -c $((4 * 2048)) -np 3", {"ctx_size": None, "parallel": 3}),
        ("start() { exec llama-server -c \"$1\" -np 3; }\nstart 8192", {"ctx_size": None, "parallel": 3}),
        ("source venv/bin/activate && cd /x && llama-server -c 8192", {"ctx_size": 8192}),
        ("env LLAMA_ARG_N_PARALLEL=3 llama-server -c 8192 2>&1 | tee log", {"ctx_size": 8192, "parallel": 3}),
        ("bash -c \"llama-server -c 8192\"", {"ctx_size": 8192}),
        ("echo llama-server -c 1; pkill llama-server; (llama-server -c 8192)", {"ctx_size": 8192}),
        ("llama-server -c 8192 -np 3\r\n", {"ctx_size": 8192, "parallel": 3}),
        ("$PYTHON_BIN/llama-server -c 8192", {"ctx_size": 8192}),
        ("A=( B=(x) ); llama-server -c 8192", {"ctx_size": 8192}),
        ("for i in 1 2; do llama-server -c 8192 --port $i; done", {"ctx_size": 8192, "port": None}),
    ],
)  # fmt: skip
def test_a_shell_script_is_understood_without_running_it(tmp_path: Path, script: str, told: dict[str, object]) -> None:
    assert of(written(tmp_path, "start.sh", script)) == told


@pytest.mark.parametrize(
    "script",
    [
        "llama-server -c 8192 $EXTRA",
        'llama-server -c 8192 "$@"',
        "F=(-c 8192); [ -n \"$X\" ] && F+=(-np 3); llama-server \"${F[@]}\"",
        ". ./settings.env; llama-server -c 8192",
        "llama-server -c 8192 $(cat flags.txt)",
        'llama-server -c 8192 --no-mmap "$@"',
        'F=(--no-mmap); [ -n "$X" ] && F+=(-np 3); llama-server -c 8192 "${F[@]}"',
        'if x; then F=(-np 3); fi; llama-server -c 8192 --no-mmap "${F[@]}"',
        "F=--no-mmap; [ -n \"$X\" ] && F+=' -np 3'; llama-server -c 8192 $F",
        "llama-server -c 8192 ${EXTRA:+--parallel 2}",
        "for f in a b; do llama-server -c 8192 $f; done",
    ],
)  # fmt: skip
def test_words_that_may_hold_any_flag_leave_no_default_sure(tmp_path: Path, script: str) -> None:
    view = read(written(tmp_path, "start.sh", script))
    assert isinstance(view, LaunchView)
    assert view.get("ctx_size") == Known(8192, view.origin)
    assert isinstance(view.get("parallel"), Unknown)


@pytest.mark.parametrize("script", ['llama-server -c 8192 --override-tensor "$NAME" -np 3', 'C=8192; llama-server -c $C -np 3 "--threads-http=$(nproc)"'])
def test_an_unresolved_value_of_a_flag_that_does_not_matter_leaves_the_rest_sure(tmp_path: Path, script: str) -> None:
    view = read(written(tmp_path, "start.sh", script))
    assert isinstance(view, LaunchView)
    assert view.missing == ""
    assert of(tmp_path / "start.sh") == {"ctx_size": 8192, "parallel": 3}


@pytest.mark.parametrize("script", ["llama-server -c 8192 --override-tensor $NAME", 'llama-server -c 8192 --metrics "$MORE"', 'llama-server -c 8192 "$MORE"'])
def test_an_unresolved_word_that_may_be_a_flag_is_not_taken_for_a_value(tmp_path: Path, script: str) -> None:
    view = read(written(tmp_path, "start.sh", script))
    assert isinstance(view, LaunchView)
    assert isinstance(view.get("parallel"), Unknown)


def test_what_is_sourced_may_set_a_variable_over(tmp_path: Path) -> None:
    script = "C=1; export LLAMA_ARG_BATCH=2; source ./settings; llama-server -c $C -np ${N:-3}"
    assert of(written(tmp_path, "start.sh", script)) == {"ctx_size": None, "parallel": None, "batch_size": None}


def test_several_servers_in_a_script_are_ambiguous_and_the_same_line_twice_is_not(tmp_path: Path) -> None:
    refused(written(tmp_path, "a.sh", "if x; then llama-server -c 1; else llama-server -c 2; fi"), Reason.AMBIGUOUS)
    assert of(written(tmp_path, "b.sh", "llama-server -c 1 || llama-server -c 1")) == {"ctx_size": 1}


def test_no_shell_is_run(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    read(written(tmp_path, "x.sh", f"touch {marker}; X=$(touch {marker}); `touch {marker}`; llama-server -c 1 $(touch {marker})"))
    assert not marker.exists()


# --- Broken, hostile, changing ------------------------------------------------------------------------------------------------------

BROKEN = {
    "empty.sh": (b"", Reason.NO_SOURCE),
    "other.sh": (b"#!/bin/sh\nexec SECRET-server -c 1\n", Reason.NO_SOURCE),
    "python": (b"#!/usr/bin/env python3\nSECRET = 1\n", Reason.INVALID),
    "quote.sh": (b"llama-server -c 'SECRET", Reason.INVALID),
    "brace.sh": (b"llama-server -c ${SECRET", Reason.INVALID),
    "nested.sh": (b"A=(A=" * 20_000 + b"SECRET", Reason.INVALID),
    "command.yaml": (b"services:\n  x:\n    command: " + b"SECRET " * 100_000, Reason.INVALID),
    "binary.sh": (b"\x00\x01SECRET", Reason.INVALID),
    "latin.sh": (b"llama-server -c \xff SECRET", Reason.INVALID),
    "broken.plist": (b"<plist><dict><key>SECRET", Reason.INVALID),
    "broken2.plist": (b"bplist00SECRET", Reason.INVALID),
    "list.plist": (plistlib.dumps(["SECRET"]), Reason.INVALID),
    "words.plist": (plistlib.dumps({"ProgramArguments": ["llama-server", 5]}), Reason.INVALID),
    "bomb.plist": (b'<!DOCTYPE plist [<!ENTITY a "SECRET">]><plist><string>&a;</string></plist>', Reason.INVALID),
    "no-start.service": (b"[Service]\nType=simple\n", Reason.INVALID),
    "quote.service": (b"[Service]\nExecStart=/usr/bin/llama-server 'SECRET\n", Reason.INVALID),
    "no-image.container": (b"[Container]\nExec=-c 1\n", Reason.INVALID),
    "broken.yaml": (b"services: {SECRET: [", Reason.INVALID),
    "tab.yaml": (b"services:\n\t- SECRET", Reason.INVALID),
    "other.yaml": (b"colour: SECRET\n", Reason.INVALID),
    "text.yaml": (b"services: SECRET\n", Reason.INVALID),
    "helm.yaml": (b"apiVersion: v1\nkind: Pod\nspec: {{ .Values.SECRET }}\n  x: {{\n", Reason.INVALID),
    "deep.yaml": (b"services: " + b"[" * 5000, Reason.INVALID),
    "self.yaml": (b"services: &a {x: *a}\n", Reason.INVALID),
    "aliases.yaml": (
        b"a: &a [x,x,x,x,x,x,x,x,x]\n" + b"".join(b"%c: &%c [%s]\n" % (c, c, b",".join([b"*%c" % (c - 1)] * 9)) for c in b"bcdefghijklm") + b"services: *m\n",
        Reason.INVALID,
    ),
    "many.yaml": (b"services:\n" + b"  - x\n" * 100_000, Reason.INVALID),
    "doubling.yaml": (
        b"apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - image: llama.cpp:server\n    env:\n    - {name: A0, value: SECRET}\n"
        + b"".join(b"    - {name: A%d, value: $(A%d)$(A%d)}\n" % (n + 1, n, n) for n in range(60)),
        Reason.INVALID,
    ),
    "doubling.sh": (b"A=SECRET\n" + b"A=$A$A\n" * 60 + b"llama-server -c 1", Reason.INVALID),
    "no-section.conf": (b"[program:x\ncommand=llama-server SECRET\n", Reason.NO_SOURCE),
    "quote.conf": (b"[program:x]\ncommand=llama-server 'SECRET\n", Reason.INVALID),
    "lines.conf": (b"[program:x]\ncommand=llama-server -c 1\n[SECRET\n", Reason.INVALID),
    "swap.yaml": (b'models:\n  x: {cmd: "llama-server \'SECRET"}\n', Reason.INVALID),
    "merge.yaml": (b"services:\n  x: {<<: SECRET}\n", Reason.INVALID),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_an_unknown_that_says_what_to_do_and_repeats_nothing(tmp_path: Path, name: str) -> None:
    raw, reason = BROKEN[name]
    assert "; " in refused(written(tmp_path, name, raw), reason)


def test_a_file_that_is_too_large_or_no_file_is_refused(tmp_path: Path) -> None:
    refused(written(tmp_path, "large.sh", b"llama-server -c 1 #" + b"x" * LARGEST_FILE), Reason.INVALID)
    refused(tmp_path / "absent.sh", Reason.NO_SOURCE)
    refused(tmp_path, Reason.NO_SOURCE)
    os.mkfifo(tmp_path / "pipe.sh")
    refused(tmp_path / "pipe.sh", Reason.NO_SOURCE)


LARGE = {
    "words.sh": b"llama-server -c 1 " + b"x " * (LARGEST_FILE // 2 - 100),
    "word.sh": b"llama-server -c 1 " + b"x" * (LARGEST_FILE - 100),
    "quotes.sh": b"llama-server -c 1 " + b"''" * (LARGEST_FILE // 2 - 100),
    "variables.sh": b"A=x\n" + b"A$A " * (LARGEST_FILE // 4 - 100),
    "commands.sh": b"x\n" * (LARGEST_FILE // 2 - 100),
    "servers.sh": b"llama-server -c 1\n" * (LARGEST_FILE // 20),
    "items.plist": b"<plist><array>" + b"<true/>" * (LARGEST_FILE // 8) + b"</array></plist>",
    "items.yaml": b"services: [" + b"1," * (LARGEST_FILE // 2 - 100) + b"]",
    "unit.service": b"[Service]\nExecStart=/usr/bin/llama-server " + b"x " * (LARGEST_FILE // 2 - 100),
}


@pytest.mark.parametrize("name", LARGE)
def test_the_largest_file_takes_a_bounded_amount_of_memory(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, name, LARGE[name])
    tracemalloc.start()
    try:
        read_launch_file(path, None, LLAMA, at=AT)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 10 * LARGEST_FILE


@pytest.mark.parametrize("name", KINDS)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_no_truncation_or_flipped_byte_of_a_file_raises(name: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    raw = (FIXTURES / "llamacpp" / name).read_bytes()
    if name == "chat.plist" and data.draw(st.booleans()):
        raw = plistlib.dumps(plistlib.loads(raw), fmt=plistlib.FMT_BINARY)
    at = data.draw(st.integers(0, len(raw) - 1))
    inserted = data.draw(st.one_of(st.binary(max_size=4), st.sampled_from([b"${", b"$(", b"'", b'"', b"\\", b"&a *a", b"%", b"\n[Service]\n", b"<<", b"("])))
    end = data.draw(st.sampled_from([at, at + 1, len(raw)]))
    path = tmp_path_factory.mktemp("broken") / name
    path.write_bytes(raw[:at] + inserted + raw[end:] if end < len(raw) else raw[:at] + inserted)
    view = read_launch_file(path, data.draw(st.sampled_from([None, "chat"])), LLAMA, at=AT)
    assert isinstance(view, LaunchView | Unknown)
    assert "SECRET" not in repr(view)


LEADS = [b"", b"bplist00", b"#!/bin/sh\n", b"[Service]\nExecStart=", b"services:\n"]


@settings(max_examples=100, deadline=None)
@given(raw=st.binary(max_size=200), name=st.sampled_from(KINDS), lead=st.sampled_from(LEADS))
def test_no_bytes_raise(raw: bytes, name: str, lead: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("bytes") / name
    path.write_bytes(lead + raw)
    assert isinstance(read_launch_file(path, None, LLAMA, at=AT), LaunchView | Unknown)


def test_a_file_is_read_again_when_it_or_what_belongs_to_it_changes(chat: Path) -> None:
    times = iter(range(100))
    reader = LaunchFileReader(chat / "chat.service", clock=lambda: float(next(times)))
    first = reader.view(LLAMA)
    assert reader.view(LLAMA) is first
    env = chat / "chat.env"
    env.write_text(env.read_text().replace("65536", "4096"))
    second = reader.view(LLAMA)
    assert isinstance(second, LaunchView)
    assert second.get("ctx_size") == Known(4096, second.origin)
    assert second.at == 1.0
    (chat / "chat.service.d" / "20-more.conf").write_text("[Service]\nEnvironment=LLAMA_ARG_BATCH=512\n")
    third = reader.view(LLAMA)
    assert isinstance(third, LaunchView)
    assert third.get("batch_size") == Known(512, third.origin)
    (chat / "chat.service").unlink()
    assert isinstance(reader.view(LLAMA), Unknown)


def test_a_file_is_not_read_again_for_nothing(chat: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = LaunchFileReader(chat / "compose.yaml")
    view = reader.view(LLAMA)
    (chat / ".env").write_text("CONTEXT=4096\n")
    again = reader.view(LLAMA)
    assert again is not view, "a .env beside a Compose file belongs to it"
    monkeypatch.setattr("inspector.launch.files.reader.commands_in", lambda *_: pytest.fail("read again"))
    assert reader.view(LLAMA) is again
