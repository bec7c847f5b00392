"""What the two routes answer, in the words of every version since 0.24. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto

from inspector.contract import Reply
from inspector.reading import Reading, Reason, Unknown, text
from inspector_mlx import causes

SERVER = "basehttp/"
"""How the `Server` header of Python's own HTTP server begins. A gateway may put its own in its place."""

OTHER_ENGINES = ("llama.cpp", "uvicorn")
"""Servers whose /health may answer the same: they are not ours."""


class Health(Enum):
    ALIVE = auto()
    DEAD = auto()
    """The generation thread is gone (0.32.0 and newer)."""
    OLD = auto()
    """There is no such route (before 0.24)."""
    DENIED = auto()
    FAILING = auto()
    FOREIGN = auto()


def health(reply: Reply) -> Health:
    status = _object(reply).get("status")
    if reply.status in (401, 403):
        return Health.DENIED
    if reply.headers.get("server", "").lower().startswith(OTHER_ENGINES):
        return Health.FOREIGN
    if reply.status == 200 and status == "ok":
        return Health.ALIVE
    if reply.status == 503 and status == "unavailable":
        return Health.DEAD
    if reply.status == 404 and is_python_server(reply) and reply.body.strip() == b"Not Found":
        return Health.OLD
    return Health.FAILING if reply.status >= 500 else Health.FOREIGN


def is_python_server(reply: Reply) -> bool:
    return reply.headers.get("server", "").lower().startswith(SERVER)


def is_model_list(reply: Reply) -> bool:
    """Whether /v1/models answers as mlx_lm does: without owners, or with nothing at all where its model cache is missing."""
    if reply.status != 200 or not is_python_server(reply):
        return False
    body = _object(reply)
    entries = body.get("data")
    if not reply.body.strip():
        return True
    return body.get("object") == "list" and isinstance(entries, list) and all(isinstance(e, dict) and e.keys() == {"id", "object", "created"} for e in entries)


def listed_model(reply: Reply | Unknown) -> Reading[str]:
    """The model that the server was started with, where that is a folder of its disk: the one entry that is a path. All others merely lie in the cache."""
    if isinstance(reply, Unknown):
        return reply
    if reply.status in (401, 403):
        return causes.UNAUTHORIZED
    if reply.status != 200:
        return causes.NO_MODEL
    if not reply.body.strip():
        return causes.MODELS_EMPTY
    body = reply.json()
    if isinstance(body, Unknown):
        return body
    entries = body.value.get("data") if isinstance(body.value, dict) else None
    if not isinstance(entries, list):
        return Unknown(Reason.INVALID, "/v1/models answered with something that is not a list of models")
    names = [entry.get("id") for entry in entries if isinstance(entry, dict)]
    paths = [name for name in names if isinstance(name, str) and name.startswith("/")]
    if len(paths) != 1:
        return causes.NO_MODEL
    return text(paths[0].rstrip("/").rpartition("/")[2], reply.origin, "the model's name in /v1/models")


def _object(reply: Reply) -> Mapping[str, object]:
    body = reply.json()
    return body.value if not isinstance(body, Unknown) and isinstance(body.value, dict) else {}
