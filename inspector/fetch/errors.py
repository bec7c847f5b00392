"""What goes wrong on the way to a server, as unknowns with a remedy.

The sentences are fixed: an exception's own text may repeat a header, and with it a key. Only OpenSSL's finding about a certificate is passed on.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator, Mapping

import anyio
import httpx

from inspector.reading import Reason, Unknown

_INVALID, _TIMEOUT, _UNREACHABLE = Reason.INVALID, Reason.TIMEOUT, Reason.UNREACHABLE

TOO_LARGE = Unknown(_INVALID, "the answer is larger than the inspector takes; is this URL a model server's?")
ENCODING = Unknown(_INVALID, "the answer has a Content-Encoding that was not asked for; switch compression off in the proxy before the server")
TRUNCATED = Unknown(_INVALID, "the answer's gzip data is damaged or ends too early; switch compression off in the proxy before the server")

_LATE = Unknown(_TIMEOUT, "no complete answer within the deadline; look at the server's load, or raise poll.timeout")
_NO_CONNECTION = Unknown(_UNREACHABLE, "no connection to the server; check that it runs and that the URL is right")
_CLOSED = Unknown(_UNREACHABLE, "the server closed the connection without an answer; check that it runs and that the URL is right")
_BROKEN = Unknown(_INVALID, "the answer is not complete HTTP; check that the URL's scheme and port are those of the model server")
_NOT_SENT = Unknown(_INVALID, "the request cannot be sent; check url, headers and the key's characters in the configuration")

TABLE: Mapping[type[BaseException], Unknown] = {
    TimeoutError: _LATE,
    httpx.TimeoutException: _LATE,
    httpx.ConnectTimeout: _LATE,
    httpx.ReadTimeout: _LATE,
    httpx.WriteTimeout: _LATE,
    httpx.PoolTimeout: _LATE,
    httpx.NetworkError: _CLOSED,
    httpx.ConnectError: _NO_CONNECTION,
    httpx.ReadError: _CLOSED,
    httpx.WriteError: _CLOSED,
    httpx.CloseError: _CLOSED,
    httpx.ProxyError: _NO_CONNECTION,
    httpx.ProtocolError: _BROKEN,
    httpx.RemoteProtocolError: _BROKEN,
    httpx.LocalProtocolError: _NOT_SENT,
    httpx.UnsupportedProtocol: _NOT_SENT,
    httpx.InvalidURL: _NOT_SENT,
    httpx.CookieConflict: _NOT_SENT,
    httpx.DecodingError: TRUNCATED,
    httpx.TooManyRedirects: _BROKEN,
    httpx.HTTPStatusError: _BROKEN,
    httpx.TransportError: _NO_CONNECTION,
    httpx.RequestError: _NO_CONNECTION,
    httpx.HTTPError: _NO_CONNECTION,
    httpx.StreamError: _BROKEN,
    httpx.StreamConsumed: _BROKEN,
    httpx.StreamClosed: _BROKEN,
    httpx.ResponseNotRead: _BROKEN,
    httpx.RequestNotRead: _NOT_SENT,
    anyio.BrokenResourceError: _CLOSED,
    anyio.ClosedResourceError: _CLOSED,
    anyio.EndOfStream: _CLOSED,
    UnicodeError: _NOT_SENT,
    OSError: _NO_CONNECTION,
}
"""The nearest class in an exception's ancestry decides."""

FAILURES = tuple(TABLE)

CAUSES: Mapping[type[BaseException], Unknown] = {
    ConnectionRefusedError: Unknown(_UNREACHABLE, "connection refused: nothing listens there; check that the server runs and that the URL is right"),
    socket.gaierror: Unknown(_UNREACHABLE, "the host name cannot be resolved; check the URL and this machine's name service"),
    FileNotFoundError: Unknown(_UNREACHABLE, "the socket or a TLS file does not exist; check that the server runs, and url and tls in the configuration"),
    PermissionError: Unknown(_UNREACHABLE, "the inspector's user may not open the socket or a TLS file; change its owner or mode"),
    ssl.SSLError: Unknown(_UNREACHABLE, "TLS failed; check that the server speaks https, and the certificates in tls.ca_file and tls.cert_file"),
}
"""What lies beneath an exception says more than its class. Looked up before the table."""

OTHER_NAME = (62, 64)
"""OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH."""

_HANG_UP = "Server disconnected without sending a response."
"""httpcore's words for a connection that ended before the headers did; it has no class for that."""


def failure(error: BaseException) -> Unknown:
    """The unknown for an exception that ended an exchange."""
    if isinstance(error, TimeoutError | httpx.TimeoutException):
        return _LATE
    beneath = list(_beneath(error))
    for cause in beneath:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return _untrusted(cause)
    for kind, unknown in CAUSES.items():
        if any(isinstance(cause, kind) for cause in beneath):
            return unknown
    if hung_up(error):
        return _CLOSED
    return next(TABLE[kind] for kind in type(error).__mro__ if kind in TABLE)


def hung_up(error: BaseException) -> bool:
    """The connection ended before any answer."""
    return isinstance(error, httpx.ReadError | httpx.WriteError) or (isinstance(error, httpx.RemoteProtocolError) and str(error) == _HANG_UP)


def _untrusted(error: ssl.SSLCertVerificationError) -> Unknown:
    if error.verify_code in OTHER_NAME:
        return Unknown(_UNREACHABLE, "the server's certificate is for another name; correct the host in url, or let the server show a certificate for this one")
    finding = str(error.verify_message).rstrip(".")[:200]
    return Unknown(_UNREACHABLE, f"the server's certificate is not trusted ({finding}); name the authority that signed it in tls.ca_file")


def _beneath(error: BaseException) -> Iterator[BaseException]:
    """The exception and all that it was raised from, groups opened."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        current = waiting.pop()
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        waiting += [current.__cause__, current.__context__]
        if isinstance(current, BaseExceptionGroup):
            waiting += current.exceptions
