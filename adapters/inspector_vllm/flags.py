"""vLLM's launch settings, of every version: which flags tell something here."""

from __future__ import annotations

from inspector.contract import Flag, FlagKind, FlagTable, LaunchView
from inspector.reading import Reading, Reason, Unknown, positive
from inspector_vllm import causes

_CACHE_TYPES = frozenset({"auto", "float16", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2", "fp8_inc", "fp8_ds_mla", "nvfp4", "int8_per_token_head"})

SEQUENCES = Flag("max_num_seqs", FlagKind.INTEGER, ("--max-num-seqs",))
LENGTH = Flag("max_model_len", FlagKind.SIZE, ("--max-model-len",), words=frozenset({"auto"}))
BLOCK = Flag("block_size", FlagKind.INTEGER, ("--block-size",))

FLAGS = FlagTable(
    commands=frozenset({"vllm serve", "vllm.entrypoints.openai.api_server", "vllm.entrypoints.cli.main serve"}),
    images=("vllm-openai",),
    flags=(
        SEQUENCES,
        LENGTH,
        BLOCK,
        Flag("num_gpu_blocks_override", FlagKind.INTEGER, ("--num-gpu-blocks-override",)),
        Flag("gpu_memory_utilization", FlagKind.NUMBER, ("--gpu-memory-utilization",)),
        Flag("kv_cache_memory_bytes", FlagKind.SIZE, ("--kv-cache-memory-bytes",)),
        Flag("kv_cache_dtype", FlagKind.WORD, ("--kv-cache-dtype",), words=_CACHE_TYPES),
        Flag("max_num_batched_tokens", FlagKind.SIZE, ("--max-num-batched-tokens",)),
        Flag("tensor_parallel_size", FlagKind.INTEGER, ("--tensor-parallel-size", "-tp")),
        Flag("pipeline_parallel_size", FlagKind.INTEGER, ("--pipeline-parallel-size", "-pp")),
        Flag("data_parallel_size", FlagKind.INTEGER, ("--data-parallel-size", "-dp")),
        Flag("decode_context_parallel_size", FlagKind.INTEGER, ("--decode-context-parallel-size", "-dcp")),
        Flag("prefill_context_parallel_size", FlagKind.INTEGER, ("--prefill-context-parallel-size", "-pcp")),
        Flag("api_server_count", FlagKind.INTEGER, ("--api-server-count", "-asc")),
        Flag("disable_log_stats", FlagKind.SWITCH, ("--disable-log-stats",), off=("--no-disable-log-stats",)),
        Flag("enable_prefix_caching", FlagKind.SWITCH, ("--enable-prefix-caching",), off=("--no-enable-prefix-caching",)),
        Flag("port", FlagKind.INTEGER, ("--port",), env=()),
        Flag("model", FlagKind.NAME, ("--model",)),
        Flag("served_model_name", FlagKind.NAME, ("--served-model-name",)),
        Flag("config", FlagKind.GIVEN, ("--config",)),
        # Not read; here so that a shortened flag is not taken for one of those above.
        Flag("max_num_scheduled_tokens", FlagKind.GIVEN, ("--max-num-scheduled-tokens",)),
        Flag("max_num_active_seqs", FlagKind.GIVEN, ("--max-num-active-seqs",)),
        Flag("kv_cache_dtype_skip_layers", FlagKind.GIVEN, ("--kv-cache-dtype-skip-layers",)),
        Flag("api_key", FlagKind.GIVEN, ("--api-key",)),
    ),
    unique_prefixes=True,
    dashes=True,
    positional="model",
)


def setting(view: LaunchView | Unknown, flag: Flag) -> Reading[int]:
    """A size of the launch settings, above zero. Left out, the version and the hardware decide: no default is assumed."""
    if isinstance(view, Unknown):
        return view
    reading = view.get(flag.name)
    if reading is None:
        return causes.NO_SETTING
    if isinstance(reading, Unknown):
        return reading
    if reading.value in ("auto", -1):
        return Unknown(Reason.NO_SOURCE, f"{flag.name} is left to the server")
    return positive(reading.value, reading.origin, f"{flag.name} in the launch settings")


def served_name(view: LaunchView | Unknown) -> Reading[str]:
    """The last part of the model's name or path; of several served names the first, as the server does."""
    if isinstance(view, Unknown):
        return view
    return next((reading for name in ("served_model_name", "model") if (reading := view.get(name)) is not None), causes.NO_SETTING)
