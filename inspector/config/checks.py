"""What one field of a configuration cannot tell alone: names that must be unique, references, and settings that need or exclude each other.

The checks look at the plain data, not at the models, so that they find their problems beside all the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from inspector.address import is_loopback, parse_listen
from inspector.config.errors import Finding, did_you_mean

ENGINE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,40}")

DEFAULT_LISTEN = "127.0.0.1:9836"


def check(data: Mapping[str, Any], engines: Iterable[str] | None = None) -> Iterator[Finding]:
    """All findings of this kind in a configuration's data. `engines`: those that are known; None: any name may be one."""
    known = None if engines is None else tuple(engines)
    yield from _unique_names(data)
    yield from _known_sessions(data)
    yield from _guarded(data)
    yield from _alertmanager(data)
    for index, target in _targets(data):
        yield from _known_engine(index, target, known)
        yield from _one_key(index, target)
        yield from _engine_of_a_key(index, target)
        yield from _tls_in_use(index, target)


def is_guarded(listen: str, web: Mapping[str, Any]) -> bool:
    """Whether who may read is settled: the address is this machine's own, a token is asked for, or the operator says that everybody may."""
    host, _ = parse_listen(listen)
    return is_loopback(host) or web.get("bearer_token_file") is not None or web.get("allow_unauthenticated") is True


UNGUARDED = "is not a loopback address, so that everyone on the network could read"
GUARD = "set web.bearer_token_file, or web.allow_unauthenticated: true"


def _unique_names(data: Mapping[str, Any]) -> Iterator[Finding]:
    first: dict[str, int] = {}
    for index, target in _targets(data):
        name = target.get("name")
        if isinstance(name, str) and first.setdefault(name, index) != index:
            yield Finding(("targets", index, "name"), f"is the name of targets[{first[name]}] too", "give each target a name of its own")


def _known_sessions(data: Mapping[str, Any]) -> Iterator[Finding]:
    sessions = list(_mapping(data.get("sessions")))
    for name in _mapping(_mapping(data.get("thresholds")).get("sessions")):
        if name not in sessions:
            yield _unknown_session(("thresholds", "sessions", name), name, sessions)
    for index, target in _targets(data):
        for position, name in enumerate(_list(target.get("sessions"))):
            if isinstance(name, str) and name not in sessions:
                yield _unknown_session(("targets", index, "sessions", position), name, sessions)


def _unknown_session(path: tuple[str | int, ...], name: str, sessions: list[str]) -> Finding:
    return Finding(path, "is not a session of this file", did_you_mean(name, sessions) or "describe it under sessions")


def _guarded(data: Mapping[str, Any]) -> Iterator[Finding]:
    listen = data.get("listen", DEFAULT_LISTEN)
    try:
        guarded = is_guarded(listen, _mapping(data.get("web"))) if isinstance(listen, str) else True
    except ValueError:
        return  # The field's own check says so.
    if not guarded:
        yield Finding(("listen",), UNGUARDED, GUARD)


def _alertmanager(data: Mapping[str, Any]) -> Iterator[Finding]:
    server = _mapping(data.get("alertmanager"))
    if server.get("bearer_token_file") is not None and server.get("basic_auth") is not None:
        yield Finding(("alertmanager", "basic_auth"), "is given beside bearer_token_file", "keep one of the two")
    if server.get("tls") and isinstance(server.get("url"), str) and not server["url"].startswith("https://"):
        yield Finding(("alertmanager", "tls"), "is given for a URL that is not https", "write https:// in url, or take tls out")


def _known_engine(index: int, target: Mapping[str, Any], known: tuple[str, ...] | None) -> Iterator[Finding]:
    engine = target.get("engine")
    if known is not None and isinstance(engine, str) and ENGINE_NAME.fullmatch(engine) and engine not in known:
        yield Finding(("targets", index, "engine"), f"no adapter for {engine} is installed", did_you_mean(engine, known) or "see: inspector adapters")


def _one_key(index: int, target: Mapping[str, Any]) -> Iterator[Finding]:
    sources = [name for name in ("api_key_file", "api_key_env") if target.get(name) is not None]
    if len(sources) > 1:
        yield Finding(("targets", index, "api_key_env"), "is given beside api_key_file", "keep one of the two")
    for name in _mapping(target.get("headers")):
        if sources and str(name).lower() == "authorization":
            yield Finding(("targets", index, "headers", name), f"is given beside {sources[0]}", "keep one of the two")


def _engine_of_a_key(index: int, target: Mapping[str, Any]) -> Iterator[Finding]:
    """An engine that is recognized may be replaced by a stranger between two polls, who would be sent the key."""
    given = next((name for name in ("api_key_file", "api_key_env", "headers") if target.get(name)), None)
    if given is not None and target.get("engine") is None:
        message = "is given for a target that names no engine, so that a stranger could be sent it"
        yield Finding(("targets", index, given), message, "write `engine: NAME`, as `inspector adapters` lists it")


def _tls_in_use(index: int, target: Mapping[str, Any]) -> Iterator[Finding]:
    url = target.get("url")
    if target.get("tls") and isinstance(url, str) and not url.startswith("https://"):
        yield Finding(("targets", index, "tls"), "is given for a URL that is not https", "write https:// in url, or take tls out")


def _targets(data: Mapping[str, Any]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    return ((index, target) for index, target in enumerate(_list(data.get("targets"))) if isinstance(target, dict))


def _mapping(value: Any) -> Mapping[str, Any]:
    """The value if it is a mapping, else an empty one: a wrong type is found elsewhere."""
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
