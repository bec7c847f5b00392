"""KV bytes of MLX LM's caches against our formulas, byte by byte after every update.

    python bench/kv_accuracy/mlx.py

Takes the engine's environment as the tests do (MLX_PYTHON, or one made on first use). Exits with 1 when a prediction is wrong.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parents[1] / "tests")]

from tally import Tally  # noqa: E402

from engines.mlx import mlx_python  # noqa: E402
from inspector.contract import ModelFile  # noqa: E402
from inspector.huggingface import UnfitError, huggingface_config  # noqa: E402
from inspector_mlx.cache import ELEMENT_BYTES, Quantized, session_bytes  # noqa: E402
from inspector_mlx.families import layers_of  # noqa: E402

SEED = 20261201
"""A half that was met is no longer unseen: change the seed with the formulas."""
UNSEEN = 40
SCHEDULES = ([300, 1, 1], [1] * 5, [256, 1], [300, 300, 1], [257], [40, 30, 1, 1], [512, 200, 1], [20, *[1] * 300])
"""Tokens of each update: prompts in one chunk and several, then decoding."""

Case = dict[str, Any]


def config(model_type: str, **fields: Any) -> Case:
    """A small model of a type; `fields` over what all need."""
    common = {
        "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
        "vocab_size": 32, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "rope_theta": 1e4, "tie_word_embeddings": True, "torch_dtype": "bfloat16",
    }  # fmt: skip
    return {"model_type": model_type, **common, **EXTRA.get(model_type, {}), **fields}


LINEAR = {
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 32, "linear_value_head_dim": 16, "linear_conv_kernel_dim": 4,
    "num_experts": 0, "num_experts_per_tok": 0, "decoder_sparse_step": 1, "shared_expert_intermediate_size": 0, "mlp_only_layers": [],
    "moe_intermediate_size": 0, "partial_rotary_factor": 0.5, "num_hidden_layers": 4,
}  # fmt: skip
LATENT = {"kv_lora_rank": 64, "qk_rope_head_dim": 16, "qk_nope_head_dim": 32, "v_head_dim": 32, "q_lora_rank": None, "first_k_dense_replace": 2}
EXPERTS = {"num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 16, "decoder_sparse_step": 1, "mlp_only_layers": [], "norm_topk_prob": True}
EXTRA: dict[str, Case] = {
    "gemma3_text": {"num_hidden_layers": 6, "sliding_window": 64, "sliding_window_pattern": 3},
    "gpt_oss": {"sliding_window": 64, "num_local_experts": 2, "num_experts_per_tok": 1, "torch_dtype": "float32"},
    "mixtral": {"num_local_experts": 2, "num_experts_per_tok": 1, "torch_dtype": "float32", "head_dim": None},
    "qwen3_moe": {**EXPERTS, "torch_dtype": "float32"},
    "qwen3_next": LINEAR,
    "deepseek_v2": {**LATENT, "rope_scaling": {"type": "yarn", "factor": 2.0, "original_max_position_embeddings": 2048, "mscale_all_dim": 1.0}},
    "deepseek_v3": LATENT,
    "glm4": {"attention_bias": False, "partial_rotary_factor": 0.5},
    "smollm3": {"no_rope_layer_interval": 4},
    "phi3": {"head_dim": None},
    "qwen2": {"head_dim": None},
    "gemma2": {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, "query_pre_attn_scalar": 32.0},
}
CLASSES = {
    "gemma3_text": "window 5:1", "gemma3": "window 5:1", "gpt_oss": "window 1:1", "qwen3_next": "linear hybrid", "deepseek_v2": "MLA expanded",
    "deepseek_v3": "MLA latent",
}  # fmt: skip
UNIFORM = ("llama", "mistral", "qwen2", "qwen3", "qwen3_moe", "mixtral", "phi3", "gemma2", "glm4", "smollm3")


def seen() -> list[Case]:
    made = [{"config": config(name), "updates": SCHEDULES[number % len(SCHEDULES)]} for number, name in enumerate(UNIFORM)]
    made += [{"config": config(name), "updates": updates} for name in ("llama", "gemma3_text", "gpt_oss", "qwen3_next") for updates in SCHEDULES]
    made += [{"config": config(name), "updates": updates} for name in ("deepseek_v2", "deepseek_v3") for updates in SCHEDULES[:3]]
    made += [
        {"config": config("llama", head_dim=64), "updates": [300, 300, 1], "kv_bits": bits, "kv_group_size": group, "quantized_kv_start": start}
        for bits in (4, 8)
        for group, start in ((32, 0), (64, 301))
    ]
    made.append({"config": config("gpt_oss", num_hidden_layers=5), "updates": [100, 30, 1]})
    windowed = config("llama", layer_types=["full_attention", "sliding_attention"], sliding_window=48)
    nested = {"model_type": "gemma3", "text_config": config("gemma3_text", num_key_value_heads=4), "vocab_size": 32, "torch_dtype": "bfloat16"}
    return [*made, {"config": windowed, "updates": [100, 30, 1]}, {"config": nested, "updates": [100, 30, 1]}]


def unseen() -> list[Case]:
    """Other dimensions, windows, patterns, types and schedules."""
    roll = random.Random(SEED)
    return [_unseen(roll) for _ in range(UNSEEN)]


def _unseen(roll: random.Random) -> Case:
    name = roll.choice([*UNIFORM, *("gemma3_text", "gpt_oss", "qwen3_next", "deepseek_v2", "deepseek_v3") * 3])
    heads = roll.choice([2, 4, 6, 8])
    changes: Case = {"num_attention_heads": heads, "num_key_value_heads": roll.choice([n for n in (1, 2, 3, 4, 6, 8) if heads % n == 0])}
    changes |= {"num_hidden_layers": roll.randint(2, 9), "hidden_size": heads * roll.choice([16, 32, 48])}
    if "head_dim" not in EXTRA.get(name, {}):
        changes["head_dim"] = roll.choice([16, 32, 64, 80])
    if "torch_dtype" not in EXTRA.get(name, {}):
        changes["torch_dtype"] = roll.choice(["bfloat16", "float16", "float32"])
    if name in ("gemma3_text", "gpt_oss"):
        changes["sliding_window"] = roll.randint(8, 400)
    if name == "gemma3_text":
        changes["sliding_window_pattern"] = roll.randint(2, changes["num_hidden_layers"])
    if name == "qwen3_next":
        keys = roll.choice([1, 2, 3])
        changes |= {"num_hidden_layers": roll.randint(4, 9), "linear_num_key_heads": keys, "linear_num_value_heads": keys * roll.choice([1, 2, 3])}
        changes |= {"linear_key_head_dim": roll.choice([32, 64]), "linear_value_head_dim": roll.choice([8, 24]), "linear_conv_kernel_dim": roll.randint(2, 6)}
    if name in ("deepseek_v2", "deepseek_v3"):
        changes |= {"kv_lora_rank": roll.choice([32, 96, 128]), "qk_rope_head_dim": roll.choice([8, 32]), "v_head_dim": roll.choice([16, 48])}
        changes |= {"qk_nope_head_dim": roll.choice([16, 64]), "first_k_dense_replace": changes["num_hidden_layers"]}
    updates = [roll.randint(1, 520) for _ in range(roll.randint(1, 4))] + [1] * roll.randint(0, 40)
    case: Case = {"config": config(name, **changes), "updates": updates}
    if name in ("llama", "qwen3") and roll.random() < 0.7:
        case["config"]["head_dim"] = roll.choice([64, 128])
        case |= {"kv_bits": roll.choice([4, 8]), "kv_group_size": roll.choice([32, 64])}
    return case


def ask(cases: list[Case]) -> list[Case]:
    """The engine's answers."""
    run = subprocess.run([mlx_python(), "-P", HERE / "mlx_engine.py"], input=json.dumps(cases), capture_output=True, text=True, check=True, timeout=1200)
    return [json.loads(line) for line in run.stdout.splitlines()]


def predicted(case: Case) -> list[int]:
    found = huggingface_config(ModelFile("config", "", case["config"]))
    layers, element = layers_of(found), ELEMENT_BYTES[found.dtype()]
    bits, start, updates = case.get("kv_bits"), case.get("quantized_kv_start", 0), case["updates"]
    sizes = []
    for end in range(1, len(updates) + 1):
        so_far = updates[:end]
        quantized = Quantized(bits, case["kv_group_size"]) if bits and sum(so_far) >= start else None
        sizes.append(session_bytes(layers, element, so_far, quantized))
    return sizes


def kind(case: Case) -> str:
    return "quantized" if "kv_bits" in case else CLASSES.get(case["config"]["model_type"], "GQA, MQA, MHA")


def judge(tally: Tally, half: str, case: Case, said: Case) -> None:
    name = case["config"]["model_type"]
    if "refused" in said:
        tally.add(half, kind(case), "refused", f"{name}: {said['refused']}")
        return
    try:
        ours = predicted(case)
    except UnfitError as error:
        tally.add(half, kind(case), "unknown", error.unknown.detail)
        return
    exact = ours == said["bytes"]
    tally.add(half, kind(case), "exact" if exact else "wrong", f"{name}: {ours} for {said['bytes']} ({said['classes']}) {json.dumps(case)}")


def main() -> int:
    tally = Tally()
    for half, cases in (("seen", seen()), ("unseen", unseen())):
        for case, said in zip(cases, ask(cases), strict=True):
            judge(tally, half, case, said)
    return tally.report("MLX LM")


if __name__ == "__main__":
    sys.exit(main())
