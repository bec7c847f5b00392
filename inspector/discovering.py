"""The one task that looks for the model servers of this machine, where no target is named."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import anyio
import structlog

from inspector.config import Target
from inspector.metrics import OwnStatus
from inspector.watching import place_of

DISCOVER_EVERY = 15.0
"""Seconds between two looks."""

FORGET_AFTER = 300.0
"""Seconds for which a server that has gone is still watched, and so shown as unreachable."""

Discover = Callable[[], Awaitable[Sequence[Target]]]
Watch = Callable[[Sequence[Target]], Awaitable[None]]


class Discovering:
    """`discover` looks once; `watch` takes all that is to be watched from then on."""

    def __init__(self, discover: Discover, watch: Watch, own: OwnStatus, *, every: float = DISCOVER_EVERY, forget: float = FORGET_AFTER) -> None:
        self._discover = discover
        self._watch = watch
        self._own = own
        self._every = every
        self._forget = forget
        self._seen: dict[str, tuple[Target, float]] = {}
        self._log = structlog.get_logger()

    async def run(self) -> None:
        """Until cancelled."""
        await self._look()
        if not self._seen:
            self._log.warning("no model server found on this machine; looking again", every_seconds=self._every)
        while True:
            await anyio.sleep(self._every)
            await self._look()

    async def _look(self) -> None:
        now = anyio.current_time()
        for target in await self._found():
            if target.name not in self._seen:
                self._log.info("server found", target=target.name, address=target.url)
            self._seen[target.name] = target, now
        self._seen = {name: (target, last) for name, (target, last) in self._seen.items() if now - last < self._forget}
        await self._watch([target for target, _ in self._seen.values()])

    async def _found(self) -> Sequence[Target]:
        try:
            return await self._discover()
        except Exception as error:
            self._own.task_failures += 1
            self._log.error("looking for servers failed", error=type(error).__name__, place=place_of(error))
            return ()
