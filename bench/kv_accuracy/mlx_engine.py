"""What MLX LM's own cache objects say of made-up models; runs in MLX LM's own environment, which `mlx.py` calls.

Reads cases (JSON) from standard input, writes one line of JSON for each: the bytes of all caches after every update.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import mlx.core as mx
from mlx_lm.generate import maybe_quantize_kv_cache
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.utils import _get_classes


def ask(case: dict[str, Any]) -> dict[str, Any]:
    config = case["config"]
    made, arguments = _get_classes(config)
    model = made(arguments.from_dict(config))
    model.set_dtype(getattr(mx, config["torch_dtype"]))
    cache = make_prompt_cache(model)
    sizes = []
    for new in case["updates"]:
        mx.eval(model(mx.array([[1] * new]), cache=cache))
        maybe_quantize_kv_cache(cache, case.get("quantized_kv_start", 0), case.get("kv_group_size", 64), case.get("kv_bits"))
        sizes.append(sum(each.nbytes for each in cache))
    return {"bytes": sizes, "classes": sorted({type(each).__name__ for each in cache})}


if __name__ == "__main__":
    for each in json.load(sys.stdin):
        try:
            said = ask(each)
        except Exception as error:
            said = {"refused": f"{type(error).__name__}: {error}"[:300]}
        print(json.dumps(said), flush=True)
