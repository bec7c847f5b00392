"""`inspector serve`: the daemon in the foreground."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import anyio
import structlog

from inspector.cli.ending import leave_stuck_threads
from inspector.cli.refusal import RefusedError
from inspector.cli.targets import discover, refused
from inspector.config import Config, ConfigError, from_targets, load
from inspector.daemon import Daemon
from inspector.journal import Secrets, set_up
from inspector.registry import Registry, load_adapters
from inspector.server import ListenError, bind
from inspector.verbosity import Format, LogLevel
from inspector.wiring import jobs, secrets_of


def serve(words: Sequence[str], file: Path | None, listen: str | None, log_format: Format, log_level: LogLevel) -> int:
    """Runs until SIGINT or SIGTERM. Raises RefusedError for what is typed or configured wrong, and when the address is taken."""
    if words and file is not None:
        raise RefusedError(["give the targets either on the command line or in the file, not both"])

    def configured() -> Config:
        config = load(file, engines=adapters.adapters) if file is not None else from_targets(words)
        return config.with_listen(listen) if listen is not None else config

    adapters = load_adapters()
    try:
        config = configured()
        jobs(config, adapters.adapters)
        listener = bind(*config.listen_address)
    except ConfigError as error:
        raise refused(error) from error
    except ListenError as error:
        raise RefusedError([str(error)], exit_code=1) from error
    secrets = Secrets(secrets_of(config))
    set_up(secrets, log_format, log_level)
    _tell_broken(adapters)

    find = partial(anyio.to_thread.run_sync, discover, adapters)
    daemon = Daemon(config, adapters, secrets, listener, load=configured if file is not None else None, discover=None if words or file is not None else find)
    gc.collect()
    gc.freeze()  # What was imported stays: the collector need not walk it again and again.
    anyio.run(daemon.run)
    leave_stuck_threads()
    return 0


def _tell_broken(adapters: Registry) -> None:
    for broken in adapters.broken:
        structlog.get_logger().warning("adapter not usable", adapter=broken.name, distribution=broken.distribution, problem=broken.problem)
