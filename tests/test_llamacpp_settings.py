"""llama-server's flags as they are spelled (`llama-server --help` of b10434), and the lines of its log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from asking import log_view
from inspector.contract import FlagKind, LogView
from inspector.launch import settings
from inspector.reading import Kind, Origin, Unknown
from inspector_llamacpp import ADAPTER
from inspector_llamacpp.flags import router_settings
from inspector_llamacpp.log import block, exhaustions, kv_bytes
from test_llamacpp_captures import told

BUILDS = Path(__file__).parent / "fixtures" / "llamacpp"
HTTP = Origin(Kind.HTTP, "/models", 1.0)


def set_by(argv: str, **environ: str) -> dict[str, Any]:
    view = settings(argv.split(), environ, ADAPTER.flags, path="pid 77", live=True, at=1.0)
    return {name: told(reading) for name, reading in view.settings.items()}


def test_short_and_long_spellings() -> None:
    assert set_by("-c 8192 -np 4 -kvu -ctk q8_0 -ctv f16") == set_by("--ctx-size 8192 --parallel 4 --kv-unified --cache-type-k q8_0 --cache-type-v f16")
    assert set_by("-c 8192 -np 4 -kvu") == {"ctx_size": 8192, "parallel": 4, "kv_unified": True}


def test_switches_that_switch_off() -> None:
    assert set_by("-no-kvu --no-slots --no-context-shift") == {"kv_unified": False, "slots": False, "context_shift": False}
    assert set_by("--kv-unified --no-kv-unified") == {"kv_unified": False}


def test_the_timer_and_the_size_of_a_slots_share() -> None:
    assert set_by("--sleep-idle-seconds -1 --kv-unified-per-slot 4096") == {"sleep_idle_seconds": -1, "kv_unified_per_slot": 4096}


def test_the_environment_states_the_same() -> None:
    assert set_by("", LLAMA_ARG_CTX_SIZE="65536", LLAMA_ARG_N_PARALLEL="2", LLAMA_ARG_KV_UNIFIED="1") == {"ctx_size": 65536, "parallel": 2, "kv_unified": True}
    assert set_by("-np 3", LLAMA_ARG_N_PARALLEL="2") == {"parallel": 3}


def test_paths_and_names_are_given_or_not_and_no_more() -> None:
    found = set_by("-m /home/me/SECRET.gguf --api-key SECRET --models-dir /home/SECRET -hf org/SECRET")
    assert set(found) == {"model", "models_dir", "hf_repo", "api_key"}
    assert "SECRET" not in repr(found)
    assert all(flag.words or flag.kind is not FlagKind.WORD for flag in ADAPTER.flags.flags)


def test_a_routers_arguments_give_the_wanted_ones_only() -> None:
    view = router_settings(
        ["llama-server", "--model", "/x/SECRET", "--ctx-size", "1024", "--parallel", "2", "--sleep-idle-seconds", "4", "--no-kv-unified"], HTTP
    )
    assert not isinstance(view, Unknown)
    assert {name: told(r) for name, r in view.settings.items()} == {"ctx_size": 1024, "parallel": 2, "sleep_idle_seconds": 4, "kv_unified": False}
    assert view.live


@pytest.mark.parametrize("args", [None, [], "x", ["--parallel", 2], {"--parallel": "2"}])
def test_arguments_of_another_kind_tell_nothing(args: Any) -> None:
    assert isinstance(router_settings(args, HTTP), Unknown)


def test_a_number_that_is_none_is_no_setting() -> None:
    for word in ("two", "", "2.5", "9" * 40):
        view = router_settings(["llama-server", "--parallel", word], HTTP)
        assert not isinstance(view, Unknown)
        assert isinstance(view.get("parallel"), Unknown)


def log_of(*lines: str) -> LogView:
    return log_view(ADAPTER.log_patterns, lines)


def log_file(build: str, name: str) -> LogView:
    return log_of(*(BUILDS / build / name).read_text().splitlines())


def test_every_killed_request_counts_and_no_retry() -> None:
    """-np 4 -c 1024 -kvu: four requests died in each build; the logs hold dozens of retries and one summary line beside them."""
    assert told(exhaustions(log_file("b11434", "log-kv-unified-exhaust.txt"))) == 4
    assert told(exhaustions(log_file("b10434", "log-kv-unified-exhaust.txt"))) == 4
    assert told(exhaustions(log_file("b10068", "log-kv-unified-exhaust.txt"))) == 4


def test_a_prompt_that_is_too_long_is_no_exhaustion() -> None:
    line = "E srv    send_error: task id = 380, error: request (4004 tokens) exceeds the available context size (512 tokens), try increasing it"
    assert told(exhaustions(log_of(line))) == 0


def test_an_overrun_without_the_kills_is_bounded() -> None:
    line = "5.12.020.000 E srv        decode: Context size has been exceeded. off = 0, n_batch = 1, ret = 1"
    assert told(exhaustions(log_of(line, line))) == {"reason": "ambiguous", "bounds": [2, None]}


@pytest.mark.parametrize(
    "begin",
    [
        "0.00.002.828 I srv  llama_server: initializing ...",
        "0.00.000.468 I srv          init: initializing ...",
        "0.00.004.466 I cmn  common_param: common_params_print_info: verbosity = 3 (adjust with the `-lv N` CLI arg)",
        "0.00.004.520 I srv          init: build_info: b0-unknown",
        "build: 7551 (a52dc60ba) with GNU 10.2.1 for Linux x86_64",
        'INFO [                    main] build info | tid="1" timestamp=1716000000 build=2900 commit="abc"',
        "Nov 30 16:20:00 host llama-server[123]: build: 7551 (a52dc60ba) with GNU 10.2.1 for Linux x86_64",
        "Nov 30 16:20:00 host llama-server[123]: 0.00.002.828 I srv  llama_server: initializing ...",
    ],
)
def test_a_new_process_drops_what_the_last_one_wrote(begin: str) -> None:
    killed = "srv    send_error: task id = 3, error: Context size has been exceeded."
    old = "srv    load_model: initializing, n_slots = 4, n_ctx_slot = 1024, kv_unified = 'true'"
    view = log_of(old, killed, begin)
    assert isinstance(block(view).slots, Unknown)
    assert told(exhaustions(view)) == 0


@pytest.mark.parametrize(
    "line", ["0.00.002.828 I srv  llama_server: initializing ...", "common_params_print_info: verbosity = 3", "build: 7551 (a52dc60ba) with GNU"]
)
def test_a_routers_model_that_starts_is_no_new_server(line: str) -> None:
    killed = "srv    send_error: task id = 3, error: Context size has been exceeded."
    assert told(exhaustions(log_of(killed, f"[51105] {line}"))) == 1


def test_waking_keeps_the_count() -> None:
    """A model that wakes is loaded again by the same process (b11434's lines)."""
    killed = "srv    send_error: task id = 3, error: Context size has been exceeded."
    woken = (
        "I que    start_loop: exiting sleeping state",
        "I srv    load_model: loading model 'tiny.gguf'",
        "I srv    load_model: initializing, n_slots = 2, n_ctx_slot = 512, kv_unified = 'false'",
    )
    assert told(exhaustions(log_of(killed, *woken))) == 1


def test_old_builds_say_it_in_other_lines() -> None:
    """b7551 prints the shape by llama_context, and the slots without it. The log holds two runs: the last is -np 2 -c 1024, shared."""
    found = block(log_file("b7551", "log-xllamacpp.txt"))
    assert (told(found.slots), told(found.context), told(found.unified), told(found.pool)) == (2, 1024, True, 1024)


def test_bytes_in_the_words_of_2024() -> None:
    view = log_of(
        "llama_new_context_with_model: n_ctx      = 4096",
        "llama_new_context_with_model: KV self size  =  512.00 MiB, K (f16):  256.00 MiB, V (f16):  256.00 MiB",
    )
    assert [told(r) for r in kv_bytes(view)] == [536870912, 131072.0]


SIZE = "llama_kv_cache: size = {mib:7.2f} MiB ({cells:6d} cells, {layers:3d} layers,  4/{streams} seqs), K (f16):    1.00 MiB, V (f16):    1.00 MiB"


def test_bytes_of_two_kinds_of_layers_are_summed_and_have_no_figure_for_a_token() -> None:
    view = log_of(
        "llama_context: n_ctx                 = 32768",
        "llama_kv_cache_iswa: creating non-SWA KV cache, size = 8192 cells",
        SIZE.format(mib=64, cells=8192, layers=4, streams=4),
        "llama_kv_cache_iswa: creating     SWA KV cache, size = 1536 cells",
        SIZE.format(mib=48, cells=1536, layers=20, streams=4),
    )
    total, token = kv_bytes(view)
    assert told(total) == 112 * 2**20
    assert told(token)["reason"] == "ambiguous"


def test_a_trial_run_before_the_real_one_adds_no_bytes() -> None:
    """The fit to the memory creates caches of other sizes first; their lines look the same."""
    view = log_of(
        "llama_context: n_ctx                 = 131072",
        SIZE.format(mib=512, cells=131072, layers=4, streams=1),
        "llama_context: n_ctx                 = 4096",
        SIZE.format(mib=16, cells=4096, layers=4, streams=1),
        "llama_context: n_ctx                 = 65536",
        SIZE.format(mib=256, cells=65536, layers=4, streams=1),
    )
    assert [told(r) for r in kv_bytes(view)] == [256 * 2**20, 4096.0]


def test_bytes_of_a_draft_model_are_not_mixed_in() -> None:
    view = log_of("llama_context: n_ctx = 4096", SIZE.format(mib=16, cells=4096, layers=4, streams=1), "srv    load_model: loading draft model 'd.gguf'")
    assert told(kv_bytes(view)[0])["reason"] == "ambiguous"


def test_a_log_at_the_default_verbosity_states_no_bytes() -> None:
    assert told(kv_bytes(log_file("b11434", "log-kv-unified-exhaust.txt"))[0])["reason"] == "no_source"


def test_figures_out_of_range_are_no_figures() -> None:
    found = block(log_of(f"srv    load_model: initializing, n_slots = {'9' * 30}, n_ctx_slot = 0, kv_unified = 'true'"))
    assert isinstance(found.slots, Unknown)
    assert isinstance(found.context, Unknown)


def test_every_needle_stands_in_the_lines_that_its_pattern_finds() -> None:
    """The needle is looked for first: one that a wanted line does not hold would hide it."""
    lines = [line for path in BUILDS.glob("b*/*.txt") if "metrics" not in path.name for line in path.read_text().splitlines()]
    for pattern in ADAPTER.log_patterns:
        hidden = [line for line in lines if pattern.regex.search(line) and pattern.needle not in line]
        assert not hidden, (pattern.name, hidden[:2])
