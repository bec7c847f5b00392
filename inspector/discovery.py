"""Finding servers without touching strangers: by the processes of this machine that listen, and by harmless routes of an address that was named."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from itertools import zip_longest
from typing import Any

from inspector.contract import Adapter, ReadsLaunch, Recognizes, Reply, Route
from inspector.launch.command import server_argv
from inspector.local.process import Listener, Process, parent_of, process_of, tcp_listeners
from inspector.reading import Reason, Unknown

RECOGNITION_ROUTES = (
    Route("/health"),
    Route("/props", required=(("autoload", "false"),)),
    Route("/version"),
    Route("/v1/models"),
)
"""All that is ever asked of a server whose engine is not known, in this order: none of them loads, wakes or blocks."""


@dataclass(frozen=True, slots=True)
class Found:
    """A server of this machine: the engine's adapter name, its address, its process."""

    engine: str
    url: str
    pid: int


@dataclass(frozen=True, slots=True)
class Server:
    """A process that is an engine's server, and the arguments after its command, which hold keys and paths."""

    engine: str
    pid: int
    arguments: Sequence[str]

    def __repr__(self) -> str:
        return f"Server({self.engine!r}, {self.pid})"


def find_servers(adapters: Mapping[str, Adapter[Any]]) -> tuple[Found, ...]:
    """Servers of this machine whose process is a known engine's command, in order of their ports. Opens no connection. Blocking, some milliseconds."""
    listeners = tcp_listeners()
    if isinstance(listeners, Unknown):
        return ()
    by_pid: dict[int, list[Listener]] = {}
    for listener in listeners:
        if listener.pid is not None:
            by_pid.setdefault(listener.pid, []).append(listener)
    servers = {pid: server for pid in sorted(by_pid) if (server := _server(pid, adapters)) is not None}
    found: dict[str, tuple[int, Found]] = {}
    for server in servers.values():
        if not _is_child(server, servers):
            listener = _http_listener(server.arguments, by_pid[server.pid])
            url = _url(listener, server.arguments)
            found.setdefault(url, (listener.port, Found(server.engine, url, server.pid)))
    return tuple(server for _, server in sorted(found.values(), key=lambda item: (item[0], item[1].url)))


async def recognize(get: Callable[[Route], Awaitable[Reply | Unknown]], adapters: Mapping[str, Adapter[Any]]) -> Adapter[Any] | Unknown:
    """The adapter that recognizes a server by its replies to `RECOGNITION_ROUTES`, asked one after another until one does.

    `get` must send no key. A server that does not answer the first route is asked nothing else; `invalid`: it answers, but no adapter knows it.
    """
    replies: dict[str, Reply] = {}
    for route in RECOGNITION_ROUTES:
        reply = await get(route)
        if isinstance(reply, Unknown):
            if not replies:
                return reply
            continue
        replies[route.path] = reply
        claims = [name for name, adapter in adapters.items() if _recognizes(adapter, replies)]
        if len(claims) == 1:
            return adapters[claims[0]]
        if claims:
            return Unknown(Reason.INVALID, f"{' and '.join(claims)} both take this server for theirs: name its engine with `engine:` or ENGINE=URL")
    if any(reply.status in (401, 403) for reply in replies.values()):
        return Unknown(Reason.UNAUTHORIZED, "the server wants a key, which no stranger is sent: name its engine with `engine:` or ENGINE=URL")
    return Unknown(Reason.INVALID, f"no adapter knows this server (installed: {', '.join(adapters) or 'none'}): name its engine with `engine:` or ENGINE=URL")


def _recognizes(adapter: Adapter[Any], replies: Mapping[str, Reply]) -> bool:
    if not isinstance(adapter, Recognizes):
        return False
    try:
        return adapter.recognize(dict(replies)) is True
    except Exception:
        return False


def _server(pid: int, adapters: Mapping[str, Adapter[Any]]) -> Server | None:
    process = process_of(pid)
    if not isinstance(process, Process):
        return None
    for name, adapter in adapters.items():
        arguments = server_argv(process.argv, adapter.flags) if isinstance(adapter, ReadsLaunch) else None
        if arguments is not None:
            return Server(name, pid, tuple(arguments))
    return None


def _is_child(server: Server, servers: Mapping[int, Server]) -> bool:
    """Whether a server was started by another that listens and is of its engine: a model of a router, a worker."""
    parent = parent_of(server.pid)
    started_by = servers.get(parent) if isinstance(parent, int) else None
    return started_by is not None and started_by.engine == server.engine


def _http_listener(arguments: Sequence[str], listeners: Sequence[Listener]) -> Listener:
    """The listener that serves HTTP: on the port that the arguments name, else on the lowest (others are an engine's own, on passing ports)."""
    stated = _stated_port(arguments)
    ports = {listener.port for listener in listeners}
    port = stated if stated in ports else min(ports)
    return min((listener for listener in listeners if listener.port == port), key=lambda listener: (not listener.address.is_loopback, listener.address.version))


def _stated_port(arguments: Sequence[str]) -> int | None:
    port: int | None = None
    for argument, following in zip_longest(arguments, arguments[1:], fillvalue=""):
        name, equals, value = argument.partition("=")
        text = value if equals else following
        if name == "--port" and text.isdecimal():
            port = int(text)
    return port


def _url(listener: Listener, arguments: Sequence[str]) -> str:
    scheme = "https" if any(argument.startswith("--ssl-key") for argument in arguments) else "http"
    return f"{scheme}://{_host(listener.address)}:{listener.port}"


def _host(address: IPv4Address | IPv6Address) -> str:
    if address.is_unspecified:
        return "127.0.0.1" if address.version == 4 else "[::1]"
    return str(address) if address.version == 4 else f"[{address}]"
