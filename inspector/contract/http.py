"""Routes that may be asked, and what came back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pydantic_core import from_json

from inspector.reading import Kind, Known, Origin, Reading, Reason, Unknown


class Deadline(StrEnum):
    """FAST routes answer at once on a healthy server; MAY_BLOCK ones can wait behind a decode, and their silence says busy, not down."""

    FAST = "fast"
    MAY_BLOCK = "may_block"


@dataclass(frozen=True, slots=True)
class Cadence:
    """How often a route is really asked: every `seconds`, 0 for every poll, None for once in a generation.

    Between, the kept reply is handed out with its own time."""

    seconds: float | None


POLL = Cadence(0.0)
GENERATION = Cadence(None)


@dataclass(frozen=True, slots=True)
class Route:
    """A path that may be asked with GET. `required` query parameters are always sent; an adapter may add those named in `allowed`, nothing else."""

    path: str
    required: tuple[tuple[str, str], ...] = ()
    allowed: frozenset[str] = frozenset()
    deadline: Deadline = Deadline.FAST
    every: Cadence = POLL


@dataclass(frozen=True, slots=True)
class Reply:
    """What a server answered, whatever the status. `headers` holds lower-case names of the few headers that the core passes on; `at` is Unix seconds."""

    route: Route
    status: int
    headers: Mapping[str, str]
    body: bytes
    at: float

    @property
    def origin(self) -> Origin:
        return Origin(Kind.HTTP, self.route.path, self.at)

    def json(self) -> Reading[Any]:
        """The body as JSON, or `invalid`: empty, truncated, too deeply nested, or of another kind."""
        if not self.body.strip():
            return Unknown(Reason.INVALID, f"{self.route.path} answered {self.status} with an empty body")
        try:
            return Known(from_json(self.body, cache_strings="none"), self.origin)
        except (ValueError, RecursionError, OverflowError):
            return Unknown(Reason.INVALID, f"{self.route.path} answered {self.status} with a body that is not JSON")
