"""What may be shown of a server's reply: structure, numbers and names. All other text is replaced, for it may be a prompt, a key or a path. Pure."""

from __future__ import annotations

import json
import re
from pathlib import PurePosixPath
from typing import Any

from pydantic_core import from_json

HIDDEN = "(hidden)"

TELLING_KEYS = frozenset(
    {"build_info", "id", "model", "model_alias", "model_path", "object", "owned_by", "state", "status", "type", "ui_mode", "value", "version"},
)
"""Keys whose text says what server and model this is. Of a path only the base name is kept."""

PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,40}")

TELLING_TEXT = re.compile(r"[\w .:+@()-]{1,100}")

LABEL_PATH = re.compile(rb'="(?:[^"\\\n]|\\.)*[/\\]((?:[^"\\/\n])*)"')
"""A label's value that holds a path."""


def masked_body(body: bytes) -> str | None:
    """A body that may be shown, as text: masked JSON, or a Prometheus exposition without paths. None for anything else."""
    try:
        value = from_json(body, cache_strings="none")
    except (ValueError, RecursionError):
        return _exposition(body)
    return json.dumps(masked_json(value), ensure_ascii=False)


def masked_json(value: Any, key: str = "") -> Any:
    """JSON with every text replaced that is not under a telling key, and without plain lists of text or numbers: those may be tokens of a prompt."""
    match value:
        case dict():
            return {(str(k) if PLAIN_KEY.fullmatch(str(k)) else HIDDEN): masked_json(v, str(k)) for k, v in value.items()}
        case list():
            return [masked_json(v) for v in value if isinstance(v, dict)]
        case str():
            return telling(value) if key in TELLING_KEYS else HIDDEN
        case _:
            return value


def telling(value: str) -> str:
    """A name without the path in front of it; hidden if it is more than a name."""
    name = PurePosixPath(value.replace("\\", "/")).name
    return name if TELLING_TEXT.fullmatch(name) else HIDDEN


def _exposition(body: bytes) -> str | None:
    """A body of the Prometheus text format; its labels hold names, of which only base names are kept."""
    try:
        text = LABEL_PATH.sub(rb'="\1"', body).decode()
    except UnicodeDecodeError:
        return None
    lines = text.splitlines()
    return text if lines and all(_is_exposition(line) for line in lines) else None


LINE = re.compile(r"# (?:HELP|TYPE|UNIT|EOF).*|[A-Za-z_:][\w:]*(?:\{.*\})? +[-+]?(?:[0-9.]+(?:[eE][-+]?[0-9]+)?|Inf|NaN)(?: +[-0-9.]+)?(?: +#.*)?")


def _is_exposition(line: str) -> bool:
    return not line.strip() or LINE.fullmatch(line.strip()) is not None
