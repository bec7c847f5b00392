"""vLLM's blocks, groups and capacity against our formulas, for models of random weights in an engine on the CPU.

    VLLM_PYTHON=… python bench/kv_accuracy/vllm.py [seen|unseen]

Each case takes 5 to 20 seconds. Exits with 1 when a prediction is wrong.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parents[1] / "tests")]

from tally import Tally  # noqa: E402

from engines.vllm import vllm_python  # noqa: E402
from inspector.contract import ModelFile, PlanSettings  # noqa: E402
from inspector.layout import Paged  # noqa: E402
from inspector_vllm.cache import cache  # noqa: E402
from inspector_vllm.plan import cache_bytes, plan_layout, read  # noqa: E402

SEED = 20261130
POOL_BYTES = 2**30
SECONDS = 1800

Case = dict[str, Any]

LINEAR = {
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16, "linear_conv_kernel_dim": 4,
    "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32, "decoder_sparse_step": 1,
}  # fmt: skip
LATENT = {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 32, "v_head_dim": 32, "q_lora_rank": None, "num_key_value_heads": 4}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "decoder_sparse_step": 1, "norm_topk_prob": True}
ARCHITECTURES = {
    "llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM", "qwen3_moe": "Qwen3MoeForCausalLM",
    "mixtral": "MixtralForCausalLM", "phi3": "Phi3ForCausalLM", "gemma2": "Gemma2ForCausalLM", "gemma3_text": "Gemma3ForCausalLM",
    "gpt_oss": "GptOssForCausalLM", "deepseek_v2": "DeepseekV2ForCausalLM", "deepseek_v3": "DeepseekV3ForCausalLM", "qwen3_next": "Qwen3NextForCausalLM",
    "glm4": "Glm4ForCausalLM", "smollm3": "SmolLM3ForCausalLM",
}  # fmt: skip
EXTRA: dict[str, Case] = {
    "mistral": {"sliding_window": 256},
    "phi3": {"sliding_window": 300, "head_dim": None, "pad_token_id": 0},
    "mixtral": {"sliding_window": None, "head_dim": None, "num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen2": {"head_dim": None, "sliding_window": 128, "use_sliding_window": False},
    "qwen3_moe": EXPERTS,
    "gemma2": {"sliding_window": 200, "num_hidden_layers": 5},
    "gemma3_text": {"sliding_window": 256, "sliding_window_pattern": 6, "num_hidden_layers": 8},
    "gpt_oss": {"sliding_window": 128, "num_local_experts": 4, "num_experts_per_tok": 2, "num_hidden_layers": 3, "head_dim": 64},
    "deepseek_v2": {**LATENT, "first_k_dense_replace": 9, "n_routed_experts": 4, "n_shared_experts": 1, "moe_intermediate_size": 32},
    "deepseek_v3": {**LATENT, "first_k_dense_replace": 9, "n_routed_experts": 4, "n_shared_experts": 1, "moe_intermediate_size": 32},
    "qwen3_next": LINEAR,
    "smollm3": {"pad_token_id": 0},
    "glm4": {"pad_token_id": 0},
}
CLASSES = {
    "mistral": "window only", "phi3": "window only", "gemma2": "window 1:1", "gpt_oss": "window 1:1", "gemma3_text": "window n:1",
    "deepseek_v2": "MLA", "deepseek_v3": "MLA", "qwen3_next": "linear hybrid",
}  # fmt: skip


def case(model_type: str, flags: Case | None = None, **fields: Any) -> Case:
    """A small model; `flags` of the engine over those that all get."""
    common = {
        "hidden_size": 128, "intermediate_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
        "vocab_size": 256, "max_position_embeddings": 8192, "torch_dtype": "bfloat16",
    }  # fmt: skip
    config = {"architectures": [ARCHITECTURES[model_type]], "model_type": model_type, **common, **EXTRA.get(model_type, {}), **fields}
    config = {name: value for name, value in config.items() if value is not None or name in ("sliding_window", "q_lora_rank")}
    return {"config": config, "flags": {"max_model_len": 2048, "max_num_seqs": 4, "max_num_batched_tokens": 4096, "block_size": 128, **(flags or {})}}


def seen() -> list[Case]:
    return [
        case("llama"),
        case("llama", {"max_model_len": 1000}, num_key_value_heads=1),
        case("llama", {"block_size": 32}, num_key_value_heads=4),
        case("llama", {"kv_cache_dtype": "fp8"}),
        case("llama", {"dtype": "float32"}, torch_dtype="float16"),
        case("llama", torch_dtype="float32"),
        case("mistral"),
        case("gemma3_text", {"max_model_len": 8192}),
        case("gemma3_text", {"enable_prefix_caching": False}, num_hidden_layers=6, num_key_value_heads=1),
        case("deepseek_v2", {"block_size": 16}, num_hidden_layers=3),
        case("qwen3_next"),
        case("qwen3_next", {"enable_prefix_caching": False, "block_size": 32}),
        case("gpt_oss"),
        case("gemma2", {"max_num_batched_tokens": 512}),
        case("gemma2", num_hidden_layers=9),
    ]


FIRST_OF_EACH = ("qwen2", "qwen3", "qwen3_moe", "mixtral", "phi3", "glm4", "smollm3", "deepseek_v3")
"""Types that the seen half does not have."""


def unseen() -> list[Case]:
    roll = random.Random(SEED)
    names = [*FIRST_OF_EACH, "llama", "mistral", "gemma2", "gemma3_text", "gemma3_text", "gpt_oss", "qwen3_next", "qwen3_next"]
    return [_unseen(name, roll) for name in names]


def _unseen(name: str, roll: random.Random) -> Case:
    heads = roll.choice([2, 4, 6])
    changes: Case = {"num_hidden_layers": roll.randint(2, 9), "num_attention_heads": heads, "hidden_size": heads * roll.choice([32, 64])}
    if name not in ("deepseek_v2", "deepseek_v3"):
        changes["num_key_value_heads"] = roll.choice([number for number in (1, 2, 3, 6) if heads % number == 0])
    if "head_dim" not in EXTRA.get(name, {}) and name not in ("deepseek_v2", "deepseek_v3"):
        changes["head_dim"] = roll.choice([32, 64, 128])
    if EXTRA.get(name, {}).get("sliding_window") and name != "qwen2":
        changes["sliding_window"] = roll.randint(50, 900)
    if name == "gemma3_text":
        changes |= {"sliding_window_pattern": roll.randint(2, 4), "num_hidden_layers": roll.randint(4, 13)}
    if name == "qwen3_next":
        keys = roll.choice([2, 4])
        changes |= {"num_hidden_layers": roll.randint(4, 9), "linear_num_key_heads": keys, "linear_num_value_heads": keys * roll.choice([1, 2])}
        changes |= {"linear_key_head_dim": roll.choice([32, 64]), "linear_value_head_dim": roll.choice([32, 64]), "linear_conv_kernel_dim": roll.choice([3, 4])}
    flags: Case = {"max_model_len": roll.randint(600, 8000), "max_num_batched_tokens": roll.choice([512, 2048, 4096]), "block_size": roll.choice([32, 64, 128])}
    flags["enable_prefix_caching"] = roll.random() < 0.7
    if name in ("deepseek_v2", "deepseek_v3"):
        flags["block_size"] = 16
    return case(name, flags, **changes)


def ask(cases: list[Case]) -> list[Case]:
    """The engine's answers."""
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"VLLM_CACHE_ROOT": folder, "PYTHONSAFEPATH": "1"}
        argv = [vllm_python(), HERE / "vllm_engine.py"]
        text = json.dumps(cases)
        run = subprocess.run(argv, check=True, input=text, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=SECONDS, env=environment)
    return [json.loads(line) for line in run.stdout.splitlines()]


def settings_of(made: Case, said: Case) -> PlanSettings:
    """As the engine was started; how many tokens its batches hold it says itself, because it overrules the flag for some models."""
    flags = made["flags"]
    more = {"block_size": flags["block_size"], "max_num_batched_tokens": said["in_flight"], "max_concurrent_batches": 1}
    more |= {"enable_prefix_caching": int(flags.get("enable_prefix_caching", True)), "kv_cache_memory_bytes": POOL_BYTES}
    return PlanSettings(flags["max_model_len"], flags["max_num_seqs"], cache_type_k=flags.get("kv_cache_dtype", flags.get("dtype")), more=more)


def compare(made: Case, said: Case) -> tuple[str, str]:
    """The verdict, and both sides: blocks, bytes of a block, its tokens, layers of each group, blocks of a full-length request, capacity in tokens."""
    model, settings = ModelFile("config", made["config"]["model_type"], made["config"]), settings_of(made, said)
    layout, size = plan_layout(model, settings), cache_bytes(model, settings)
    if not isinstance(layout, Paged):
        return "unknown", getattr(layout, "detail", "")
    found, length = cache(*read(model, settings, needs_windows=True)), made["flags"]["max_model_len"]
    most = found.blocks_of.counted(length)
    ours = {
        "blocks": layout.blocks, "bytes": size, "block_tokens": layout.block_tokens, "layers": sorted(group.layers for group in found.blocks_of.groups),
        "most": most, "size_tokens": int(layout.blocks / most * length),
    }  # fmt: skip
    theirs = {
        "blocks": said["blocks"],
        "bytes": said["blocks"] * said["block_bytes"],
        "block_tokens": said["block_tokens"],
        "layers": sorted(group["layers"] for group in said["groups"]),
        "most": round(said["blocks"] / said["concurrency"], 6),
        "size_tokens": said["size_tokens"],
    }
    return ("exact" if ours == theirs else "wrong"), f"ours {ours}, vLLM {theirs}"


def judge(tally: Tally, half: str, made: Case, said: Case) -> None:
    name = made["config"]["model_type"]
    kind = CLASSES.get(name, "GQA, MQA, MHA") + "".join(f", {made['flags'][name]}" for name in ("dtype", "kv_cache_dtype") if name in made["flags"])
    if "refused" in said:
        tally.add(half, kind, "refused", f"{name}: {said['refused']}")
        return
    verdict, detail = compare(made, said)
    tally.add(half, kind, verdict, f"{name}: {detail}; {json.dumps(made)}")


def main() -> int:
    tally = Tally()
    wanted = sys.argv[1:] or ["seen", "unseen"]
    for half, cases in (("seen", seen()), ("unseen", unseen())):
        if half in wanted:
            for made, said in zip(cases, ask(cases), strict=True):
                judge(tally, half, made, said)
    return tally.report("vLLM")


if __name__ == "__main__":
    sys.exit(main())
