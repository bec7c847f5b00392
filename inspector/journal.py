"""The journal: structured log on stderr, one event for each change of a target's state, secrets masked in whatever is written."""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TextIO

import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor

from inspector.model import POOL_FIELDS, Snapshot, State
from inspector.reading import NOT_OFFERED, Known, Unknown
from inspector.verbosity import Format, LogLevel

MASK = "***"

SHORTEST_SECRET = 4
"""Shorter texts are not masked: they would blank out ordinary words and give the secret away by where the holes are."""


class Secrets:
    """Texts that must never be written: API keys, tokens, header values."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets: set[str] = set()
        self.add(*secrets)

    def add(self, *secrets: str) -> None:
        self._secrets.update(s for s in secrets if len(s) >= SHORTEST_SECRET)

    def masked(self, value: Any) -> Any:
        """The value with every secret inside it replaced, in nested lists and mappings as well."""
        match value:
            case str():
                # The longest first: a secret may be part of another.
                for secret in sorted(self._secrets, key=len, reverse=True):
                    value = value.replace(secret, MASK)
                return value
            case None | bool() | int() | float():
                return value
            case Mapping():
                return {self.masked(str(k)): self.masked(v) for k, v in value.items()}
            case list() | tuple() | set() | frozenset():
                return [self.masked(v) for v in value]
            case _:
                return self.masked(str(value))

    def __call__(self, _logger: Any, _method: str, event: EventDict) -> EventDict:
        """As a structlog processor."""
        return {key: self.masked(value) for key, value in event.items()}


def set_up(secrets: Secrets, log_format: Format = Format.AUTO, level: LogLevel = LogLevel.INFO, stream: TextIO | None = None) -> None:
    """Sends our events and those of the libraries to `stream` (stderr): for people on a terminal, as JSON lines otherwise."""
    stream = stream or sys.stderr
    terminal = stream.isatty()
    human = log_format is Format.HUMAN or (log_format is Format.AUTO and terminal)
    threshold = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=[*_common(human), secrets, _renderer(human, colors=terminal and not os.environ.get("NO_COLOR"))],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=structlog.PrintLoggerFactory(stream),
        cache_logger_on_first_use=False,
    )
    logging.basicConfig(handlers=[_Passing()], level=max(threshold, logging.WARNING), force=True)


def _common(human: bool) -> list[Processor]:
    return [
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="%H:%M:%S" if human else "iso", utc=not human),
        structlog.processors.format_exc_info,
    ]


def _renderer(human: bool, colors: bool) -> Processor:
    if human:
        return structlog.dev.ConsoleRenderer(colors=colors, pad_event_to=36)
    return structlog.processors.JSONRenderer(ensure_ascii=False)


class _Passing(logging.Handler):
    """Hands what libraries log through the standard library on to our own journal: one line each, masked, an exception as its type and place.

    No traceback: it shows folders of this machine. What a client of our web server got wrong is a debug event, or strangers could fill the journal."""

    def emit(self, record: logging.LogRecord) -> None:
        logger: FilteringBoundLogger = structlog.get_logger()
        error = record.exc_info[1] if record.exc_info else None
        told = {"logger": record.name} | ({} if error is None else {"error": type(error).__name__, "at": _place(error)})
        level = logging.DEBUG if _is_clients_mistake(record, error) else record.levelno
        logger.log(level, record.getMessage().partition("\n")[0], **told)


def _is_clients_mistake(record: logging.LogRecord, error: BaseException | None) -> bool:
    return (
        type(error).__module__.startswith("h11.")
        or type(error).__name__ == "ClientDisconnect"
        or (record.name == "uvicorn.error" and record.getMessage() == "Invalid HTTP request received.")
    )


def _place(error: BaseException) -> str:
    """FILE:LINE of where an exception was raised, base name only."""
    frames = list(traceback.walk_tb(error.__traceback__))
    return f"{os.path.basename(frames[-1][0].f_code.co_filename)}:{frames[-1][1]}" if frames else "?"  # noqa: PTH119 (text, not a file)


class Changes:
    """Tells what changed between two snapshots of a target, one event a change; an uneventful poll is a debug event."""

    def __init__(self, logger: FilteringBoundLogger | None = None) -> None:
        self._logger: FilteringBoundLogger = logger or structlog.get_logger()
        self._states: dict[str, State] = {}
        self._fields: dict[str, Mapping[tuple[str, str], Unknown | None]] = {}

    def note(self, snapshot: Snapshot) -> None:
        """Call once for each new snapshot, in order."""
        self._logger.debug("polled", target=snapshot.target, state=str(snapshot.state), seconds=round(snapshot.duration, 4))
        self._note_state(snapshot)
        if snapshot.state is State.READY:
            self._note_fields(snapshot)

    def forget(self, target: str) -> None:
        self._states.pop(target, None)
        self._fields.pop(target, None)

    def _note_state(self, snapshot: Snapshot) -> None:
        before = self._states.get(snapshot.target)
        if before is snapshot.state:
            return
        self._states[snapshot.target] = snapshot.state
        log = self._logger.info if snapshot.state in (State.READY, State.SLEEPING, State.LOADING) else self._logger.warning
        facts = {"target": snapshot.target, "state": str(snapshot.state), "engine": snapshot.engine}
        if before is not None:
            facts["before"] = str(before)
        if isinstance(snapshot.version, Known):
            facts["version"] = snapshot.version.value
        if snapshot.state_detail:
            facts["detail"] = snapshot.state_detail
        log("target state", **facts)

    def _note_fields(self, snapshot: Snapshot) -> None:
        before, now = self._fields.get(snapshot.target), dict(_offered(snapshot))
        self._fields[snapshot.target] = now
        if before is None:
            unknown = [f"{name} ({reading.reason})" for (_, name), reading in now.items() if reading is not None]
            self._logger.info("target fields", target=snapshot.target, known=len(now) - len(unknown), unknown=unknown)
            return
        for (pool, name), reading in now.items():
            was = before.get((pool, name), reading)
            if reading is not None and was is None:
                self._logger.warning("field unknown", target=snapshot.target, pool=pool, field=name, reason=str(reading.reason), detail=reading.detail)
            elif reading is None and was is not None:
                self._logger.info("field known", target=snapshot.target, pool=pool, field=name)


def _offered(snapshot: Snapshot) -> Iterator[tuple[tuple[str, str], Unknown | None]]:
    """Each offered field of each pool: None where it is known, else its unknown."""
    for pool in snapshot.pools:
        for name in POOL_FIELDS:
            reading = pool.reading(name)
            if reading != NOT_OFFERED:
                yield (pool.id, name), reading if isinstance(reading, Unknown) else None
