"""A real vLLM on the CPU for the tests: where it comes from, how it is started, and requests to it.

Its interpreter is named by VLLM_PYTHON, or stands in .venv-vllm (see install_vllm.sh). Without one a test is skipped with the reason; where the environment
says INSPECTOR_REQUIRE_VLLM=1, it fails instead.
"""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import httpx
import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from engines.server import Server

REPOSITORY = Path(__file__).parents[2]
START_SECONDS = 300.0
REQUEST_SECONDS = 240.0
PORT_TRIES = 3
MODEL = "tiny"

BLOCKS, BLOCK_TOKENS, SEQUENCES, LENGTH = 24, 128, 4, 2048
"""What the server is started with; a block of a CPU build has 128 tokens."""

SMALL = (
    f"--num-gpu-blocks-override={BLOCKS}", f"--max-num-seqs={SEQUENCES}", f"--max-model-len={LENGTH}", "--dtype=float32", f"--served-model-name={MODEL}",
    "--enforce-eager", "--gpu-memory-utilization=0.1",
)  # fmt: skip
"""The last one lets a server start where other processes hold memory; the blocks are overridden all the same."""

API_SERVER = ("-m", "vllm.entrypoints.openai.api_server", "--model")
SERVE = (str(Path(__file__).with_name("vllm_serve.py")), "serve")
"""Ways to start a server; the model follows."""


def missing(reason: str) -> NoReturn:
    if os.environ.get("INSPECTOR_REQUIRE_VLLM") == "1":
        pytest.fail(f"{reason} (INSPECTOR_REQUIRE_VLLM=1: a missing vLLM is a failure)", pytrace=False)
    pytest.skip(reason)


def vllm_python() -> Path:
    """The interpreter that has vLLM."""
    python = Path(os.environ.get("VLLM_PYTHON") or REPOSITORY / ".venv-vllm" / "bin" / "python")
    if not python.is_file():
        missing("no vLLM here: run tests/engines/install_vllm.sh, or name its interpreter in VLLM_PYTHON")
    return python


def write_model(folder: Path) -> Path:
    """A tiny random model."""
    script = Path(__file__).with_name("tiny_vllm_model.py")
    subprocess.run([vllm_python(), script, folder], check=True, capture_output=True, timeout=START_SECONDS)
    return folder


def serve(model: Path, log: Path, *flags: str, command: Sequence[str] = API_SERVER) -> Server:
    """Start a server and wait until it is ready, which takes most of a minute; its output is appended to `log`."""
    for _ in range(PORT_TRIES):
        server = _started([*command, str(model), *SMALL, *flags], log)
        if any(_listens(process, server.port) for process in [psutil.Process(server.pid), *server.children()]):
            return server
        server.stop()  # Another process took the port between our look and the server's.
    raise AssertionError(f"no free port in {PORT_TRIES} tries")


def _listens(process: psutil.Process, port: int) -> bool:
    return any(c.status == psutil.CONN_LISTEN and c.laddr.port == port for c in process.net_connections("tcp"))


def _started(arguments: Sequence[str], log: Path) -> Server:
    url = f"http://127.0.0.1:{free_port()}"
    argv = [str(vllm_python()), *arguments, "--host", "127.0.0.1", "--port", url.rpartition(":")[2]]
    env = {
        "PYTHONSAFEPATH": "1",  # this folder has a vllm.py, too
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        # One thread for the engine: on a machine of two cores it would starve who looks at it.
        "OMP_NUM_THREADS": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "HF_HUB_OFFLINE": "1",
        "VLLM_CACHE_ROOT": str(log.parent / "cache"),
    }
    server = Server(argv, log, lambda _: url, env=env, wait=False)
    try:
        server.wait_ready(START_SECONDS)
    except BaseException:
        server.stop()
        raise
    return server


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def engine_core(server: Server) -> psutil.Process:
    """The process that decodes, below the one that answers."""
    found = [process for process in server.children() if "EngineCore" in " ".join([process.name(), *process.cmdline()])]
    assert len(found) == 1, [process.name() for process in server.children()]
    return found[0]


def complete(url: str, prompt: int, output: int, seed: int = 0) -> int:
    """Run one completion of exactly so many tokens to its end; its status. Prompts of different seeds share no cached prefix."""
    ids = [3 + (seed * 31 + 7 * place) % 250 for place in range(prompt)]
    body = {"model": MODEL, "prompt": ids, "max_tokens": output, "ignore_eos": True, "temperature": 0}
    return httpx.post(f"{url}/v1/completions", json=body, timeout=REQUEST_SECONDS, trust_env=False).status_code


@contextmanager
def sessions(url: str, shapes: Sequence[tuple[int, int]]) -> Iterator[list[Future[int]]]:
    """Completions of the given (prompt, output) tokens at the same time. Leaving the block waits for all of them."""
    with ThreadPoolExecutor(max_workers=len(shapes)) as pool:
        yield [pool.submit(complete, url, prompt, output, seed) for seed, (prompt, output) in enumerate(shapes)]


def read_page(url: str) -> bytes:
    return httpx.get(f"{url}/metrics", timeout=30.0, trust_env=False).content


def parsed(page: bytes) -> dict[str, list[tuple[dict[str, str], float]]]:
    """The samples of a page by name, as prometheus_client reads them."""
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(page.decode()):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found
