"""The kinds of value in a configuration: durations, files, keys, names. Each is checked where it stands, so that an error names its field."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, PlainValidator, Strict, ValidationInfo

from inspector.address import parse_address, parse_listen
from inspector.reading import LARGEST_COUNT
from inspector.secrets import MASK, Secret, secret_from_environment, secret_from_file, why

T = TypeVar("T")

UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
LONGEST = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a configuration refers to: the folder that relative paths begin in, and the environment."""

    folder: Path = Path()
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)


@dataclass(frozen=True, slots=True)
class KeySource:
    """A key, and the file or environment variable that it was read from."""

    name: str
    key: Secret


@dataclass(frozen=True, slots=True)
class LogSource:
    """A server's log: a file by its path, or a unit of the journal."""

    kind: Literal["file", "journal"]
    name: str

    def __str__(self) -> str:
        return f"journal:{self.name}" if self.kind == "journal" else self.name


class Section(BaseModel):
    """A mapping of the file: frozen, strict about types, no unknown keys, and no input in error texts."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, hide_input_in_errors=True, allow_inf_nan=False)


def _surroundings(info: ValidationInfo) -> Surroundings:
    return info.context if isinstance(info.context, Surroundings) else Surroundings()


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("must be text; put it in quotes")  # noqa: TRY004 - pydantic collects ValueErrors only
    if not value:
        raise ValueError("must not be empty")
    return value


def _path(value: Any, info: ValidationInfo) -> Path:
    return _surroundings(info).folder / Path(_text(value)).expanduser()


def _readable_file(value: Any, info: ValidationInfo) -> Path:
    path = value if isinstance(value, Path) else _path(value, info)
    try:
        if not path.is_file():
            path.stat()  # Says why it is not there; what is there is a folder, or a pipe that could block.
            raise ValueError("is no file; name a file that the inspector's user may read")
        with path.open("rb") as file:
            file.read(1)
    except OSError as error:
        raise ValueError(f"cannot be read ({why(error)}); name a file that the inspector's user may read") from None
    return path


def _key_file(value: Any, info: ValidationInfo) -> KeySource:
    if isinstance(value, KeySource):
        return value
    path = _path(value, info)
    return KeySource(str(path), secret_from_file(path))


def _key_variable(value: Any, info: ValidationInfo) -> KeySource:
    return value if isinstance(value, KeySource) else KeySource(_text(value), secret_from_environment(value, _surroundings(info).environment))


def _log_source(value: Any, info: ValidationInfo) -> LogSource:
    if isinstance(value, LogSource):
        return value
    kind, colon, unit = _text(value).partition(":")
    if kind != "journal" or not colon:
        path = _path(value, info)
        if path.is_dir():
            raise ValueError("is a folder; name the file that the server's output goes to")
        return LogSource("file", str(path))
    if not re.fullmatch(r"[A-Za-z0-9:_.@\\-]+", unit):
        raise ValueError("names no unit of the journal; write journal:NAME.service")
    return LogSource("journal", unit)


SHORTEST_INTERVAL = 0.05
"""Seconds."""


def duration(value: Any) -> float | None:
    """Seconds, from a number or from text with a unit. Raises ValueError."""
    seconds = value
    if isinstance(value, str):
        match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?(ms|s|m|h)", value)
        seconds = float(match[1]) * UNITS[match[2]] if match else None
        if seconds is None:
            raise ValueError("is not a duration; write 5s, 500ms, 1m, or a number of seconds")
    if value is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise ValueError("is not a duration; write 5s, 500ms, 1m, or a number of seconds")  # noqa: TRY004 - pydantic collects ValueErrors only
    if not 0 < seconds <= LONGEST:
        raise ValueError("must be above zero and at most 24h")
    return float(seconds)


def interval(value: Any) -> float | None:
    """Seconds between two polls. Raises ValueError."""
    seconds = duration(value)
    if seconds is not None and seconds < SHORTEST_INTERVAL:
        raise ValueError(f"is too short for a server to be asked; take {SHORTEST_INTERVAL * 1000:.0f}ms or more")
    return seconds


def delay(value: Any) -> float | None:
    """A duration that may be none at all. Raises ValueError."""
    return 0.0 if value in (0, "0", "0s") and not isinstance(value, bool) else duration(value)


def _matching(pattern: str, message: str) -> AfterValidator:
    compiled = re.compile(pattern)

    def check(value: str) -> str:
        if not compiled.fullmatch(value) or not value.isprintable():
            raise ValueError(message)
        return value

    return AfterValidator(check)


def _url(value: str) -> str:
    parse_address(value)
    if value.rstrip("/").endswith("/v1"):
        raise ValueError(f"ends in /v1, which clients of the server add; write {value.rstrip('/').removesuffix('/v1')}")
    return value


def _web_url(value: str) -> str:
    if parse_address(value).socket is not None:
        raise ValueError("is a socket; write http://host:port")
    return value.rstrip("/")


def _listen(value: str) -> str:
    parse_listen(value)
    return value


REFUSED_HEADERS = frozenset(
    [
        *("accept-encoding", "connection", "content-encoding", "content-length", "content-type", "cookie", "expect", "keep-alive", "proxy-connection", "range"),
        *("te", "trailer", "transfer-encoding", "upgrade", "x-http-method", "x-http-method-override", "x-method-override"),
    ]
)
"""Headers that would change what a GET is, or how its answer comes."""


def _header_name(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", value):
        raise ValueError("is not the name of an HTTP header")
    if value.lower() in REFUSED_HEADERS:
        raise ValueError("is a header that the inspector does not send; it would change what is asked")
    return value


def _header_value(value: Secret) -> Secret:
    text = value.get_secret_value()
    if not text or text != text.strip() or not all(0x20 <= ord(character) <= 0x7E for character in text):
        raise ValueError("is not the value of an HTTP header; write one line of printable ASCII without spaces at the ends")
    return value


RESERVED_LABELS = {"target", "engine", "pool", "instance", "job", "adapter", "version"}


def _label_name(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", value):
        raise ValueError("is not a Prometheus label name; use letters, digits and underscores, no digit first")
    if value in RESERVED_LABELS or value.startswith("__"):
        raise ValueError("is a label name that the inspector or Prometheus uses itself; choose another")
    return value


Listed = Annotated[tuple[T, ...], Strict(strict=False)]
Text = Annotated[str, Field(min_length=1)]
Name = Annotated[str, _matching(r"""[^\s"'\\{}]{1,100}""", "is not a usable name; use 1 to 100 characters without spaces, quotes, braces and backslashes")]
SessionName = Annotated[str, _matching(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}", "is not a usable name; use 1 to 64 letters, digits, dots, dashes and underscores")]
EngineName = Annotated[str, _matching(r"[a-z][a-z0-9_-]{0,63}", "is not the name of an engine; see: inspector adapters")]
Duration = Annotated[float, BeforeValidator(duration)]
Delay = Annotated[float, BeforeValidator(delay)]
MaybeInterval = Annotated[float | None, BeforeValidator(interval)]
Tokens = Annotated[int, Field(ge=1, le=LARGEST_COUNT)]
Bytes = Annotated[int, Field(ge=1, le=LARGEST_COUNT)]
Share = Annotated[float, Field(ge=0, le=1)]
Url = Annotated[str, AfterValidator(_url)]
WebUrl = Annotated[str, AfterValidator(_web_url)]
ListenAddress = Annotated[str, AfterValidator(_listen)]
ReadableFile = Annotated[Path, PlainValidator(_readable_file), PlainSerializer(str)]
KeyFile = Annotated[KeySource, PlainValidator(_key_file), PlainSerializer(lambda source: source.name)]
KeyVariable = Annotated[KeySource, PlainValidator(_key_variable), PlainSerializer(lambda source: source.name)]
Log = Annotated[LogSource, PlainValidator(_log_source), PlainSerializer(str)]
HeaderName = Annotated[str, AfterValidator(_header_name)]
HeaderValue = Annotated[Secret, AfterValidator(_header_value)]
LabelName = Annotated[str, AfterValidator(_label_name)]
LabelValue = Annotated[str, _matching(r".{0,200}", "is not usable as a label value; use at most 200 printable characters")]
HiddenList = Annotated[Listed[Text], PlainSerializer(lambda arguments: f"({len(arguments)} arguments, hidden)")]
HiddenMapping = Annotated[dict[Text, str], PlainSerializer(lambda variables: dict.fromkeys(variables, MASK))]
