"""Connections that clients hold to a server's listening port. Blocking, a few milliseconds."""

from __future__ import annotations

import os

import psutil

from inspector.reading import Kind, Known, Origin, Reading, Reason, Unknown

HIDDEN = Unknown(Reason.UNAUTHORIZED, "the server's connections may not be looked at: run the inspector as the server's user")


def connections_of(pid: int, port: int, now: float) -> Reading[int]:
    """Established connections to the port on which the process listens (`port` where it listens on several), our own not counted."""
    try:
        theirs = psutil.Process(pid).net_connections(kind="tcp")
        listening = {connection.laddr.port for connection in theirs if connection.status == psutil.CONN_LISTEN}
        if port not in listening and len(listening) != 1:
            return Unknown(Reason.AMBIGUOUS, "the process listens on several ports, none of them the target's" if listening else "the process does not listen")
        at = port if port in listening else listening.pop()
        clients = [c.raddr for c in theirs if c.status == psutil.CONN_ESTABLISHED and c.laddr.port == at]
        ours = (
            {c.laddr for c in psutil.Process(os.getpid()).net_connections(kind="tcp") if c.status == psutil.CONN_ESTABLISHED and c.raddr.port == at}
            if clients
            else set()
        )
    except psutil.AccessDenied:
        return HIDDEN
    except (psutil.Error, OSError, ValueError):
        return Unknown(Reason.NO_SOURCE, f"the connections of process {pid} cannot be looked at")
    return Known(sum(client not in ours for client in clients), Origin(Kind.SYSTEM, f"connections of pid {pid}", now))
