"""`inspector demo`: a real llama.cpp server with a tiny model, a little load on it, and the inspector on top."""

from __future__ import annotations

import signal
import socket
import sys
import time

import anyio

from inspector.board import Entry
from inspector.cli.refusal import RefusedError
from inspector.cli.targets import refused
from inspector.cli.telling import Terminal
from inspector.config import Config, ConfigError, Poll, Target
from inspector.daemon import Daemon
from inspector.demo import DemoError
from inspector.demo.load import run_load
from inspector.demo.server import DemoServer
from inspector.journal import Secrets, set_up
from inspector.reading import Known
from inspector.registry import Registry, load_adapters
from inspector.server import ListenError, address_of, bind
from inspector.verbosity import LogLevel

SLOTS = 4
SESSIONS = 2
PROMPT_TOKENS = 200
OUTPUT_TOKENS = 600
LOOKS = 40
"""Looks at the board, five a second, after which the summary is shown even if the load has not shown up yet."""


def demo(seconds: float | None, listen: str | None) -> int:
    """Runs for `seconds`, or until SIGINT or SIGTERM. Raises RefusedError when the port is taken or the engine does not start."""
    try:
        config = Config() if listen is None else Config().with_listen(listen)
        listener = bind(*config.listen_address)
    except ConfigError as error:
        raise refused(error) from error
    except ListenError as error:
        raise RefusedError([str(error)], exit_code=1) from error
    set_up(Secrets(), level=LogLevel.WARNING)
    _say("Starting llama.cpp's server with a tiny model …")
    try:
        with listener:
            anyio.run(_run, config, load_adapters(), listener, seconds)
    except DemoError as error:
        raise RefusedError([str(error)], exit_code=1) from error
    return 0


async def _run(config: Config, adapters: Registry, listener: socket.socket, seconds: float | None) -> None:
    # Until the daemon listens to signals: SIGTERM must not leave the server's files behind, so it ends the start as Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    async with DemoServer.start(slots=SLOTS) as server, anyio.create_task_group() as tasks:
        target = Target.model_validate({"name": "demo", "engine": "llamacpp", "url": server.url, "logs": str(server.log_path)})
        watched = config.model_copy(update={"targets": (target,), "poll": Poll(interval=1.0)})
        daemon = Daemon(watched, adapters, Secrets(), listener)
        tasks.start_soon(_load, server.url)
        tasks.start_soon(_summarize, daemon, f"http://{address_of(listener)}", server.url)
        with anyio.move_on_after(seconds) if seconds is not None else anyio.CancelScope():
            await daemon.run()
        tasks.cancel_scope.cancel()
    _say("The demo has ended; nothing of it is left.")


async def _load(url: str) -> None:
    await run_load(url, sessions=SESSIONS, prompt_tokens=PROMPT_TOKENS, output_tokens=OUTPUT_TOKENS, seconds=float("inf"), most_requests=10**9)


async def _summarize(daemon: Daemon, inspector: str, server: str) -> None:
    """Where to look; then, once the load shows, what is known, what is unknown, and why."""
    _say(
        f"A llama.cpp server with {SLOTS} slots answers at {server}, {SESSIONS} sessions keep it busy, and the inspector watches it:\n"
        f"  status page   {inspector}/\n"
        f"  Prometheus    {inspector}/metrics\n"
        f"  JSON          {inspector}/api/v1/targets\n"
        f"  how it knows  inspector explain llamacpp={server}\n"
        "Ctrl-C ends all of it. In a moment: what the inspector knows, and what it does not know and why.\n"
    )
    for _ in range(LOOKS):
        await anyio.sleep(0.2)
        if any(_is_under_load(entry) for entry in daemon.board.entries()):
            break
    terminal = Terminal()
    for entry in daemon.board.entries():
        terminal.target(entry, time.time(), every_field=True)
    sys.stdout.flush()


def _is_under_load(entry: Entry) -> bool:
    pools = entry.snapshot.pools if entry.snapshot else ()
    return any(isinstance(pool.kv_used_tokens, Known) and pool.kv_used_tokens.value > 0 for pool in pools)


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
