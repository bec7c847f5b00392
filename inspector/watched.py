"""What is polled: what the collector has to know of a target, and where the target's facts come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from inspector.asking import Get
from inspector.contract import Adapter, FlagTable, LaunchView, LogPattern
from inspector.follow import Follower
from inspector.local.process import Process
from inspector.reading import Reason, Unknown

NO_LAUNCH_FILE = Unknown(Reason.NO_SOURCE, "no launch file is named for this target")


@dataclass(frozen=True, slots=True)
class Watched:
    """What the collector has to know of a target. Times in seconds.

    `adapter` None: the engine is recognized at first contact. `interval` None: the adapter's. `has_key`: a key is sent with each request.
    `names_process`: the operator named the server's process, so that one which cannot be looked at leaves something unknown.
    """

    name: str
    adapter: Adapter[Any] | None = None
    interval: float | None = None
    timeout: float = 3.0
    stalled_after: float = 60.0
    may_wake: bool = False
    may_scrape: bool = True
    has_key: bool = False
    names_process: bool = False
    stated: Mapping[str, Any] = field(default_factory=dict)


class Sources(Protocol):
    """Where a target's facts come from. Only `get` touches the server."""

    @property
    def get(self) -> Get: ...

    def follower(self, patterns: tuple[LogPattern, ...]) -> Follower | None:
        """A follower of the target's log; None when no log is configured."""

    def find_process(self, table: FlagTable | None) -> Process | Unknown:
        """The server's process, where it is on this machine; one that was not named must be the table's server. Blocking, a few milliseconds."""

    def launch_file(self, table: FlagTable) -> LaunchView | Unknown:
        """Settings of the launch file, or of the argv, that the operator named."""
