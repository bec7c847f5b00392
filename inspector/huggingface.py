"""A Hugging Face config.json, read without trust: what is absent, of another kind or out of range is an unknown that names the field, never an exception."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from inspector.contract import ModelFile
from inspector.reading import Reason, Unknown

LARGEST = 2**31 - 1
MOST_LAYERS = 4096
NAME_LENGTH = 60


class UnfitError(Exception):
    """Carries the unknown from a field to the function that answers; it never leaves the adapter."""

    def __init__(self, unknown: Unknown) -> None:
        super().__init__(unknown.detail)
        self.unknown = unknown


@dataclass(frozen=True, slots=True)
class HuggingFaceConfig:
    """The part of the file that describes the text model, and the whole of it. Every getter raises `UnfitError` for what it cannot give."""

    text: Mapping[str, Any]
    whole: Mapping[str, Any]

    @property
    def model_type(self) -> str:
        """Of the text model, as the file says it; never longer than a name."""
        found = self.text.get("model_type")
        if not isinstance(found, str) or not found.isprintable() or not 0 < len(found) <= NAME_LENGTH:
            raise UnfitError(Unknown(Reason.INVALID, "config.json: model_type is missing or no name"))
        return found

    @property
    def outer_type(self) -> str:
        """Of the whole file: differs from `model_type` where a text model is part of a bigger one."""
        found = self.whole.get("model_type")
        return found[:NAME_LENGTH] if isinstance(found, str) and found.isprintable() else self.model_type

    def has(self, name: str) -> bool:
        """The field is there and not null."""
        return self.text.get(name) is not None

    def number(self, name: str, default: int | None = None) -> int:
        """A whole number above zero; `default` where the field is absent or null."""
        value = self.text.get(name)
        if value is None and default is not None:
            return default
        if value is None:
            raise UnfitError(Unknown(Reason.NOT_REPORTED, f"config.json does not state {name}"))
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= LARGEST:
            raise UnfitError(Unknown(Reason.INVALID, f"config.json: {name} is no whole number above zero"))
        return value

    def layers(self) -> int:
        number = self.number("num_hidden_layers")
        if number > MOST_LAYERS:
            raise UnfitError(Unknown(Reason.INVALID, f"config.json: num_hidden_layers is above {MOST_LAYERS}"))
        return number

    def head_dim(self) -> int:
        """As stated, else hidden size over heads."""
        if self.has("head_dim"):
            return self.number("head_dim")
        return max(1, self.number("hidden_size") // self.number("num_attention_heads"))

    def layer_types(self) -> tuple[str, ...] | None:
        """The kind of each layer, None where the file does not list them."""
        value = self.text.get("layer_types")
        if value is None:
            return None
        if not isinstance(value, list) or len(value) != self.layers() or not all(isinstance(kind, str) for kind in value):
            raise UnfitError(Unknown(Reason.INVALID, "config.json: layer_types is no list of one name for each layer"))
        return tuple(value)

    def dtype(self) -> str:
        """Of the weights: "bfloat16" and the like."""
        for part, name in ((self.text, "dtype"), (self.text, "torch_dtype"), (self.whole, "dtype"), (self.whole, "torch_dtype")):
            value = part.get(name)
            if isinstance(value, str):
                return value.removeprefix("torch.")[:NAME_LENGTH]
        raise UnfitError(Unknown(Reason.NOT_REPORTED, "config.json does not state dtype or torch_dtype"))


def huggingface_config(model: ModelFile) -> HuggingFaceConfig:
    """The config of a model file; raises `UnfitError` where there is none."""
    if model.kind != "config" or not isinstance(model.values, Mapping):
        raise UnfitError(Unknown(Reason.NO_SOURCE, "this engine is planned from a Hugging Face config.json"))
    nested = model.values.get("text_config")
    return HuggingFaceConfig(nested if isinstance(nested, Mapping) else model.values, model.values)


def not_proved(engine: str, what: str) -> UnfitError:
    """For an architecture or a setting whose bytes were not checked against the engine."""
    return UnfitError(Unknown(Reason.NO_SOURCE, f"the KV cache of {what} was not proved against {engine}"))
