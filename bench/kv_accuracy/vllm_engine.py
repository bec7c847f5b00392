"""What vLLM itself says of the KV cache of made-up models; runs in vLLM's own environment, which `vllm.py` calls.

Reads cases (JSON) from standard input, writes one line of JSON for each. vLLM is imported once, and every case gets a fork of that process: an engine in
process, with random weights, on the CPU.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

os.environ |= {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
}


def ask(case: dict[str, Any]) -> dict[str, Any]:
    from vllm import LLM  # noqa: PLC0415 (imported once, before the forks)

    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(case["config"]))
        llm = LLM(folder, load_format="dummy", skip_tokenizer_init=True, enforce_eager=True, gpu_memory_utilization=0.1, **case["flags"])
    config = llm.llm_engine.vllm_config
    core = llm.llm_engine.engine_core.engine_core
    kv = core.scheduler.kv_cache_config
    return {
        "blocks": kv.num_blocks,
        "block_bytes": max(tensor.size for tensor in kv.kv_cache_tensors) // kv.num_blocks,
        "block_tokens": config.cache_config.block_size,
        "groups": [
            {
                "kind": type(group.kv_cache_spec).__name__,
                "layers": len(group.layer_names),
                "block_tokens": group.kv_cache_spec.block_size,
                "page_bytes": group.kv_cache_spec.page_size_bytes,
                "window": getattr(group.kv_cache_spec, "sliding_window", None),
            }
            for group in kv.kv_cache_groups
        ],
        "size_tokens": config.cache_config.kv_cache_size_tokens,
        "concurrency": config.cache_config.kv_cache_max_concurrency,
        "in_flight": config.max_in_flight_tokens,
        "memory_bytes": config.cache_config.kv_cache_memory_bytes,
        "mamba_mode": config.cache_config.mamba_cache_mode,
        "context": config.model_config.max_model_len,
        "slots": config.scheduler_config.max_num_seqs,
    }


def in_fork(case: dict[str, Any]) -> str:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(2, 1)  # What the engine prints is no answer.
        try:
            said = ask(case)
        except BaseException as error:
            traceback.print_exc()
            said = {"refused": f"{type(error).__name__}: {error}"[:300]}
        with os.fdopen(write, "w") as pipe:
            pipe.write(json.dumps(said))
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return text or json.dumps({"refused": "the engine died"})


if __name__ == "__main__":
    import vllm  # noqa: F401

    for each in json.load(sys.stdin):
        print(in_fork(each), flush=True)
