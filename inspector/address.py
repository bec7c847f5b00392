"""The address of a server: `http://host:port[/base]`, `https://…`, or `unix:/path/of/socket[:/base]`. Pure."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import PurePosixPath
from urllib.parse import urlsplit

PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server is. `base` is "" or begins with a slash and does not end with one; a unix socket has `socket` and the host `localhost`."""

    scheme: str
    host: str
    port: int
    base: str = ""
    socket: str | None = None

    @property
    def root(self) -> str:
        """The URL that a route's path is put behind."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{host}{port}{self.base}"

    @property
    def is_local(self) -> bool:
        """The server is on this machine for certain: a socket file, or a loopback address."""
        return self.socket is not None or is_loopback(self.host)

    @property
    def label(self) -> str:
        """A name for a target that was given none: host and port, or the socket's base name, and the base path."""
        if self.socket is not None:
            return PurePosixPath(self.socket).name + self.base
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}{self.base}"


def parse_address(url: str) -> Address:
    """The parts of a target's URL. Raises ValueError with the remedy, without repeating the URL: it may hold a password."""
    if not url.isprintable() or any(character.isspace() for character in url):
        raise ValueError("has spaces or control characters; write http://host:port or unix:/path")
    if url.startswith("unix:"):
        return _socket(url.removeprefix("unix:"))
    if not url.startswith(("http://", "https://")):
        raise ValueError("is not a URL that can be asked; write http://host:port, https://host:port or unix:/path")
    return _network(url)


def is_loopback(host: str) -> bool:
    """`localhost` and the loopback addresses; a name that may resolve elsewhere is not."""
    if host.lower() == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def _socket(rest: str) -> Address:
    socket, _, base = rest.partition(":")
    if not socket.startswith("/") or socket.endswith("/"):
        raise ValueError("names no socket file; write unix:/path/of/socket with an absolute path")
    return Address("http", "localhost", 80, _base(base), socket)


def _network(url: str) -> Address:
    if "@" in url.split("://", 1)[1].split("/", 1)[0]:
        raise ValueError("holds a user name or password; put it into a key file (api_key_file) or into headers")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ValueError("has a host or port that cannot be; write http://host:port with a port from 1 to 65535") from None
    if not host or port == 0 or parts.netloc.endswith(":"):
        raise ValueError("has no host or an empty port; write http://host:port")
    if parts.query or parts.fragment or "?" in url or "#" in url:
        raise ValueError("has a query or a fragment; give only host, port and base path")
    return Address(parts.scheme, host, port or PORTS[parts.scheme], _base(parts.path))


def _base(path: str) -> str:
    """A base path without its last slash. Dots that climb would leave the path that the operator named."""
    if path and not path.startswith("/"):
        raise ValueError("has a base path that does not begin with a slash; write http://host:port/base or unix:/path:/base")
    if any(part in (".", "..") for part in path.replace("%2e", ".").replace("%2E", ".").split("/")) or "?" in path or "#" in path:
        raise ValueError("has a base path with dots, a query or a fragment; give the plain path under which the server answers")
    return path.rstrip("/")


def parse_listen(text: str) -> tuple[str, int]:
    """Host and port to listen on, from `host:port` or `[IPv6]:port`; port 0 takes any free one. Raises ValueError with the remedy."""
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError("has an IPv6 address without brackets; write [::1]:9836")
    if not colon or not host or not (port.isascii() and port.isdigit() and int(port) <= 65535):
        raise ValueError("is not host:port; write 127.0.0.1:9836")
    return host, int(port)
