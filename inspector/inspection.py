"""What the operating system says of one server process: its memory, and for adapters that want it, its connections and its package's version."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from inspector.contract import Adapter, FlagTable, LaunchView, LooksAtProcess, ProcessView, ReadsLaunch
from inspector.generation import NOT_LOOKED_AT, Seen
from inspector.launch import server_argv, settings, values_of
from inspector.local.connections import connections_of
from inspector.local.files import environ_of
from inspector.local.installed import installed_version
from inspector.local.memory import memory_of
from inspector.local.model_config import ModelConfig, model_config
from inspector.local.process import Process
from inspector.local.weights import NOT_NAMED, model_folder, weights_of
from inspector.reading import Reading, Reason, Unknown


def launch_of(process: Process, table: FlagTable, now: float) -> LaunchView | Unknown:
    """The launch settings of a running process."""
    arguments = server_argv(process.argv, table)
    if arguments is None:
        return Unknown(Reason.NO_SOURCE, f"the command line of process {process.pid} is not that of this engine's server: name another one, or state `facts`")
    environ = process.environ
    view = settings(arguments, {} if isinstance(environ, Unknown) else environ, table, path=f"pid {process.pid}", live=True, at=now)
    return replace(view, missing=environ.detail) if isinstance(environ, Unknown) else view


class Inspection:
    """Looks at one process for the length of its life; `port` is that of the target's address. Files are read at the first look only."""

    def __init__(self, process: Process, port: int, adapter: Adapter[Any]) -> None:
        self._process = process
        self._port = port
        self._adapter = adapter
        self._weights: Reading[int] | None = None
        self._version: Reading[str] | None = None
        self._config = ModelConfig()

    def look(self, now: float) -> Seen:
        """Blocking, some milliseconds; never raises."""
        if self._weights is None:
            named = self._named()
            self._weights = weights_of(self._process, named, now)
            self._config = model_config(model_folder(self._process, named[0]) if named else NOT_NAMED, now)
        return Seen(self._view(now), memory_of(self._process.pid, self._weights, now))

    def _view(self, now: float) -> ProcessView | Unknown:
        if not isinstance(self._adapter, LooksAtProcess):
            return NOT_LOOKED_AT
        if self._version is None:
            self._version = installed_version(self._process, self._adapter.package, now)
        pid = self._process.pid
        return ProcessView(pid, connections_of(pid, self._port, now), self._version, self._config.type, self._config.context)

    def _named(self) -> tuple[str, ...]:
        """Paths or repositories of what the launch settings load, the model first."""
        if not isinstance(self._adapter, ReadsLaunch):
            return ()
        table = self._adapter.flags
        arguments = server_argv(self._process.argv, table)
        return () if arguments is None else values_of(arguments, environ_of(self._process), table, table.weights)
