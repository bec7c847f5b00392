"""MLX LM's own cache objects take the bytes that our formulas say: a short sample of `bench/kv_accuracy/mlx.py`."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytestmark = pytest.mark.engine

BENCH = Path(__file__).parents[2] / "bench" / "kv_accuracy"
SHORT = [5, 30, 1, 1]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(sys, "path", [str(BENCH), *sys.path])
    spec = importlib.util.spec_from_file_location("kv_accuracy_mlx", BENCH / "mlx.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_class_of_cache_takes_the_predicted_bytes(bench: ModuleType) -> None:
    cases: list[dict[str, Any]] = [
        {"config": bench.config(name, sliding_window=16), "updates": SHORT}
        for name in ("llama", "gemma3_text", "gpt_oss", "qwen3_next", "deepseek_v2", "deepseek_v3")
    ]
    cases.append({"config": bench.config("qwen3", head_dim=64), "updates": SHORT, "kv_bits": 4, "kv_group_size": 64})
    said = bench.ask(cases)
    assert [reply.get("bytes") for reply in said] == [bench.predicted(case) for case in cases], said
