"""Bodies that no server should send and some do: whole ones, and damage to recorded ones."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias
from zlib import crc32

from inspector.reading import Reason, Unknown

MARKER = "MARKER-that-must-not-leave"
"""Stands where prompts, keys and paths stand in a payload."""

STRANGE_KEYS = (MARKER, "prompt", "generated")
"""Keys that hold what users wrote, in some builds, and one that no build has."""

Damage: TypeAlias = tuple[str, Callable[[], bytes]]
"""What is done, and what does it."""

MOST_DAMAGES = 150
"""Damages tried on one body; of more, always the same choice."""

WHOLE: Mapping[str, bytes] = {
    "empty": b"",
    "blank": b" \r\n ",
    "HTML": b"<!doctype html><html><body><h1>502 Bad Gateway</h1></body></html>",
    "null": b"null",
    "true": b"true",
    "an empty list": b"[]",
    "an empty object": b"{}",
    "a list of objects": b"[{}, {}, null, 7]",
    "a number": b"0",
    "a string": b'"ok"',
    "NaN": b"NaN",
    "an error with status 200": b'{"error": {"code": 500, "message": "internal", "type": "server_error"}}',
    "deep nesting": b"[" * 100_000,
    "deep nesting that closes": b'{"a":' * 5_000 + b"1" + b"}" * 5_000,
    "binary": bytes(range(256)) * 8,
    "broken UTF-8": b'{"status": "\xff\xfe"}',
    "a five megabyte string": b'"' + b"a" * 5_000_000 + b'"',
    "a text of another engine": b"# TYPE go_goroutines gauge\ngo_goroutines 42\n",
    "event stream": b"data: {}\n\ndata: [DONE]\n\n",
}
"""Bodies out of which no engine's figure can be read."""

NO_ANSWERS: Mapping[str, Unknown] = {
    "unreachable": Unknown(Reason.UNREACHABLE, "the connection was refused"),
    "timeout": Unknown(Reason.TIMEOUT, "no answer in time"),
    "invalid": Unknown(Reason.INVALID, "the body is larger than the cap"),
}
"""What a GET gives when no reply came."""

WRONG: Mapping[str, Any] = {
    "null": None,
    "true": True,
    "negative": -1,
    "a fraction": 0.5,
    "NaN": float("nan"),
    "infinite": float("inf"),
    "huge": 2**70,
    "text": "x",
    "a list": [],
    "an object": {},
}
"""Values that stand in for a recorded one."""

WRONG_SAMPLES = (b"NaN", b"+Inf", b"-1", b"1e400", b"x", b"", b"1 2 3 4", b"0x10")


def damages(body: bytes) -> Iterator[tuple[str, bytes]]:
    """A recorded body with one thing wrong in each: a key dropped or mistyped, a sample's value broken, the end cut off."""
    document = _document(body)
    possible = _json_damages(document) if document is not None else _text_damages(body)
    chosen = sorted(possible, key=lambda damage: crc32(damage[0].encode()))[:MOST_DAMAGES]
    yield from ((name, make()) for name, make in chosen)
    yield from ((f"cut after {share:.0%}", body[: int(len(body) * share)]) for share in (0.1, 0.5, 0.9, 0.99))


def marked(body: bytes) -> bytes:
    """A recorded body with the marker at every place that an adapter must not pass on: unknown keys, folders of paths, unknown samples, comments."""
    document = _document(body)
    if document is not None:
        return json.dumps(_marked_json(document)).encode()
    strange = f'# HELP strange {MARKER}\n# {MARKER}\nstrange_{MARKER.replace("-", "_")}{{prompt="{MARKER}"}} 7\n'
    return strange.encode() + body if body.strip() else body


def _document(body: bytes) -> Any:
    """The JSON object or list of a body, or None."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict | list) else None


def _json_damages(document: Any) -> Iterator[Damage]:
    for path, recorded in _paths(document):
        told = "/".join(map(str, path))
        if not isinstance(path[-1], int):
            yield f"{told} dropped", partial(_changed_json, document, path, drop=True)
        for name, value in WRONG.items():
            if not _may_be(value, recorded):
                yield f"{told} is {name}", partial(_changed_json, document, path, value)


def _may_be(value: Any, recorded: Any) -> bool:
    """Whether a value could as well have been recorded: then another figure is no wonder."""
    return type(value) is type(recorded) and (isinstance(value, bool) or value == 0.5)


def _paths(document: Any, above: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    parts = document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    for key, value in parts:
        yield (*above, key), value
        yield from _paths(value, (*above, key))


def _changed_json(document: Any, path: tuple[str | int, ...], value: Any = None, *, drop: bool = False) -> bytes:
    return json.dumps(_changed(document, path, value, drop=drop)).encode()


def _changed(document: Any, path: tuple[str | int, ...], value: Any = None, *, drop: bool = False) -> Any:
    key, *rest = path
    copy = dict(document) if isinstance(document, dict) else list(document)
    if rest:
        copy[key] = _changed(document[key], tuple(rest), value, drop=drop)  # type: ignore[index]
    elif drop:
        del copy[key]  # type: ignore[arg-type]
    else:
        copy[key] = value  # type: ignore[index]
    return copy


def _text_damages(body: bytes) -> Iterator[Damage]:
    lines = body.split(b"\n")
    for number, line in enumerate(lines):
        if not line.strip() or line.startswith(b"#"):
            continue
        yield f"line {number + 1} dropped", partial(_changed_text, lines, number)
        for value in WRONG_SAMPLES:
            yield f"line {number + 1} says {value.decode()!r}", partial(_changed_text, lines, number, line.rpartition(b" ")[0] + b" " + value)


def _changed_text(lines: Sequence[bytes], number: int, line: bytes | None = None) -> bytes:
    return b"\n".join([*lines[:number], *([] if line is None else [line]), *lines[number + 1 :]])


def _marked_json(document: Any) -> Any:
    if isinstance(document, list):
        return [_marked_json(value) for value in document]
    if isinstance(document, dict):
        return {
            **{key: _marked_json(value) for key, value in document.items()},
            **{key: MARKER for key in (MARKER, "prompt", "generated") if key not in document},
        }
    if isinstance(document, str) and document.startswith("/"):
        return f"/{MARKER}{document}"
    return document
