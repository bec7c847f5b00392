"""Real `mlx_lm.server` processes on the CPU, and a tiny model for them that is written without any framework.

The engine lives in an environment of its own: it brings a hundred megabytes that nothing else here needs. `MLX_PYTHON` names an interpreter that has it;
otherwise one is made in `.cache` on first use.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy
import psutil

from engines.builds import MissingEngineError, cached, command, missing
from engines.server import Server
from engines.vllm import free_port

PACKAGES = ("mlx[cpu]==0.32.4", "mlx-lm==0.32.2")
REQUEST_SECONDS = 120.0

LAYERS, HEADS, HEAD, HIDDEN, LONGEST = 8, 16, 64, 64, 4096
BYTES_PER_TOKEN = LAYERS * HEADS * (HEAD + HEAD) * 2
"""Of KV cache: keys and values of every layer and head in 16 bits."""
SPECIAL = ("<unk>", "<s>", "</s>")


def mlx_python() -> Path:
    """The interpreter that has mlx-lm; without one the test is skipped, or fails where engines must be there."""
    named = os.environ.get("MLX_PYTHON")
    if named:
        return Path(named)
    try:
        return cached("mlx-0.32.2", _make_environment) / "bin" / "python"
    except MissingEngineError as error:
        missing(f"no mlx-lm here: {error}")


def _make_environment(folder: Path) -> None:
    command("making an environment", [sys.executable, "-m", "venv", str(folder)])
    command("pip install", [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES])


# --- The model -----------------------------------------------------------------------------------------------------------------------


def write_model(folder: Path, name: str = "tiny-mlx") -> Path:
    """A random llama whose tokens are bytes and whose answers never end by themselves."""
    model = folder / name
    model.mkdir(parents=True)
    words = [*SPECIAL, *_byte_letters()]
    tensors = _tensors(len(words))
    (model / "config.json").write_text(json.dumps(_config(len(words))))
    (model / "tokenizer.json").write_text(json.dumps(_tokenizer(words)))
    (model / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>"}))
    write_safetensors(model / "model.safetensors", tensors)
    return model


def write_safetensors(file: Path, tensors: dict[str, Any]) -> int:
    """Writes 16-bit tensors in the safetensors format; the bytes of the tensors."""
    head, at = {}, 0
    for name, tensor in tensors.items():
        head[name] = {"dtype": "F16", "shape": list(tensor.shape), "data_offsets": [at, at + tensor.nbytes]}
        at += tensor.nbytes
    text = json.dumps(head).encode()
    file.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(tensor.tobytes() for tensor in tensors.values()))
    return at


def _tensors(words: int) -> dict[str, Any]:
    random = numpy.random.default_rng(1)

    def matrix(rows: int, columns: int) -> Any:
        return (random.standard_normal((rows, columns)) / columns**0.5).astype("<f2")

    ones = numpy.ones(HIDDEN, "<f2")
    found = {"model.embed_tokens.weight": matrix(words, HIDDEN), "model.norm.weight": ones, "lm_head.weight": matrix(words, HIDDEN)}
    found["lm_head.weight"][: len(SPECIAL)] = 0  # Never the likeliest: no answer ends early.
    for layer in range(LAYERS):
        at = f"model.layers.{layer}"
        found |= {f"{at}.{norm}.weight": ones for norm in ("input_layernorm", "post_attention_layernorm")}
        found |= {f"{at}.self_attn.{name}_proj.weight": matrix(HEADS * HEAD, HIDDEN) for name in ("q", "k", "v")}
        found |= {f"{at}.self_attn.o_proj.weight": matrix(HIDDEN, HEADS * HEAD), f"{at}.mlp.down_proj.weight": matrix(HIDDEN, 2 * HIDDEN)}
        found |= {f"{at}.mlp.{name}_proj.weight": matrix(2 * HIDDEN, HIDDEN) for name in ("gate", "up")}
    return found


def _config(words: int) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "num_hidden_layers": LAYERS,
        "intermediate_size": 2 * HIDDEN,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "head_dim": HEAD,
        "rms_norm_eps": 1e-5,
        "vocab_size": words,
        "max_position_embeddings": LONGEST,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "torch_dtype": "float16",
        "bos_token_id": 1,
        "eos_token_id": 2,
    }


def _tokenizer(words: Sequence[str]) -> dict[str, Any]:
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": number, "content": word, **special} for number, word in enumerate(SPECIAL)],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {"type": "BPE", "unk_token": SPECIAL[0], "vocab": {word: number for number, word in enumerate(words)}, "merges": []},
    }


def _byte_letters() -> list[str]:
    """One printable letter for each byte, as byte-level tokenizers write them."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    return [chr(byte) for byte in plain] + [chr(256 + number) for number in range(256 - len(plain))]


# --- The server ----------------------------------------------------------------------------------------------------------------------


def serve(model: Path, log: Path, *flags: str, port: int | None = None, with_hub: bool = True, wait: bool = True) -> Server:
    """Start a server and wait until /health is good; its output is appended to `log`. `with_hub` False: its model cache folder is missing."""
    python = mlx_python()
    url = f"http://127.0.0.1:{port or free_port()}"
    script = python.parent / "mlx_lm.server"
    argv = [str(python), str(script), "--model", str(model), "--port", url.rpartition(":")[2], *flags]
    cache = log.parent / "hub"
    if with_hub:
        cache.mkdir(exist_ok=True)
    env = {"HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(cache), "PYTHONUNBUFFERED": "1"}
    return Server(argv, log, lambda text: url if "Starting httpd at" in text else None, env=env, wait=wait)


def complete(url: str, prompt: str, output: int) -> httpx.Response:
    """Run one completion of so many tokens to its end."""
    body = {"prompt": prompt, "max_tokens": output, "temperature": 0.0}
    return httpx.post(f"{url}/v1/completions", json=body, timeout=REQUEST_SECONDS, trust_env=False)


CLIENT = """
import json, sys, urllib.request
url, prompt, output = sys.argv[1:]
body = json.dumps({"prompt": prompt, "max_tokens": int(output), "temperature": 0.0}).encode()
with urllib.request.urlopen(urllib.request.Request(url + "/v1/completions", body, {"Content-Type": "application/json"})) as reply:
    print(json.load(reply)["usage"]["completion_tokens"])
"""


@contextmanager
def sessions(url: str, number: int, prompt: int, output: int) -> Iterator[list[subprocess.Popen[str]]]:
    """So many completions at the same time, of prompts that share no beginning. Leaving the block waits for all of them.

    Each is a process of its own: the inspector does not count the connections of the one that it runs in."""
    argv = [sys.executable, "-c", CLIENT, url]
    clients = [
        subprocess.Popen([*argv, chr(ord("a") + each) * prompt, str(output)], stdout=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL)
        for each in range(number)
    ]
    try:
        yield clients
        for client in clients:
            said, _ = client.communicate(timeout=REQUEST_SECONDS)
            assert (client.returncode, said.strip()) == (0, str(output))
    finally:
        for client in clients:
            client.kill()
            client.communicate()


def established(pid: int, port: int) -> int:
    """Connections to a port of a process, by the kernel's word."""
    rows = psutil.Process(pid).net_connections(kind="tcp")
    return sum(row.status == psutil.CONN_ESTABLISHED and row.laddr.port == port for row in rows)


def said_by_python(code: str) -> str:
    """What the engine's own interpreter prints."""
    return subprocess.run([mlx_python(), "-c", code], check=True, capture_output=True, text=True, timeout=60).stdout.strip()
