"""The routes. Everything but a probe only reads the board."""

from __future__ import annotations

import gzip
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import anyio
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from inspector.board import Board, Entry
from inspector.metrics import OwnStatus, registry
from inspector.report import targets_report
from inspector.web.guard import Guard

if TYPE_CHECKING:
    from inspector.web.page import Page

SCRAPE_TIMEOUT = "X-Prometheus-Scrape-Timeout-Seconds"

SCRAPE_MARGIN = 0.5
"""Seconds of a scrape's time that are left for the answer to travel."""

SMALLEST_GZIP = 1000
"""Bytes below which compression saves nothing."""

REFRESH = 5


@dataclass(frozen=True, slots=True)
class Services:
    """What the daemon does for the web. `probe` polls a target and puts the result on the board; False for a name that is not watched.

    `missing` says what the daemon still waits for, "" when it is ready. `reload` loads the configuration and returns its problems, none when it was taken;
    it is None where reloading over HTTP is off. `token` is the bearer token that is asked for, None when none is.
    """

    probe: Callable[[str], Awaitable[bool]]
    missing: Callable[[], str]
    reload: Callable[[], Awaitable[Sequence[str]]] | None = None
    token: Callable[[], str | None] = lambda: None
    own: OwnStatus = field(default_factory=OwnStatus)


def application(board: Board, services: Services, *, slot_series: bool = False) -> Starlette:
    """The ASGI application over a board."""
    web = _Web(board, services, slot_series)
    routes = [
        Route("/", web.status),
        Route("/metrics", web.metrics),
        Route("/probe", web.probe),
        Route("/api/v1/targets", web.targets),
        Route("/sd", web.service_discovery),
        Route("/-/healthy", web.healthy),
        Route("/-/ready", web.ready),
        Route("/-/reload", web.reload, methods=["POST"]),
    ]
    return Starlette(routes=routes, middleware=[Middleware(Guard, token=services.token)])


class _Web:
    def __init__(self, board: Board, services: Services, slot_series: bool) -> None:
        self._board = board
        self._services = services
        self._slot_series = slot_series
        self._registry = registry(board, services.own, slot_series=slot_series)

    @cached_property
    def _page(self) -> Page:
        """Made when it is first looked at: the template library takes memory that a daemon without visitors need not hold."""
        from inspector.web.page import Page  # noqa: PLC0415

        return Page()

    async def status(self, request: Request) -> Response:
        wanted = request.query_params.getlist("target")
        html = self._page.render(self._entries(wanted), time.time(), REFRESH, wanted, list(troubles(self._services.own)))
        return HTMLResponse(html, headers={"Content-Security-Policy": self._page.policy})

    async def metrics(self, request: Request) -> Response:
        return exposition(self._registry, request)

    async def probe(self, request: Request) -> Response:
        """A fresh poll of one target. Names only, never an address: otherwise whoever reaches us could send requests, and keys, anywhere."""
        name = request.query_params.get("target")
        if name is None:
            return PlainTextResponse("a target is needed: /probe?target=NAME\n", 400)
        if self._board.entry(name) is None:
            return PlainTextResponse("there is no target of this name in the configuration\n", 400)
        try:
            seconds = time_left(request.headers.get(SCRAPE_TIMEOUT))
        except ValueError:
            return PlainTextResponse(f"{SCRAPE_TIMEOUT} is not a number of seconds\n", 400)
        try:
            with anyio.fail_after(seconds):
                known = await self._services.probe(name)
        except TimeoutError:
            # Not the board's older snapshot: a probe promises a fresh one.
            return PlainTextResponse(f"the poll did not end within {seconds:g} s; raise scrape_timeout, or lower poll.timeout\n", 504)
        if not known:
            return PlainTextResponse("this target was removed meanwhile\n", 400)
        return exposition(registry(self._board, target=name, slot_series=self._slot_series), request)

    async def targets(self, request: Request) -> Response:
        wanted = request.query_params.getlist("target")
        entries = self._entries(wanted)
        if len(entries) < len(set(wanted)):
            return JSONResponse({"error": "there is no target of this name"}, 404)
        return JSONResponse(targets_report(entries))

    async def service_discovery(self, request: Request) -> Response:
        """Every target as a probe of ourselves, for Prometheus' `http_sd_configs`."""
        address = request.url.netloc
        return JSONResponse([_probe_group(address, entry.info.name) for entry in self._board.entries()])

    async def healthy(self, _: Request) -> Response:
        return PlainTextResponse("healthy\n")

    async def ready(self, _: Request) -> Response:
        missing = self._services.missing()
        return PlainTextResponse(f"not ready: {missing}\n", 503) if missing else PlainTextResponse("ready\n")

    async def reload(self, _: Request) -> Response:
        if self._services.reload is None:
            return PlainTextResponse("reloading over HTTP is off: set `reload: true` under `web`, or send SIGHUP\n", 403)
        problems = await self._services.reload()
        if problems:
            # The problems name files, so they are for the journal alone.
            return PlainTextResponse(f"the new configuration is refused for {len(problems)} reason(s), see the log; the old one stays\n", 500)
        return PlainTextResponse("reloaded\n")

    def _entries(self, wanted: Sequence[str]) -> list[Entry]:
        return [entry for entry in self._board.entries() if not wanted or entry.info.name in wanted]


def troubles(own: OwnStatus) -> Iterator[str]:
    """What is wrong with the inspector itself, for who looks at its page."""
    if own.reloaded is False:
        yield "The last change of the configuration was refused, and the old one is in use; the log has every mistake."
    if own.deliveries is not None and own.deliveries.failing:
        yield "Alertmanager does not take alerts: nobody is told of what fires here. The log says why; it is tried again."


def exposition(source: CollectorRegistry, request: Request) -> Response:
    """A registry in the format and encoding that the scraper accepts."""
    encode, content_type = choose_encoder(request.headers.get("accept", ""))
    names = request.query_params.getlist("name[]")
    body = encode(source.restricted_registry(names) if names else source)
    headers = {"Content-Type": content_type, "Vary": "Accept, Accept-Encoding"}
    if len(body) >= SMALLEST_GZIP and accepts_gzip(request.headers.get("accept-encoding", "")):
        body = gzip.compress(body, compresslevel=5)
        headers["Content-Encoding"] = "gzip"
    return Response(body, headers=headers)


def accepts_gzip(header: str) -> bool:
    """Whether an Accept-Encoding header allows gzip."""
    for accepted in header.split(","):
        coding, *parameters = (part.strip().lower() for part in accepted.split(";"))
        if coding == "gzip":
            return not any(p.removeprefix("q=").strip("0.") == "" for p in parameters if p.startswith("q="))
    return False


def time_left(header: str | None) -> float | None:
    """Seconds for a poll, from what Prometheus says of its own patience. None: no limit. Raises ValueError for a header that is no number."""
    if header is None:
        return None
    seconds = float(header)
    if not 0 < seconds < 86400:
        raise ValueError
    return max(seconds - SCRAPE_MARGIN, seconds / 2)


def _probe_group(address: str, name: str) -> dict[str, object]:
    return {"targets": [address], "labels": {"__metrics_path__": "/probe", "__param_target": name, "instance": name}}
