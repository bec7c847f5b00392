"""What `config.json` beside a model's weights says of it. Blocking; read once in a server's life."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from inspector.reading import Kind, Origin, Reading, Reason, Unknown, positive, text

LARGEST = 2**20
NOT_FOUND = Unknown(Reason.NO_SOURCE, "no config.json is found beside the model's weights")
BROKEN = Unknown(Reason.INVALID, "config.json beside the model's weights cannot be read")


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The model's type as its library calls it, and the context length in tokens that it was made for."""

    type: Reading[str] = NOT_FOUND
    context: Reading[int] = NOT_FOUND


def model_config(folder: Path | Unknown, now: float) -> ModelConfig:
    """Of a folder; never raises."""
    if isinstance(folder, Unknown):
        return ModelConfig(folder, folder)
    file = folder / "config.json"
    if not file.is_file():
        return ModelConfig()  # Opening a pipe would wait for ever.
    try:
        with file.open("rb") as content:
            said = from_json(content.read(LARGEST + 1)[:LARGEST], cache_strings="none")
    except OSError:
        return ModelConfig()
    except (ValueError, RecursionError):
        return ModelConfig(BROKEN, BROKEN)
    return _read(said, now) if isinstance(said, dict) else ModelConfig(BROKEN, BROKEN)


def _read(said: Mapping[str, Any], now: float) -> ModelConfig:
    origin = Origin(Kind.SYSTEM, "config.json of the model", now)
    inner = said.get("text_config")  # Of a model that sees, too.
    parts = [part for part in (said, inner) if isinstance(part, dict)]
    lengths = [part["max_position_embeddings"] for part in parts if "max_position_embeddings" in part]
    context = positive(lengths[0], origin, "max_position_embeddings of the model") if lengths else Unknown(Reason.NOT_REPORTED, "config.json tells no length")
    return ModelConfig(text(said.get("model_type"), origin, "model_type of the model"), context)
