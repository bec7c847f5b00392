"""KV cache cases for a real llama.cpp server: tiny models, launch settings, and the sizes that the server's own log states."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from engines.builds import Build, CurrentBuild
from engines.gguf_models import Model, attention, latent, recurrent, sharing, with_states, write
from engines.server import ServerDiedError

SIZE = re.compile(r"(KV|RS) buffer size =\s*([\d.]+) MiB")
HALF_A_DIGIT = 0.005
"""The log's figures are rounded to 0.01 MiB each."""

QUANTIZED = ("q8_0", "q4_0", "q5_0", "q5_1", "q4_1", "iq4_nl")


@dataclass(frozen=True)
class Case:
    """A model and how it is served. `more` holds whole numbers by the long names of flags."""

    kind: str
    model: Model
    context: int = 4096
    slots: int | None = 4
    unified: bool | None = None
    keys: str | None = None
    values: str | None = None
    more: Mapping[str, int] = field(default_factory=dict)

    def flags(self) -> list[str]:
        flags = ["-c", str(self.context), "-lv", "4"]
        flags += [] if self.slots is None else ["-np", str(self.slots)]
        flags += [] if self.unified is None else ["-kvu" if self.unified else "-no-kvu"]
        flags += [] if self.keys is None else ["-ctk", self.keys]
        flags += [] if self.values is None else ["-ctv", self.values]
        for name, value in self.more.items():
            flags += {"swa_full": ["--swa-full"], "flash_attn": ["-fa", "on" if value else "off"]}.get(name, [f"--{name.replace('_', '-')}", str(value)])
        return flags

    def demo_flags(self) -> list[str]:
        """Of the server that runs in a Python process: it has fewer."""
        shared = ["--unified"] if self.unified else []
        return ["--context", str(self.context), "--slots", str(-1 if self.slots is None else self.slots), "--verbosity", "4", *shared]

    @property
    def shared(self) -> bool:
        """Whether the slots have one cache between them."""
        return self.slots is None or bool(self.unified)

    def __str__(self) -> str:
        return f"{self.model.architecture} {dict(self.model.values)} {' '.join(self.flags())}"


@dataclass(frozen=True)
class Logged:
    """Sum of the buffers in MiB, and how far rounding may have moved it."""

    mebibytes: float
    rounding: float

    def agrees(self, size: int) -> bool:
        return abs(size / 2**20 - self.mebibytes) <= self.rounding + 1e-9


def logged(text: str) -> Logged:
    found = SIZE.findall(text)
    return Logged(sum(float(size) for _, size in found), HALF_A_DIGIT * len(found))


def ask(build: Build | CurrentBuild, case: Case, folder: Path, model: Path | None = None) -> Logged | str:
    """Start the server once and read its log; the reason where it refuses."""
    file = model or write(case.model, folder / "model.gguf")
    log = folder / "server.log"
    log.unlink(missing_ok=True)
    flags = case.flags() if isinstance(build, Build) else case.demo_flags()
    try:
        with build.serve(file, log, *flags) as server:
            return logged(server.log_text())
    except ServerDiedError as died:
        lines = [line for line in str(died).splitlines() if " E " in line or "error" in line.lower()]
        return lines[0][-200:] if lines else "the server ended"


# --- The cases -----------------------------------------------------------------------------------------------------------------------

SEEN: Mapping[str, tuple[Model, ...]] = {
    "GQA": (attention("llama", 2, 4, 2, 128), attention("qwen2", 3, 6, 2, 64)),
    "MQA": (attention("llama", 2, 4, 1, 64),),
    "window": (
        attention("gemma2", 2, 4, 2, 128, attention__sliding_window=32),
        attention("gemma3", 7, 4, 1, 64, attention__sliding_window=512),
        attention("cohere2", 4, 4, 2, 64, attention__sliding_window=128),
    ),
    "KV reuse": (sharing(6, 2, 4, 1, 64, 32, [True, True, True, False, True, False]),),
    "latent": (latent(2, 2, 512, 64),),
    "hybrid": (
        with_states(attention("jamba", 3, 4, [0, 2, 0], 64), 512, 16, 4, 0),
        with_states(attention("falcon-h1", 2, 4, 2, 64), 256, 16, 4, 2),
        attention("lfm2", 3, 4, [0, 2, 0], 64, shortconv__l_cache=3),
        with_states(attention("nemotron_h", 3, 4, [2, 0, 0], 64, feed_forward_length=[0, 0, 32]), 512, 16, 4, 1),
    ),
    "recurrent": (recurrent("mamba", 2, 128, 16, 4, 0), recurrent("mamba2", 2, 128, 16, 4, 1)),
}

RUNTIMES: tuple[dict[str, Any], ...] = (
    {},
    {"unified": True},
    {"slots": 3, "context": 5000},
    {"slots": None},
    {"keys": "q8_0", "values": "q8_0"},
    {"more": {"ubatch_size": 128}},
)

SETTINGS: tuple[dict[str, Any], ...] = (
    {"unified": True, "more": {"ubatch_size": 1024}},
    {"more": {"swa_full": 1}},
    {"keys": "bf16", "values": "f32"},
    {"keys": "q8_0", "values": "f16"},
    {"keys": "q4_0", "values": "q4_0", "unified": True},
    {"more": {"batch_size": 256}},
    {"more": {"flash_attn": 0}},
)


def seen() -> Iterator[Case]:
    """With the dimensions that the formulas were written with: each model in each common runtime, and two of them in the rarer ones."""
    for kind, models in SEEN.items():
        for model in models:
            for runtime in RUNTIMES:
                yield _case(kind, model, runtime)
    for runtime in SETTINGS:
        yield _case("GQA", SEEN["GQA"][0], runtime)
        yield _case("window", SEEN["window"][0], runtime)


def _case(kind: str, model: Model, runtime: Mapping[str, Any]) -> Case:
    case = replace(Case(kind, model), **runtime)
    if case.values in QUANTIZED or case.keys in QUANTIZED:
        case = replace(case, kind=f"{kind} quantized")
    return case


def unseen(seed: int, count: int) -> Iterator[Case]:
    """Dimensions, windows, types and slots drawn by a seed: met by no formula before."""
    draw = random.Random(seed)
    kinds = (_some_attention, _some_window, _some_latent, _some_hybrid, _some_recurrent, _some_sharing)
    for number in range(count):
        kind, model = kinds[number % len(kinds)](draw)
        yield _case(kind, model, _some_runtime(draw, same_types=kind == "latent"))


def _some_runtime(draw: random.Random, *, same_types: bool) -> dict[str, Any]:
    types = (None, None, "f16", "bf16", "f32", *QUANTIZED)
    keys = draw.choice(types)
    more = {"ubatch_size": draw.choice((64, 200, 512, 900))} if draw.random() < 0.5 else {}
    more |= {"swa_full": 1} if draw.random() < 0.15 else {}
    return {
        "context": draw.randint(300, 12000), "slots": draw.choice((None, 1, 2, 3, 5, 7)), "unified": draw.choice((None, True, False)),
        "keys": keys, "values": keys if same_types else draw.choice(types), "more": more,
    }  # fmt: skip


def _some_heads(draw: random.Random) -> tuple[int, int, int]:
    """Query heads, KV heads, head size."""
    kv_heads = draw.randint(1, 6)
    return kv_heads * draw.randint(1, 3), kv_heads, draw.choice((32, 64, 96, 128, 160))


def _some_attention(draw: random.Random) -> tuple[str, Model]:
    heads, kv_heads, head = _some_heads(draw)
    window = {"attention__sliding_window": 300} if draw.random() < 0.2 else {}  # These two have it in their files and do not use it.
    return "MQA" if kv_heads == 1 else "GQA", attention(draw.choice(("llama", "qwen2")), draw.randint(1, 5), heads, kv_heads, head, **window)


def _some_window(draw: random.Random) -> tuple[str, Model]:
    heads, kv_heads, head = _some_heads(draw)
    architecture = draw.choice(("gemma2", "gemma3", "cohere2"))
    stated = {"attention__sliding_window_pattern": draw.randint(2, 7)} if draw.random() < 0.4 else {}
    return "window", attention(architecture, draw.randint(2, 9), heads, kv_heads, head, attention__sliding_window=draw.randint(1, 3000), **stated)


def _some_latent(draw: random.Random) -> tuple[str, Model]:
    return "latent", latent(draw.randint(1, 5), draw.randint(1, 4), draw.choice((64, 128, 256, 384)), draw.choice((32, 64)))


def _some_hybrid(draw: random.Random) -> tuple[str, Model]:
    heads, kv_heads, head = _some_heads(draw)
    layers = draw.randint(2, 6)
    mixed = [draw.choice((0, kv_heads)) for _ in range(layers - 2)] + [0, kv_heads]
    size, kernel, groups = draw.choice((16, 32, 64)), draw.randint(2, 5), draw.choice((1, 2, 4))
    match draw.choice(("jamba", "falcon-h1", "lfm2", "nemotron_h")):
        case "jamba":
            return "hybrid", with_states(attention("jamba", layers, heads, mixed, head), 2 * heads * head, size, kernel, 0)
        case "falcon-h1":
            return "hybrid", with_states(attention("falcon-h1", layers, heads, kv_heads, head), 64 * draw.randint(1, 9), size, kernel, groups)
        case "lfm2":
            window = {"attention__sliding_window": draw.randint(16, 2000)} if draw.random() < 0.4 else {}
            return "hybrid", attention("lfm2", layers, heads, mixed, head, shortconv__l_cache=draw.randint(2, 5), **window)
        case _:
            forward = [0 if kv else draw.choice((0, 32)) for kv in mixed[:-2]] + [0, 0]
            model = attention("nemotron_h", layers, heads, mixed, head, feed_forward_length=forward)
            return "hybrid", with_states(model, 64 * draw.randint(1, 9), size, kernel, groups)


def _some_sharing(draw: random.Random) -> tuple[str, Model]:
    """The last two layers with keys and values of their own are the ones that the rest use: one with a window, one without."""
    heads, kv_heads, head = _some_heads(draw)
    before, shared = draw.randint(0, 3), draw.randint(0, 3)
    windows = [*(draw.random() < 0.6 for _ in range(before)), True, False, *(draw.random() < 0.6 for _ in range(shared))]
    return "KV reuse", sharing(before + 2 + shared, shared, heads, kv_heads, head, draw.choice((32, 64, 128)), windows)


def _some_recurrent(draw: random.Random) -> tuple[str, Model]:
    architecture = draw.choice(("mamba", "mamba2"))
    groups = draw.choice((1, 2, 4)) if architecture == "mamba2" else 0
    return "recurrent", recurrent(architecture, draw.randint(1, 6), 32 * draw.randint(1, 8), draw.choice((8, 16, 64)), draw.randint(2, 5), groups)
