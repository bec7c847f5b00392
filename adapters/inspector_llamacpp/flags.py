"""llama-server's launch settings: which flags tell something here, and what a router says of its models' arguments."""

from __future__ import annotations

from typing import Any

from inspector.contract import Flag, FlagKind, FlagTable, LaunchView
from inspector.reading import Known, Origin, Reading, Reason, Unknown

_TYPES = frozenset({"f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1"})

CONTEXT = Flag("ctx_size", FlagKind.INTEGER, ("-c", "--ctx-size"), env=("LLAMA_ARG_CTX_SIZE",))
PARALLEL = Flag("parallel", FlagKind.INTEGER, ("-np", "--parallel"), env=("LLAMA_ARG_N_PARALLEL",))
UNIFIED = Flag(
    "kv_unified",
    FlagKind.SWITCH,
    ("-kvu", "--kv-unified"),
    off=("-no-kvu", "--no-kv-unified"),
    env=("LLAMA_ARG_KV_UNIFIED",),
    env_off=("LLAMA_ARG_NO_KV_UNIFIED",),
)
PER_SLOT = Flag("kv_unified_per_slot", FlagKind.INTEGER, ("--kv-unified-per-slot",), env=("LLAMA_ARG_KV_UNIFIED_PER_SLOT",))
CACHE_TYPES = (
    Flag("cache_type_k", FlagKind.WORD, ("-ctk", "--cache-type-k"), env=("LLAMA_ARG_CACHE_TYPE_K",), words=_TYPES),
    Flag("cache_type_v", FlagKind.WORD, ("-ctv", "--cache-type-v"), env=("LLAMA_ARG_CACHE_TYPE_V",), words=_TYPES),
)
CACHE_TYPE = "f16"
"""By default, in every build."""
SLEEP = Flag("sleep_idle_seconds", FlagKind.INTEGER, ("--sleep-idle-seconds",), env=("LLAMA_ARG_SLEEP_IDLE_SECONDS",))

FLAGS = FlagTable(
    commands=frozenset({"llama-server", "llama-server.exe", "llama-server-vulkan", "llama-server-cuda", "llama serve", "llama server"}),
    images=("llama.cpp:server",),
    flags=(
        CONTEXT,
        PARALLEL,
        UNIFIED,
        PER_SLOT,
        SLEEP,
        Flag("metrics", FlagKind.SWITCH, ("--metrics",), env=("LLAMA_ARG_ENDPOINT_METRICS",)),
        Flag("slots", FlagKind.SWITCH, ("--slots",), off=("--no-slots",), env=("LLAMA_ARG_ENDPOINT_SLOTS",), env_off=("LLAMA_ARG_NO_ENDPOINT_SLOTS",)),
        Flag(
            "context_shift",
            FlagKind.SWITCH,
            ("--context-shift",),
            off=("--no-context-shift",),
            env=("LLAMA_ARG_CONTEXT_SHIFT",),
            env_off=("LLAMA_ARG_NO_CONTEXT_SHIFT",),
        ),
        Flag("batch_size", FlagKind.INTEGER, ("-b", "--batch-size"), env=("LLAMA_ARG_BATCH",)),
        Flag("ubatch_size", FlagKind.INTEGER, ("-ub", "--ubatch-size"), env=("LLAMA_ARG_UBATCH",)),
        *CACHE_TYPES,
        Flag("swa_full", FlagKind.SWITCH, ("--swa-full",), env=("LLAMA_ARG_SWA_FULL",)),
        # Its value may be left out in older builds: only that it was given is certain.
        Flag("flash_attn", FlagKind.GIVEN, ("-fa", "--flash-attn"), env=("LLAMA_ARG_FLASH_ATTN",)),
        Flag("cache_ram", FlagKind.INTEGER, ("-cram", "--cache-ram"), env=("LLAMA_ARG_CACHE_RAM",)),
        Flag("port", FlagKind.INTEGER, ("--port",), env=("LLAMA_ARG_PORT",)),
        Flag("models_max", FlagKind.INTEGER, ("--models-max",), env=("LLAMA_ARG_MODELS_MAX",)),
        Flag("model", FlagKind.GIVEN, ("-m", "--model"), env=("LLAMA_ARG_MODEL",)),
        Flag("hf_repo", FlagKind.GIVEN, ("-hf", "-hfr", "--hf-repo"), env=("LLAMA_ARG_HF_REPO",)),
        Flag("model_draft", FlagKind.GIVEN, ("-md", "--model-draft", "--spec-draft-model"), env=("LLAMA_ARG_SPEC_DRAFT_MODEL", "LLAMA_ARG_MODEL_DRAFT")),
        # What takes a value and is often left to a variable: known by name, so that the variable is known to be its value.
        Flag("api_key", FlagKind.GIVEN, ("--api-key",), env=("LLAMA_API_KEY",)),
        Flag("api_key_file", FlagKind.GIVEN, ("--api-key-file",), env=("LLAMA_ARG_API_KEY_FILE",)),
        Flag("alias", FlagKind.GIVEN, ("-a", "--alias"), env=("LLAMA_ARG_ALIAS",)),
        Flag("host", FlagKind.GIVEN, ("--host",), env=("LLAMA_ARG_HOST",)),
        Flag("n_gpu_layers", FlagKind.GIVEN, ("-ngl", "--gpu-layers", "--n-gpu-layers"), env=("LLAMA_ARG_N_GPU_LAYERS",)),
        Flag("threads", FlagKind.GIVEN, ("-t", "--threads"), env=("LLAMA_ARG_THREADS",)),
        Flag("models_dir", FlagKind.GIVEN, ("--models-dir",), env=("LLAMA_ARG_MODELS_DIR",)),
        Flag("models_preset", FlagKind.GIVEN, ("--models-preset",), env=("LLAMA_ARG_MODELS_PRESET",)),
    ),
)

_TOLD_BY_ROUTER = (CONTEXT, PARALLEL, UNIFIED, PER_SLOT, SLEEP)


def router_settings(args: object, origin: Origin) -> LaunchView | Unknown:
    """The settings among a router's `status.args`, the whole command line of one model's process; the rest, paths among it, is passed over.

    The values carry the origin of the reply: it is HTTP that told them."""
    if not isinstance(args, list) or not args or not all(isinstance(arg, str) for arg in args):
        return Unknown(Reason.NOT_REPORTED, "the router does not show this model's arguments")
    settings: dict[str, Reading[Any]] = {}
    for at, arg in enumerate(args):
        for flag in _TOLD_BY_ROUTER:
            if flag.kind is FlagKind.SWITCH and arg in (*flag.spellings, *flag.off):
                settings[flag.name] = Known(arg in flag.spellings, origin)
            elif flag.kind is FlagKind.INTEGER and arg in flag.spellings:
                settings[flag.name] = _integer(args[at + 1] if at + 1 < len(args) else "", flag.name, origin)
    return LaunchView(path="status.args", live=True, settings=settings, at=origin.at)


def _integer(word: str, name: str, origin: Origin) -> Reading[int]:
    digits = word.removeprefix("-")
    if not digits.isascii() or not digits.isdigit() or len(digits) > 18:
        return Unknown(Reason.INVALID, f"{name} in status.args is no whole number")
    return Known(int(word), origin)


def setting(view: LaunchView, flag: Flag) -> Reading[int] | None:
    """A whole number of the launch settings, None when it is surely not set."""
    reading = view.get(flag.name)
    if isinstance(reading, Known) and (isinstance(reading.value, bool) or not isinstance(reading.value, int)):
        return Unknown(Reason.INVALID, f"{flag.name} is no whole number")
    return reading


def switch(view: LaunchView, flag: Flag) -> Reading[bool] | None:
    reading = view.get(flag.name)
    if isinstance(reading, Known) and not isinstance(reading.value, bool):
        return Unknown(Reason.INVALID, f"{flag.name} is no switch")
    return reading


def never_sleeps(view: LaunchView | Unknown, slots: Reading[int]) -> bool:
    """Whether the running process surely has no sleep timer. Settings that disagree with the server's slots are another process's."""
    if isinstance(view, Unknown) or not view.live:
        return False
    parallel = setting(view, PARALLEL)
    if isinstance(parallel, Known) and isinstance(slots, Known) and parallel.value not in (slots.value, -1):
        return False
    timer = setting(view, SLEEP)
    return timer is None or (isinstance(timer, Known) and timer.value <= 0)
