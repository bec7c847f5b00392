"""What /health, /props and /v1/models answer, of every build since 2024. Nothing is kept of a reply but what is named here: replies hold prompts and paths."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from hashlib import sha256
from typing import Any

from inspector.contract import NO_VERSION, Reply
from inspector.reading import Known, Origin, Reading, Reason, Unknown, count, flag, positive, text
from inspector_llamacpp import causes

_BUILD = re.compile(r"b(\d+)-[0-9a-z]+")
LOWEST_BUILD = 1000
"""Builds made outside a git checkout call themselves b0 or b1: no build number at all."""
SAFE_METRICS_BUILD = 10566
"""The first build that was seen to answer /metrics without waking the model."""
TOKEN_COUNT_BUILD = 9538
"""The first build that was seen to show n_prompt_tokens in /slots."""
SLEEP_BUILD = 7551
"""The first build that was seen to show is_sleeping in /props."""


class Health(Enum):
    OK = auto()
    LOADING = auto()
    FULL = auto()
    """All slots work: a few builds of 2024 answered 503 then."""
    DENIED = auto()
    FOREIGN = auto()
    """Not what llama.cpp says: a gateway, or another engine."""


def health(reply: Reply | Unknown) -> tuple[Health, Reading[int]]:
    """What /health says, and how many slots work where it counts them (2024 only)."""
    if isinstance(reply, Unknown):
        return Health.FOREIGN, reply
    if reply.status in (401, 403):
        return Health.DENIED, causes.UNAUTHORIZED
    body = as_object(reply)
    if body is None:
        return Health.FOREIGN, causes.SLOTS_DISABLED
    busy = count(body.get("slots_processing"), reply.origin, "slots_processing in /health")
    if reply.status == 200 and isinstance(body.get("status"), str):
        return Health.OK, busy
    if reply.status == 503 and is_loading(reply):
        return Health.LOADING, causes.LOADING
    if reply.status == 503 and body.get("status") == "no slot available":
        return Health.FULL, busy
    return Health.FOREIGN, busy


def is_loading(reply: Reply) -> bool:
    """A 503 has two meanings, told apart by its text: loading, or no slot free."""
    body = as_object(reply)
    if reply.status != 503 or body is None:
        return False
    error = body.get("error")
    message = error.get("message") if isinstance(error, dict) else body.get("status")
    return isinstance(message, str) and "loading model" in message.lower()


def as_object(reply: Reply) -> Mapping[str, Any] | None:
    """The body if it is a JSON object."""
    body = reply.json()
    return body.value if isinstance(body, Known) and isinstance(body.value, dict) else None


def refusal(reply: Reply | Unknown, disabled: Unknown) -> Unknown | None:
    """Why a reply holds no answer, None if it may hold one. `disabled` is the cause for an endpoint that is off or not there."""
    if isinstance(reply, Unknown):
        return reply
    if reply.status == 200:
        return None
    if reply.status in (401, 403):
        return causes.UNAUTHORIZED
    if reply.status in (404, 501):
        return disabled
    if is_loading(reply):
        return causes.LOADING
    return Unknown(Reason.INVALID, f"{reply.route.path} answered {reply.status}")


def base_name(path: str) -> str:
    return re.split(r"[/\\]", path.rstrip("/\\"))[-1]


@dataclass(frozen=True, slots=True)
class Props:
    """/props of a server or of a router's model. `sleeping` is None where the build cannot sleep. `slots_on` and `metrics_on` are None where it does not say.
    `counts_tokens`: /slots of this build has n_prompt_tokens for sure. `safe_metrics`: reading /metrics wakes nothing for sure.
    `identity`: what must not change while the process lives, to be compared and never shown; "" where /props was not to be had."""

    slots: Reading[int]
    context: Reading[int]
    model: Reading[str]
    version: Reading[str]
    sleeping: Reading[bool] | None
    slots_on: bool | None = None
    metrics_on: bool | None = None
    counts_tokens: bool = False
    safe_metrics: bool = False
    is_router: bool = False
    identity: str = ""


def no_props(cause: Unknown) -> Props:
    return Props(slots=cause, context=cause, model=cause, version=NO_VERSION, sleeping=cause)


def is_props(body: Mapping[str, Any] | None) -> bool:
    """Whether this is llama.cpp's /props and no other page."""
    return body is not None and (isinstance(body.get("default_generation_settings"), dict) or "total_slots" in body or body.get("role") == "router")


def props(body: Mapping[str, Any], origin: Origin) -> Props:
    generation = body.get("default_generation_settings")
    settings: Mapping[str, Any] = generation if isinstance(generation, dict) else {}
    build = body.get("build_info")
    number = build_number(build)
    return Props(
        slots=positive(body.get("total_slots"), origin, "total_slots in /props"),
        context=positive(settings.get("n_ctx"), origin, "n_ctx in /props"),
        model=_model(body, settings, origin),
        version=NO_VERSION if number is None else Known(str(build), origin),
        sleeping=_sleeping(body, number, origin),
        slots_on=_switch(body, "endpoint_slots"),
        metrics_on=_switch(body, "endpoint_metrics"),
        # model_ftype came after n_prompt_tokens did: it proves the newer build where the build has no number.
        counts_tokens="model_ftype" in body or (number is not None and number >= TOKEN_COUNT_BUILD),
        safe_metrics=number is not None and number >= SAFE_METRICS_BUILD,
        is_router=body.get("role") == "router",
        identity=_identity(body, settings),
    )


def _identity(body: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    """Build, model, slots and context as they are written: an odd value tells one process from another as well as a good one. A build without a number
    is told from others by the keys that it has."""
    stated = (body.get("role"), body.get("build_info"), body.get("model_alias"), body.get("model_path"), body.get("total_slots"), settings.get("n_ctx"))
    return sha256(repr((stated, sorted(body))).encode("utf-8", "surrogatepass")).hexdigest()


def build_number(build: object) -> int | None:
    """The build's number, None where it has none that can be trusted."""
    match = _BUILD.fullmatch(build) if isinstance(build, str) and len(build) < 60 else None
    number = None if match is None else int(match[1])
    return number if number is not None and number > LOWEST_BUILD else None


def _switch(body: Mapping[str, Any], key: str) -> bool | None:
    value = body.get(key)
    return value if isinstance(value, bool) else None


def _sleeping(body: Mapping[str, Any], number: int | None, origin: Origin) -> Reading[bool] | None:
    """None where the build is older than sleeping; a newer build without the key is not to be trusted with more questions."""
    if "is_sleeping" in body:
        return flag(body["is_sleeping"], origin, "is_sleeping in /props")
    newer = "model_ftype" in body or "media_marker" in body or (number is not None and number >= SLEEP_BUILD)
    return causes.SLEEP_UNKNOWN if newer else None


def _model(body: Mapping[str, Any], settings: Mapping[str, Any], origin: Origin) -> Reading[str]:
    for name in (body.get("model_alias"), body.get("model_path"), settings.get("model")):
        if isinstance(name, str) and name != "none":
            model = text(base_name(name), origin, "the model's name")
            if isinstance(model, Known):
                return model
    return causes.NO_MODEL


@dataclass(frozen=True, slots=True)
class ListedModel:
    """What /v1/models says of the one model: the trained context, its name, and whether the build is one that answers /metrics without waking."""

    trained: Reading[int]
    model: Reading[str]
    safe_metrics: bool


def listed_model(reply: Reply | Unknown) -> ListedModel:
    cause = refusal(reply, causes.NO_MODEL)
    body = as_object(reply) if isinstance(reply, Reply) and cause is None else None
    data = body.get("data") if body is not None else None
    first = data[0] if isinstance(data, list) and len(data) == 1 else None
    if not isinstance(first, dict) or isinstance(reply, Unknown):
        unknown = cause or causes.NO_MODEL
        return ListedModel(unknown, unknown, safe_metrics=False)
    meta = first.get("meta")
    trained = meta.get("n_ctx_train") if isinstance(meta, dict) else None
    name = first.get("id")
    return ListedModel(
        positive(trained, reply.origin, "n_ctx_train in /v1/models"),
        text(base_name(name), reply.origin, "the model's id") if isinstance(name, str) else causes.NO_MODEL,
        safe_metrics=isinstance(first.get("architecture"), dict) and first.get("owned_by") == "llamacpp",
    )
