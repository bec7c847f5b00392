"""What /health, /version and /v1/models answer. Nothing is kept of a reply but what is named here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from inspector.contract import NO_VERSION, Reply
from inspector.reading import Known, Reading, Reason, Unknown, positive, text
from inspector_vllm import causes

VERSION = re.compile(r"\d+\.\d+[\w.+-]{0,60}")


def as_object(reply: Reply) -> Mapping[str, Any] | None:
    """The body if it is a JSON object."""
    body = reply.json()
    return body.value if isinstance(body, Known) and isinstance(body.value, dict) else None


def base_name(path: str) -> str:
    return re.split(r"[/\\]", path.rstrip("/\\"))[-1]


def refusal(reply: Reply | Unknown, missing: Unknown) -> Unknown | None:
    """Why a reply holds no answer, None if it may hold one. `missing`: the cause for a route that is not there."""
    if isinstance(reply, Unknown):
        return reply
    if reply.status == 200:
        return None
    if reply.status in (401, 403):
        return causes.UNAUTHORIZED
    return missing if reply.status in (404, 405, 501) else Unknown(Reason.INVALID, f"{reply.route.path} answered {reply.status}")


def version(reply: Reply | Unknown) -> Reading[str]:
    """vLLM's own version, since 0.4."""
    cause = refusal(reply, NO_VERSION)
    if cause is not None or isinstance(reply, Unknown):
        return cause or NO_VERSION
    stated = (as_object(reply) or {}).get("version")
    if not isinstance(stated, str) or not VERSION.fullmatch(stated):
        return Unknown(Reason.INVALID, "/version answered with something that is not a version")
    return Known(stated, reply.origin)


@dataclass(frozen=True, slots=True)
class Listed:
    """What /v1/models says of the base model; LoRA adapters stand there too, with a parent. `owner` None: it does not say."""

    model: Reading[str]
    context: Reading[int]
    owner: str | None = None


def listed(reply: Reply | Unknown) -> Listed:
    cause = refusal(reply, causes.NO_MODEL)
    if cause is not None or isinstance(reply, Unknown):
        unknown = cause or causes.NO_MODEL
        return Listed(unknown, unknown)
    data = (as_object(reply) or {}).get("data")
    rows = [row for row in data if isinstance(row, dict)] if isinstance(data, list) else []
    bases = [row for row in rows if row.get("parent") is None]
    owners = {row["owned_by"] for row in rows if isinstance(row.get("owned_by"), str)}
    owner = owners.pop() if len(owners) == 1 else None
    if not bases:
        return Listed(causes.NO_MODEL, causes.NO_MODEL_LENGTH, owner)
    name = bases[0].get("id")
    model = text(base_name(name), reply.origin, "the model's id") if isinstance(name, str) else causes.NO_MODEL
    return Listed(model, _context(bases, reply), owner)


def _context(bases: list[dict[str, Any]], reply: Reply) -> Reading[int]:
    """All names of the served model have one length; two lengths would be two models."""
    lengths = [row.get("max_model_len") for row in bases]
    if lengths[0] is None:
        return causes.NO_MODEL_LENGTH
    if any(length != lengths[0] for length in lengths):
        return Unknown(Reason.AMBIGUOUS, "/v1/models lists several models with different lengths")
    return positive(lengths[0], reply.origin, "max_model_len in /v1/models")
