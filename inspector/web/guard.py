"""What stands before every route: the bearer token where one is configured, and headers that keep browsers from doing more than showing."""

from __future__ import annotations

import hmac
from collections.abc import Callable

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

OPEN_PATHS = frozenset({"/-/healthy", "/-/ready"})
"""For the probes of an orchestrator, which hold no token. They tell nothing about a target."""

HEADERS = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store"}


class Guard:
    """ASGI middleware. `token` gives the bearer token that is asked for now, None when none is."""

    def __init__(self, app: ASGIApp, token: Callable[[], str | None]) -> None:
        self._app = app
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        app = self._app if self._allows(scope) else _refusal
        await app(scope, receive, send_with_headers)

    def _allows(self, scope: Scope) -> bool:
        token = self._token()
        if token is None or scope["path"] in OPEN_PATHS:
            return True
        scheme, _, given = Headers(scope=scope).get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), token.encode())


async def _refusal(scope: Scope, receive: Receive, send: Send) -> None:
    response = PlainTextResponse("a bearer token is needed\n", 401, headers={"WWW-Authenticate": 'Bearer realm="inspector"'})
    await response(scope, receive, send)
