"""What llama.cpp keeps for each architecture, by its name in GGUF: windows, states of fixed size, caches beside the KV cache.

Every row was held against the log of a real server, most of them by `bench/kv_accuracy/llamacpp.py`, with models of our own and those that llama.cpp's
`test-llama-archs` writes. An architecture that is not here is unknown by name: most keep all tokens in all layers, but the ones that do not are those
where a guess costs memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Recurrent(StrEnum):
    """Which layers keep a state of fixed size instead of, or beside, keys and values."""

    NONE = "none"
    ALL = "all"
    BESIDE = "beside"
    """Every layer has both."""
    HEADLESS = "headless"
    """Layers without KV heads."""
    HEADLESS_PLAIN = "headless_plain"
    """Layers without KV heads and without a feed-forward part; one that has the latter keeps nothing at all."""
    INTERVAL = "interval"
    """All but every n-th layer, unless the file lists them."""


class State(StrEnum):
    """What a recurrent layer keeps of a sequence."""

    SELECTIVE = "selective"
    """Mamba and its kin, gated delta net among them: the last inputs of a convolution, and a state."""
    GROUPED = "grouped"
    """The same, with groups in the convolution."""
    SHORT = "short"
    """The last inputs of a short convolution, nothing else."""
    DELTA = "delta"
    """Kimi's delta attention: three convolutions, and a square for each head."""


class Unstated(StrEnum):
    """What the engine does where the file states no window."""

    FULL = "full"
    DEFAULT = "default"
    REFUSES = "refuses"


@dataclass(frozen=True, slots=True)
class Window:
    """Layers that keep a sliding window. Where the file states no period, the last layer of each `period` keeps all (`dense_first`: the first); 0: none does.

    `tokens` is the engine's own window, `fixed` where the file cannot change it; `layers`: there are windows in models of so many layers only;
    `listed`: the file lists its layers, and the engine has no period of its own."""

    period: int
    unstated: Unstated = Unstated.FULL
    dense_first: bool = False
    tokens: int | None = None
    fixed: bool = False
    layers: int | None = None
    listed: bool = False


@dataclass(frozen=True, slots=True)
class Architecture:
    """One row. `indexer`: a second cache of keys in every layer. `skips_draft`: the cache leaves out the layers of a built-in draft model; elsewhere it is
    not proved whether it does. `ignores_window`: a window in the file is known to change nothing. `shares`: the file says how many of the last layers use
    keys and values of earlier ones."""

    window: Window | None = None
    recurrent: Recurrent = Recurrent.NONE
    state: State = State.SELECTIVE
    indexer: bool = False
    skips_draft: bool = False
    ignores_window: bool = False
    shares: bool = False


_FULL = """
    arcee arctic baichuan bailingmoe bailingmoe2 bloom chatglm codeshell cogvlm command-r dbrx deci deepseek deepseek2 dots1 ernie4_5 ernie4_5-moe exaone falcon
    gemma glm4 glm4moe gpt2 gptneox granite granitemoe grok grovemoe hunyuan-dense hunyuan-moe hunyuan_vl hy_v3 internlm2 jais jais2 maincoder minicpm minicpm3
    minimax-m2 mistral4 mpt nanbeige nemotron olmo olmoe openelm orion paddleocr pangu-embedded phi2 phimoe plamo pockettts qwen qwen2moe qwen2vl qwen3moe
    qwen3tts qwen3vl qwen3vlmoe refact seed_oss smollm3 stablelm starcoder starcoder2 talkie xverse
"""
_FULL_WHATEVER_THE_WINDOW = ("llama", "mistral3", "qwen2", "qwen3", "phi3")
_INTERVAL = Architecture(recurrent=Recurrent.INTERVAL, state=State.GROUPED, skips_draft=True)

ARCHITECTURES: Mapping[str, Architecture] = {
    **dict.fromkeys(_FULL.split(), Architecture()),
    **dict.fromkeys(_FULL_WHATEVER_THE_WINDOW, Architecture(ignores_window=True)),
    "deepseek32": Architecture(indexer=True, skips_draft=True),
    "gemma2": Architecture(Window(2, Unstated.DEFAULT, tokens=4096)),
    "gemma3": Architecture(Window(6)),
    "gemma4": Architecture(Window(0, Unstated.REFUSES, listed=True), shares=True),
    "cohere2": Architecture(Window(4, Unstated.REFUSES)),
    "gpt-oss": Architecture(Window(2, Unstated.REFUSES)),
    "olmo2": Architecture(Window(4)),
    "llama4": Architecture(Window(4, Unstated.DEFAULT, tokens=8192, fixed=True)),
    "smallthinker": Architecture(Window(4, dense_first=True, tokens=4096, fixed=True)),
    "exaone4": Architecture(Window(4, Unstated.DEFAULT, tokens=4096, layers=64)),
    "mamba": Architecture(recurrent=Recurrent.ALL),
    "mamba2": Architecture(recurrent=Recurrent.ALL, state=State.GROUPED),
    "jamba": Architecture(recurrent=Recurrent.HEADLESS),
    "granitehybrid": Architecture(recurrent=Recurrent.HEADLESS, state=State.GROUPED),
    "plamo2": Architecture(recurrent=Recurrent.HEADLESS, state=State.GROUPED),
    "lfm2": Architecture(Window(0), recurrent=Recurrent.HEADLESS, state=State.SHORT),
    "kimi-linear": Architecture(recurrent=Recurrent.HEADLESS, state=State.DELTA),
    "nemotron_h": Architecture(recurrent=Recurrent.HEADLESS_PLAIN, state=State.GROUPED),
    "falcon-h1": Architecture(recurrent=Recurrent.BESIDE, state=State.GROUPED),
    "nemotron_h_moe": Architecture(recurrent=Recurrent.HEADLESS_PLAIN, state=State.GROUPED),
    "lfm2moe": Architecture(recurrent=Recurrent.HEADLESS, state=State.SHORT),
    "qwen3next": _INTERVAL,
    "qwen35": _INTERVAL,
    "qwen35moe": _INTERVAL,
}

EXTRA_CACHES = frozenset({"deepseek4", "dots3note", "glm-dsa", "glm5-next", "hy_v4", "minimax-m3", "qwen4exp"})
"""These keep compressed tokens or further indexes beside keys and values; how much is not proved."""

TYPES: Mapping[str, tuple[int, int]] = {
    "f32": (1, 4),
    "f16": (1, 2),
    "bf16": (1, 2),
    "q8_0": (32, 34),
    "q5_1": (32, 24),
    "q5_0": (32, 22),
    "q4_1": (32, 20),
    "q4_0": (32, 18),
    "iq4_nl": (32, 18),
}
"""Cache types: elements of a block, bytes of a block."""
