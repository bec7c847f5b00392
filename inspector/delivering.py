"""The one task that tells an Alertmanager, begun anew when the configuration names another one."""

from __future__ import annotations

from collections.abc import Callable

import anyio
import structlog
from anyio.abc import TaskGroup

from inspector.alerting import Alerting
from inspector.config import Alertmanager
from inspector.metrics import OwnStatus
from inspector.notify import AlertmanagerClient, Notifier
from inspector.watching import RESTART_DELAY, place_of


class Delivering:
    """`client` makes what talks to an Alertmanager."""

    def __init__(self, tasks: TaskGroup, alerting: Alerting, own: OwnStatus, client: Callable[[Alertmanager], AlertmanagerClient]) -> None:
        self._tasks = tasks
        self._alerting = alerting
        self._own = own
        self._client = client
        self._told: Alertmanager | None = None
        self._scope = anyio.CancelScope()

    def tell(self, server: Alertmanager | None) -> None:
        """From now on this one is told, or nobody. One that stays the same goes on undisturbed."""
        if server == self._told:
            return
        self._told = server
        self._scope.cancel()
        self._scope = anyio.CancelScope()
        self._alerting.listener = None
        self._own.deliveries = None
        if server is not None:
            self._tasks.start_soon(self._keep_telling, server, self._scope)

    async def _keep_telling(self, server: Alertmanager, scope: anyio.CancelScope) -> None:
        """The one place where a bug of the delivery ends: it is counted and told, and what fires is told anew."""
        with scope:
            while True:
                try:
                    notifier = Notifier(self._client(server), self._alerting.inherit, resend=server.resend)
                    self._alerting.listener, self._own.deliveries = notifier, notifier.deliveries
                    await notifier.run()
                except Exception as error:
                    self._own.task_failures += 1
                    structlog.get_logger().error("delivery of alerts failed", error=type(error).__name__, place=place_of(error))
                await anyio.sleep(RESTART_DELAY)
