"""A real llama.cpp server for the demo, in a child process: the C++ server can neither be cancelled nor survive inside the inspector's own process.

`python -m inspector.demo.server --model tiny.gguf` runs the child by hand; `DemoServer.start()` runs it for as long as a block lasts.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import httpx

from inspector.demo import DemoError, needs_extra
from inspector.demo.model import write_tiny_model

HOST = "127.0.0.1"
KEY_VARIABLE = "LLAMA_API_KEY"
"""llama-server's own name for it: a key on a command line could be read by everyone on the machine."""

START_SECONDS = 30.0
STOP_SECONDS = 5.0


@dataclass(frozen=True)
class DemoServer:
    """A running server: its base URL, its log file and its process."""

    url: str
    log_path: Path
    pid: int

    @staticmethod
    @asynccontextmanager
    async def start(
        *,
        port: int = 0,
        slots: int = 4,
        context: int = 4096,
        metrics: bool = True,
        unified: bool = False,
        sleep: int | None = None,
        trained_context: int = 8192,
        start_seconds: float = START_SECONDS,
    ) -> AsyncIterator[DemoServer]:
        """Write the tiny model, start the server and wait until it is healthy; afterwards no process and no file is left.

        `port` 0 takes a free one. `context` is the server's whole context in tokens: each of the `slots` has its share of it, or all may use all
        of it if `unified`. `sleep` is the idle time in seconds after which the model is unloaded. Raises `DemoError` if the server does not come up."""
        with tempfile.TemporaryDirectory(prefix="inspector-demo-") as folder:
            model, log = Path(folder, "tiny.gguf"), Path(folder, "llama-server.log")
            await anyio.to_thread.run_sync(write_tiny_model, model, trained_context)
            options = ["--model", str(model), "--log", str(log), "--port", str(port), "--slots", str(slots), "--context", str(context), "--with-parent"]
            options += ["--metrics"] * metrics + ["--unified"] * unified
            if sleep is not None:
                options += ["--sleep", str(sleep)]
            async with _child(command(options)) as process:
                try:
                    with anyio.fail_after(start_seconds):
                        url = await _announced_url(process, log)
                        await _healthy(url)
                except TimeoutError:
                    raise DemoError(f"the demo's llama.cpp server was not ready after {start_seconds:g} s; its last words: {last_words(log)}") from None
                yield DemoServer(url, log, process.pid)


def command(options: Sequence[str]) -> list[str]:
    """The child's command line. `-P` keeps a folder of the caller's from standing in for an installed package."""
    return [sys.executable, "-P", "-m", "inspector.demo.server", *options]


def last_words(log: Path, most: int = 5) -> str:
    """The last lines of the server's log, for an error text."""
    try:
        lines = log.read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    return " / ".join(line.strip() for line in lines[-most:] if line.strip()) or "none"


@asynccontextmanager
async def _child(argv: Sequence[str]) -> AsyncIterator[anyio.abc.Process]:
    """The child, in a session of its own, so that Ctrl-C reaches it through us only. It ends when our end of its standard input closes: however we die."""
    process = await anyio.open_process(argv, stderr=None, start_new_session=True, env=_environment(os.environ))
    try:
        yield process
    finally:
        with anyio.CancelScope(shield=True):
            if process.returncode is None:
                process.terminate()
            with anyio.move_on_after(STOP_SECONDS):
                await process.wait()
            if process.returncode is None:
                process.kill()
            await process.aclose()


def _environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """Without settings of a real llama-server that the user's shell may hold."""
    return {name: value for name, value in inherited.items() if not name.startswith("LLAMA_")}


async def _announced_url(process: anyio.abc.Process, log: Path) -> str:
    """The URL that the child prints on its standard output once it listens."""
    assert process.stdout is not None  # noqa: S101 (it is a pipe)
    said = b""
    try:
        while not said.endswith(b"\n"):
            said += await process.stdout.receive(1024)
    except anyio.EndOfStream:
        code = await process.wait()
        raise DemoError(f"the demo's llama.cpp server ended with code {code}; its last words: {last_words(log)}") from None
    return said.decode().strip()


async def _healthy(url: str) -> None:
    async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=2.0) as client:
        while True:
            try:
                if (await client.get("/health")).status_code == 200:
                    return
            except httpx.TransportError:
                pass  # Not listening yet: the caller's deadline bounds the wait.
            await anyio.sleep(0.05)


# --- The child ----------------------------------------------------------------------------------------------------------------------


def main(argv: Sequence[str] | None = None) -> None:
    """Run llama.cpp's server until a signal comes or, with `--with-parent`, until standard input closes."""
    options = _parser().parse_args(argv)
    announce = os.fdopen(os.dup(1), "w")
    if options.log:
        _redirect_output(options.log)
    try:
        server = _serve(options)
    except (DemoError, RuntimeError) as error:
        sys.exit(f"inspector.demo.server: {error}")
    print(server.listening_address, file=announce, flush=True)
    try:
        if options.with_parent:
            sys.stdin.buffer.read()
        else:
            signal.pause()
    except KeyboardInterrupt:
        pass
    # Not by way of the server's destructor, which waits for running generations.
    os._exit(0)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m inspector.demo.server", description=main.__doc__, allow_abbrev=False)
    parser.add_argument("--model", required=True, help="a GGUF file")
    parser.add_argument("--port", type=int, default=0, help="on 127.0.0.1; 0 takes a free one")
    parser.add_argument("--slots", type=int, default=4, help="-1 lets the server choose")
    parser.add_argument("--context", type=int, default=4096, help="tokens of all slots together; 0 takes the model's trained context")
    parser.add_argument("--unified", action="store_true", help="one KV pool for all slots")
    parser.add_argument(
        "--unified-per-slot", type=int, default=0, metavar="TOKENS", help="size the one pool as TOKENS for each slot, and cap each request to TOKENS"
    )
    parser.add_argument("--batch", type=int, default=0, metavar="TOKENS", help="tokens of one decode call")
    parser.add_argument("--metrics", action="store_true", help="offer /metrics")
    parser.add_argument("--no-slots", action="store_true", help="do not offer /slots")
    parser.add_argument("--sleep", type=int, default=-1, metavar="SECONDS", help="unload the model after so many idle seconds")
    parser.add_argument("--verbosity", type=int, default=3, help="llama.cpp's log level; 4 shows the sizes of the KV cache")
    parser.add_argument("--log", default="", metavar="FILE", help="append the server's output to FILE")
    parser.add_argument("--with-parent", action="store_true", help="end when standard input closes")
    return parser


def _redirect_output(path: str) -> None:
    """Send what the C++ code writes to the descriptors, not only what Python prints."""
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)


def _serve(options: argparse.Namespace) -> Any:
    with needs_extra():
        import xllamacpp  # noqa: PLC0415 (an extra, and only the child may load it)
    params = xllamacpp.CommonParams()
    params.model.path = options.model
    params.hostnames = [HOST]
    params.port = options.port
    params.n_parallel = options.slots
    params.n_ctx = options.context
    params.kv_unified = options.unified or options.unified_per_slot > 0
    params.kv_unified_per_slot = options.unified_per_slot
    params.endpoint_metrics = options.metrics
    params.endpoint_slots = not options.no_slots
    params.sleep_idle_seconds = options.sleep
    params.verbosity = options.verbosity
    if options.batch:
        params.n_batch = params.n_ubatch = options.batch
    if key := os.environ.get(KEY_VARIABLE):
        params.api_keys = [key]
    # A demo shares the machine with what the user really runs.
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.n_gpu_layers = 0
    params.warmup = False
    params.ui = False
    return xllamacpp.Server(params)


if __name__ == "__main__":
    main()
