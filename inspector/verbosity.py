"""How the journal is written: the words of `--log-format` and `--log-level`."""

from __future__ import annotations

from enum import StrEnum


class Format(StrEnum):
    AUTO = "auto"
    HUMAN = "human"
    JSON = "json"


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
