"""Processes of this machine: which one listens on an address, its argv and environment. Whatever keeps us from seeing it is data, never an exception.

Everything here may block for some milliseconds, except `still_running`.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TypeVar

import psutil

from inspector.reading import Reason, Unknown

T = TypeVar("T")

SAME_CREATION = 1.0
"""Seconds by which two reads of one process's create time may differ: it is counted from the machine's start, whose time is adjusted."""

REMEDY = "run the inspector as the server's user, or set `launch: {pid: …}`, or state `facts`"


@dataclass(frozen=True, slots=True)
class Process:
    """A process of this machine. `created` is Unix seconds. argv and environment hold keys and paths, so they are in no repr."""

    pid: int
    created: float
    argv: tuple[str, ...] = field(repr=False)
    environ: Mapping[str, str] | Unknown = field(repr=False)


@dataclass(frozen=True, slots=True)
class Listener:
    """A listening TCP socket. `pid` is None where the system does not tell it to us."""

    address: IPv4Address | IPv6Address
    port: int
    pid: int | None


def process_on(address: tuple[str, int]) -> Process | Unknown:
    """The process that listens on (host, port) of this machine."""
    host, port = address
    wanted = _addresses(host)
    if not wanted:
        return Unknown(Reason.NO_SOURCE, "the server's address is not one of this machine, so its process cannot be looked at")
    listeners = tcp_listeners()
    if isinstance(listeners, Unknown):
        return listeners
    serving = _serving(wanted, [listener for listener in listeners if listener.port == port])
    if not serving:
        detail = f"no process that the inspector can see listens on port {port}: in a container, share its process and network namespace, or state `facts`"
        return Unknown(Reason.NO_SOURCE, detail)
    pids = {listener.pid for listener in serving if listener.pid is not None}
    if not pids:
        return Unknown(Reason.UNAUTHORIZED, f"the process on port {port} belongs to another user: {REMEDY}")
    pid = _leader(pids)
    if pid is None:
        return Unknown(Reason.AMBIGUOUS, f"several processes listen on port {port}: name the server's with `launch: {{pid: …}}`")
    return process_of(pid)


def process_of(pid: int) -> Process | Unknown:
    """The process with this id."""
    return _seen(pid, lambda process: _read(pid, process))


def still_running(process: Process) -> bool:
    """Whether this very process runs: not ended, no zombie, and the id not given to another. Cheap enough for every poll."""
    created = _seen(process.pid, _created)
    return isinstance(created, float) and abs(created - process.created) < SAME_CREATION


def parent_of(pid: int) -> int | Unknown:
    """The id of a process's parent, 0 where it has none."""
    return _seen(pid, lambda process: process.ppid())


def tcp_listeners() -> tuple[Listener, ...] | Unknown:
    """All listening TCP sockets of this machine's network namespace."""
    try:
        connections = psutil.net_connections(kind="tcp")
    except psutil.AccessDenied:
        return Unknown(Reason.UNAUTHORIZED, f"this system shows listening sockets to their owner only: {REMEDY}")
    except (psutil.Error, OSError, ValueError):
        return Unknown(Reason.NO_SOURCE, f"this system does not show its listening sockets: {REMEDY}")
    sockets = [(*connection.laddr, connection.pid) for connection in connections if connection.status == psutil.CONN_LISTEN and connection.laddr]
    return tuple(Listener(_plain(ip_address(host.partition("%")[0])), port, pid) for host, port, pid in sockets)


def _read(pid: int, process: psutil.Process) -> Process | Unknown:
    argv = tuple(process.cmdline())
    if not argv:
        return Unknown(Reason.NO_SOURCE, f"process {pid} has no command line: it ended, or it hides its arguments")
    environ = _seen(pid, lambda p: p.environ())
    # A pid that was given to another process between these reads would mix two of them.
    return Process(pid, process.create_time(), argv, environ) if process.is_running() else _gone(pid)


def _created(process: psutil.Process) -> float:
    with process.oneshot():
        if process.status() == psutil.STATUS_ZOMBIE:
            raise psutil.NoSuchProcess(process.pid)
        return float(process.create_time())


def _seen(pid: int, look: Callable[[psutil.Process], T]) -> T | Unknown:
    """The one place where psutil's errors turn into data."""
    try:
        return look(psutil.Process(pid))
    except psutil.AccessDenied:
        return Unknown(Reason.UNAUTHORIZED, f"process {pid} may not be looked at: {REMEDY}")
    except (psutil.NoSuchProcess, ValueError, OverflowError):
        return _gone(pid)
    except (psutil.Error, OSError):
        return Unknown(Reason.NO_SOURCE, f"process {pid} cannot be looked at: {REMEDY}")


def _gone(pid: int) -> Unknown:
    return Unknown(Reason.NO_SOURCE, f"process {pid} does not run any more")


def _addresses(host: str) -> frozenset[IPv4Address | IPv6Address]:
    """The addresses of this machine that a host name or address stands for; none if it is not this machine's. Asks no name server."""
    if host.lower() == "localhost":
        return frozenset({ip_address("127.0.0.1"), ip_address("::1")})
    try:
        address = _plain(ip_address(host.strip("[]").partition("%")[0]))
    except ValueError:
        return frozenset()
    return frozenset({address}) if address.is_loopback or address in _own_addresses() else frozenset()


def _own_addresses() -> frozenset[IPv4Address | IPv6Address]:
    families = (socket.AF_INET, socket.AF_INET6)
    texts = (a.address.partition("%")[0] for each in psutil.net_if_addrs().values() for a in each if a.family in families)
    return frozenset(ip_address(text) for text in texts)


def _plain(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """An IPv4 address that is written as IPv6 is the IPv4 address."""
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def _serving(wanted: Collection[IPv4Address | IPv6Address], listeners: Iterable[Listener]) -> list[Listener]:
    """The listeners that get a connection to one of the addresses: as in the kernel, the most specific one wins."""
    listeners = list(listeners)
    exact = [listener for listener in listeners if listener.address in wanted]
    versions = {address.version for address in wanted}
    same_family = [listener for listener in listeners if listener.address.is_unspecified and listener.address.version in versions]
    # A wildcard socket of IPv6 mostly serves IPv4 too.
    both_families = [listener for listener in listeners if listener.address.is_unspecified and listener.address.version == 6]
    return exact or same_family or both_families


def _leader(pids: Collection[int]) -> int | None:
    """The process that stands for all that share a port: the one that the others descend from, be it among them or not."""
    lines = [_ancestry(pid) for pid in pids]
    # Everything descends from the init process; it stands for others only where it is a server itself, as in a container.
    shared = [pid for pid in lines[0] if all(pid in line for line in lines) and (pid > 1 or pid in pids)]
    return shared[0] if shared else None


def _ancestry(pid: int) -> list[int]:
    """A process and its parents, the nearest first."""
    line: list[int] = []
    while pid > 0 and pid not in line:
        line.append(pid)
        parent = parent_of(pid)
        if isinstance(parent, Unknown):
            break
        pid = parent
    return line
