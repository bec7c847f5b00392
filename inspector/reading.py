"""Readings: a measured value with its origin, or an unknown with its reason.

Nothing in this project stands for a value that was not measured: there is no default, no zero, no last known figure.
A computation over readings is known only if all of them are (`derive`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, TypeAlias, TypeVar, overload

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")

Bounds: TypeAlias = tuple[float | None, float | None]
"""(lowest, highest) value that the evidence allows; None is no bound on that side."""

LARGEST_COUNT = 2**63 - 1
"""No engine counts further: a larger whole number is a broken payload."""


class Kind(StrEnum):
    """Where a value came from."""

    HTTP = "http"
    LOG = "log"
    LAUNCH = "launch"
    OPERATOR = "operator"
    SYSTEM = "system"
    """This machine's operating system: memory, sockets, installed files."""
    DERIVED = "derived"


class Reason(StrEnum):
    """Why a value is unknown: a closed list, so that alerts and tables may rest on it."""

    NOT_OFFERED = "not_offered"
    ENDPOINT_DISABLED = "endpoint_disabled"
    UNAUTHORIZED = "unauthorized"
    UNREACHABLE = "unreachable"
    TIMEOUT = "timeout"
    LOADING = "loading"
    SLEEPING = "sleeping"
    WOULD_WAKE = "would_wake"
    STALLED = "stalled"
    NOT_REPORTED = "not_reported"
    INVALID = "invalid"
    NO_SOURCE = "no_source"
    AMBIGUOUS = "ambiguous"
    STALE = "stale"
    DERIVED_FROM_UNKNOWN = "derived_from_unknown"


@dataclass(frozen=True, slots=True)
class Origin:
    """Kind of source, what exactly was read (a route, a log's or a file's base name, a field list), and when (Unix seconds)."""

    kind: Kind
    path: str
    at: float

    def __str__(self) -> str:
        return f"{self.kind}:{self.path}" if self.path else str(self.kind)


@dataclass(frozen=True, slots=True)
class Known(Generic[T_co]):
    """A value that was measured or stated."""

    value: T_co
    origin: Origin


@dataclass(frozen=True, slots=True)
class Unknown:
    """A value that was not measured: the reason, one sentence that tells the operator what to do, and bounds where evidence gives them."""

    reason: Reason
    detail: str
    bounds: Bounds | None = None


Reading: TypeAlias = Known[T] | Unknown

NOT_OFFERED = Unknown(Reason.NOT_OFFERED, "this engine does not offer it")


@overload
def derive(f: Callable[[A], T], a: Reading[A], /, *, path: str = ...) -> Reading[T]: ...
@overload
def derive(f: Callable[[A, B], T], a: Reading[A], b: Reading[B], /, *, path: str = ...) -> Reading[T]: ...
@overload
def derive(f: Callable[[A, B, C], T], a: Reading[A], b: Reading[B], c: Reading[C], /, *, path: str = ...) -> Reading[T]: ...
@overload
def derive(f: Callable[[A, B, C, D], T], a: Reading[A], b: Reading[B], c: Reading[C], d: Reading[D], /, *, path: str = ...) -> Reading[T]: ...
def derive(f: Callable[..., Any], /, *readings: Reading[Any], path: str = "") -> Reading[Any]:
    """`f` of the values, known only if all readings are; as old as the oldest of them. An unknown carries the first cause on."""
    values = []
    oldest = math.inf
    for reading in readings:
        if isinstance(reading, Unknown):
            return from_unknown(reading)
        values.append(reading.value)
        oldest = min(oldest, reading.origin.at)
    sources = path or ",".join(dict.fromkeys(str(r.origin) for r in readings if isinstance(r, Known)))
    return Known(f(*values), Origin(Kind.DERIVED, sources, oldest))


def from_unknown(cause: Unknown) -> Unknown:
    """The unknown of a value that is computed from `cause`."""
    if cause.reason in (Reason.DERIVED_FROM_UNKNOWN, Reason.NOT_OFFERED):
        return cause
    return Unknown(Reason.DERIVED_FROM_UNKNOWN, f"{cause.detail} ({cause.reason})")


def first_known(*readings: Reading[T]) -> Reading[T]:
    """The first known reading in order of trust; if none is known, the first unknown that says more than `not_offered` or `no_source`."""
    for reading in readings:
        if isinstance(reading, Known):
            return reading
    unknowns = [r for r in readings if isinstance(r, Unknown)]
    telling = [u for u in unknowns if u.reason not in (Reason.NOT_OFFERED, Reason.NO_SOURCE)]
    return (telling or unknowns or [NOT_OFFERED])[0]


def invalid(what: str, value: object) -> Unknown:
    """The unknown of a payload's value that cannot be what it claims. The value itself is not repeated: it may be a secret."""
    return Unknown(Reason.INVALID, f"{what} is {_shape(value)}")


def count(value: object, origin: Origin, what: str) -> Reading[int]:
    """A whole number, zero or more; a float counts only if it is whole."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return invalid(what, value)
    if isinstance(value, float):
        if not math.isfinite(value) or value != int(value):
            return invalid(what, value)
        value = int(value)
    if not 0 <= value <= LARGEST_COUNT:
        return invalid(what, value)
    return Known(value, origin)


def positive(value: object, origin: Origin, what: str) -> Reading[int]:
    """A whole number above zero: a context, a slot count, a size."""
    reading = count(value, origin, what)
    if isinstance(reading, Known) and reading.value == 0:
        return Unknown(Reason.INVALID, f"{what} is zero where there must be some")
    return reading


def number(value: object, origin: Origin, what: str) -> Reading[float]:
    """A finite number, zero or more: seconds, sums."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return invalid(what, value)
    if isinstance(value, int) and abs(value) > LARGEST_COUNT:
        return invalid(what, value)
    if not math.isfinite(value) or value < 0:
        return invalid(what, value)
    return Known(float(value), origin)


def ratio(value: object, origin: Origin, what: str) -> Reading[float]:
    """A share between 0 and 1."""
    reading = number(value, origin, what)
    if isinstance(reading, Known) and reading.value > 1:
        return Unknown(Reason.INVALID, f"{what} is above 1 where a share is expected")
    return reading


def flag(value: object, origin: Origin, what: str) -> Reading[bool]:
    """A boolean, nothing that merely looks like one."""
    return Known(value, origin) if isinstance(value, bool) else invalid(what, value)


def text(value: object, origin: Origin, what: str, longest: int = 200) -> Reading[str]:
    """A printable string of at most `longest` characters, not empty."""
    if not isinstance(value, str) or not value.strip() or len(value) > longest or not value.isprintable():
        return invalid(what, value)
    return Known(value, origin)


def _shape(value: object) -> str:
    """What kind of thing a refused value is, without its content."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean where none is expected"
    if isinstance(value, int | float):
        if isinstance(value, float) and not math.isfinite(value):
            return "not a finite number"
        return "negative" if value < 0 else "out of range"
    if isinstance(value, str):
        return "text that is not usable"
    return "a list" if isinstance(value, list) else "an object" if isinstance(value, dict) else "of an unexpected type"
