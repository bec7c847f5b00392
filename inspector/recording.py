"""Remembers what was asked of a server and what came back, for `inspector explain`. Replies are kept masked."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from inspector.asking import Get
from inspector.contract import Reply, Route
from inspector.masking import masked_body, masked_headers, telling
from inspector.reading import Unknown


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request and its reply, which took `seconds`. Without a reply `status` is None and `failure` says why; `body` is None where it may not be shown.

    `size` is the number of bytes of the body."""

    path: str
    query: str
    with_key: bool
    seconds: float
    status: int | None = None
    headers: Mapping[str, str] | None = None
    size: int = 0
    body: str | None = None
    failure: Unknown | None = None

    @property
    def target(self) -> str:
        """Path and query."""
        return f"{self.path}?{self.query}" if self.query else self.path


class Recorder:
    """A `Get` that remembers what it passes on."""

    def __init__(self, get: Get) -> None:
        self._get = get
        self.exchanges: list[Exchange] = []

    async def __call__(self, route: Route, query: Mapping[str, str], /, *, deadline: float, send_key: bool = True) -> Reply | Unknown:
        began = time.perf_counter()
        reply = await self._get(route, query, deadline=deadline, send_key=send_key)
        asked: dict[str, Any] = {
            "path": route.path,
            "query": urlencode([(name, telling(value)) for name, value in [*route.required, *query.items()]]),
            "with_key": send_key,
            "seconds": time.perf_counter() - began,
        }
        if isinstance(reply, Unknown):
            self.exchanges.append(Exchange(**asked, failure=reply))
        else:
            shown = masked_body(reply.body)
            self.exchanges.append(Exchange(**asked, status=reply.status, headers=masked_headers(reply.headers), size=len(reply.body), body=shown))
        return reply
