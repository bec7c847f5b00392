"""What may be shown of a server's reply: what is named here, and nothing else, for all other text may be a prompt, a key or a path. Pure.

Requests decide much of what a server answers: keys of /slots, schemas, labels. So a key or a label that is not in a list is left out, with all below it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from pydantic_core import from_json

HIDDEN = "(hidden)"
LEFT_OUT = "…"
"""The key under which a mapping tells how many keys were left out of it."""

OPENED = frozenset({"architecture", "data", "default_generation_settings", "error", "meta", "next_token", "status"})
"""Keys whose mappings, and lists of mappings, are looked into."""

CLOSED = frozenset({"args", "params"})
"""Keys whose presence tells something, and whose content is left out: the client's request, and a command line."""

NUMBERS = frozenset(
    [
        *(
            "id",
            "id_task",
            "n_ctx",
            "n_ctx_train",
            "n_decoded",
            "n_remain",
            "n_predict",
            "n_prompt_tokens",
            "n_prompt_tokens_cache",
            "n_prompt_tokens_processed",
        ),
        *("n_params", "n_vocab", "n_embd", "vocab_type", "size", "total_slots", "slots_idle", "slots_processing", "state", "speculative", "truncated"),
        *("is_processing", "is_sleeping", "has_next_token", "endpoint_metrics", "endpoint_props", "endpoint_slots", "max_instances", "models_autoload"),
        *("created", "max_model_len", "code", "failed", "exit_code"),
    ]
)
"""Keys whose numbers, truth values and nulls are shown."""

NAMES = frozenset({"id", "model", "model_alias", "model_name", "model_path", "parent"})
"""Keys, and labels, that name a model. Of a path only the base name is kept."""

_WORD = re.compile(r"[a-z_]{1,40}")
TEXTS: Mapping[str, re.Pattern[str]] = {
    "build_info": re.compile(r"b\d{1,9}-[0-9a-z]{1,40}"),
    "error": re.compile(r"Unauthorized"),
    "message": re.compile(r"Loading model", re.IGNORECASE),
    "model_ftype": re.compile(r"(?:all|mostly|unknown)[\w ,.-]{0,60}"),
    "object": re.compile(r"list|model|model_permission"),
    "owned_by": re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,31}"),
    "role": _WORD,
    "status": re.compile(r"ok|error|loading model|no slot available|unavailable|loaded|loading|sleeping|unloaded"),
    "type": _WORD,
    "value": _WORD,
    "version": re.compile(r"\d+\.\d+[\w.+-]{0,60}"),
}
"""Keys whose text says what server this is and how it is, with all that it may look like."""

TELLING_TEXT = re.compile(r"[\w .:+@()-]{1,100}")

FAMILY = re.compile(r"(?:llamacpp|vllm):\w+|process_start_time_seconds")
"""The metrics that are shown."""

LABELS = frozenset(
    [
        *(
            "engine",
            "pid",
            "le",
            "model_name",
            "sleep_state",
            "finished_reason",
            "block_size",
            "cache_dtype",
            "enable_prefix_caching",
            "gpu_memory_utilization",
        ),
        *("kv_cache_size_tokens", "kv_cache_max_concurrency", "num_cpu_blocks", "num_gpu_blocks", "num_gpu_blocks_override", "sliding_window"),
    ]
)
_LABEL_TEXT = re.compile(r"[+-]?(?:\d[\d.eE+-]{0,30}|Inf)|[A-Za-z][A-Za-z0-9_]{0,20}")

_COMMENT = re.compile(r"#\s*(?:(TYPE)\s+([\w:]+)\s+(\w+)|(?:HELP|UNIT|EOF)\b.*)")
_NAME = re.compile(r"[A-Za-z_:][\w:]*")
_LABEL = re.compile(r"\s*([A-Za-z_]\w*)\s*=\s*\"((?:[^\"\\]++|\\.)*+)\"\s*(?:,|(?=\}))")
_VALUE = re.compile(r"\s+([-+]?(?:[0-9.]+(?:[eE][-+]?[0-9]+)?|Inf|NaN))(?:\s+[-0-9.]+)?(?:\s+#.*)?\s*", re.ASCII)

HEADERS: Mapping[str, tuple[re.Pattern[str], str]] = {
    "server": (re.compile(r"llama\.cpp|uvicorn|BaseHTTP/\d{1,3}\.\d{1,3}", re.IGNORECASE), "other"),
    "content-type": (re.compile(r"[a-z]{1,20}/[a-z0-9.+-]{1,40}(?![^\s;])", re.IGNORECASE), HIDDEN),
    "process-start-time-unix": (re.compile(r"\d{1,12}(?:\.\d{1,12})?\Z"), HIDDEN),
}
"""What is shown of a header: how it begins, or what stands in its place."""


def masked_body(body: bytes) -> str | None:
    """A body that may be shown, as text: masked JSON, or the known metrics of a Prometheus exposition. None for anything else."""
    try:
        value = from_json(body, cache_strings="none")
    except (ValueError, RecursionError):
        return _exposition(body)
    return json.dumps(masked_json(value), ensure_ascii=False)


def masked_json(value: Any, key: str = "data") -> Any:
    """JSON with the known keys only. Lists keep their mappings alone: text and numbers in them may be tokens of a prompt."""
    match value:
        case dict():
            return _mapping(value) if key in OPENED else {}
        case list():
            return [masked_json(v, key) for v in value if isinstance(v, dict)] if key in OPENED else []
        case str():
            return _text(value, key)
        case _:
            return value if key in NUMBERS or (value is None and (key in NAMES or key in TEXTS)) else HIDDEN


def telling(value: str) -> str:
    """A name without the path in front of it; hidden if it is more than a name."""
    name = PurePosixPath(value.replace("\\", "/")).name
    return name if TELLING_TEXT.fullmatch(name) else HIDDEN


def masked_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers that say what server this is, of each what is known of it."""
    return {name: _header(name.lower(), said.strip()) for name, said in headers.items() if name.lower() in HEADERS}


def _header(name: str, said: str) -> str:
    pattern, other = HEADERS[name]
    found = pattern.match(said)
    return found[0] if found else other


def _mapping(value: Mapping[Any, Any]) -> dict[str, Any]:
    known = OPENED | CLOSED | NUMBERS | NAMES | TEXTS.keys()
    shown = {key: masked_json(inner, key) for key, inner in value.items() if key in known}
    return shown if len(shown) == len(value) else {**shown, LEFT_OUT: len(value) - len(shown)}


def _text(value: str, key: str) -> str:
    if key in NAMES:
        return telling(value)
    return value if key in TEXTS and TEXTS[key].fullmatch(value) else HIDDEN


def _exposition(body: bytes) -> str | None:
    """The lines of known metrics, with known labels, without help and exemplars. None if any line is none of the format."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return None
    lines = [_line(line.strip()) for line in text.split("\n")]
    if not text.strip() or None in lines:
        return None
    shown = "\n".join(line for line in lines if line)
    return f"{shown}\n" if shown and text.endswith("\n") else shown


def _line(line: str) -> str | None:
    """The line as it may be shown, empty if it may not; None if it is no line of an exposition."""
    if not line:
        return ""
    if line.startswith("#"):
        comment = _COMMENT.fullmatch(line)
        return None if comment is None else line if comment[1] and FAMILY.fullmatch(comment[2]) and _WORD.fullmatch(comment[3]) else ""
    name = _NAME.match(line)
    if name is None:
        return None
    labels, at = [], name.end()
    if line.startswith("{", at):
        at += 1
        while found := _LABEL.match(line, at):
            labels.append((found[1], found[2]))
            at = found.end()
        at = line.find("}", at, at + 1) + 1 or len(line)
    value = _VALUE.fullmatch(line, at)
    if value is None:
        return None
    return f"{name[0]}{_labels(labels)} {value[1]}" if FAMILY.fullmatch(name[0]) else ""


def _labels(labels: list[tuple[str, str]]) -> str:
    shown = ",".join(f'{name}="{_label(name, said)}"' for name, said in labels if name in LABELS)
    return f"{{{shown}}}" if shown else ""


def _label(name: str, said: str) -> str:
    if name in NAMES:
        return telling(re.sub(r"\\(.)", r"\1", said))
    return said if _LABEL_TEXT.fullmatch(said) else HIDDEN
