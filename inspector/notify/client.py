"""Alertmanager's v2 interface over HTTP: alerts are posted, and those of an earlier process read back. Every error becomes an outcome."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

import anyio
import httpx

from inspector.secrets import Secret

TIMEOUT = 10.0

LARGEST_BODY = 16 * 1024 * 1024
"""Bytes of an answer: some ten thousand alerts."""

PATH = "/api/v2/alerts"

TAKES_NONE = frozenset({400})
"""Statuses after which the same alerts are not sent again. The rest may be put right on the other side: a proxy, a password, a path."""

SHOWS_NONE = frozenset({301, 302, 303, 307, 308, 400, 403, 404, 405, 406, 410, 415, 422, 501})
"""Statuses of an Alertmanager behind a gate that lets alerts in and shows none."""


@dataclass(frozen=True, slots=True)
class Server:
    """An Alertmanager: its address, and how it is asked for permission. `password` goes with `username`."""

    url: str
    bearer_token: Secret | None = None
    username: str | None = None
    password: Secret | None = None


class Outcome(StrEnum):
    """`refused`: sending the same again is of no use. `failed`: it may be taken later."""

    TAKEN = "taken"
    REFUSED = "refused"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Answer:
    """`detail` says what went wrong, without what the server or the library said; `alerts` as they were read."""

    outcome: Outcome
    detail: str = ""
    alerts: Sequence[tuple[Mapping[str, Any], float]] = ()


class AlertmanagerClient:
    def __init__(self, server: Server, ssl_context: Callable[[], ssl.SSLContext], transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._url = server.url.rstrip("/") + PATH
        self._client = httpx.AsyncClient(
            transport=transport,
            auth=httpx.BasicAuth(server.username, server.password.get_secret_value() if server.password else "") if server.username else None,
            headers={"Accept-Encoding": "identity"} | ({"Authorization": f"Bearer {server.bearer_token.get_secret_value()}"} if server.bearer_token else {}),
            timeout=TIMEOUT,
            trust_env=False,
            # Trust in authorities takes memory: only where it is needed.
            verify=ssl_context() if server.url.startswith("https:") else False,
        )

    async def post(self, alerts: Sequence[Mapping[str, Any]]) -> Answer:
        """Tells alerts, as `Notice.payload` writes them."""
        answer = await self._ask("POST", json=alerts)
        return Answer(*answer) if isinstance(answer, tuple) else Answer(Outcome.TAKEN)

    async def active(self) -> Answer:
        """The alerts of our names that fire there, each with its labels and the Unix time of its start."""
        answer = await self._ask(
            "GET", final=SHOWS_NONE, params={"filter": 'alertname=~"Inspector.+"', "active": "true", "silenced": "true", "inhibited": "true"}
        )
        if isinstance(answer, tuple):
            return Answer(*answer)
        try:
            return Answer(Outcome.TAKEN, alerts=_read(json.loads(answer)))
        except (ValueError, KeyError, TypeError, AttributeError):
            return Answer(Outcome.REFUSED, "answered with something that is no list of alerts; is `alertmanager.url` the address of an Alertmanager?")

    async def aclose(self) -> None:
        await self._client.aclose()

    async def _ask(self, method: str, *, final: Set[int] = TAKES_NONE, **arguments: Any) -> bytes | tuple[Outcome, str]:
        """The body of an answer; one deadline and one size for all of it, and nothing is unpacked."""
        try:
            with anyio.fail_after(TIMEOUT):
                async with self._client.stream(method, self._url, **arguments) as response:
                    if response.is_success:
                        return await _body(response)
        except TimeoutError:
            return Outcome.FAILED, f"did not answer within {TIMEOUT:g} s"
        except httpx.HTTPError as error:
            return Outcome.FAILED, f"cannot be reached ({type(error).__name__})"
        outcome = Outcome.REFUSED if response.status_code in final else Outcome.FAILED
        return outcome, f"answered {response.status_code}"


async def _body(response: httpx.Response) -> bytes:
    """As it came, and no more than is worth reading: what is cut off is no list any more."""
    body = b""
    async for part in response.aiter_raw():
        body += part
        if len(body) > LARGEST_BODY:
            return b""
    return body


def _read(found: Any) -> list[tuple[Mapping[str, Any], float]]:
    if not isinstance(found, list):
        raise TypeError
    return [(dict(alert["labels"]), datetime.fromisoformat(alert["startsAt"]).timestamp()) for alert in found]
