"""Metadata of a GGUF file, checked: whole numbers in range, or the unknown that says which key is wrong. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from inspector.contract import ModelFile
from inspector.reading import Reason, Unknown

MOST_LAYERS = 512
LARGEST = 2**31


class UnprovedError(Exception):
    """Why nothing can be said; it never leaves the adapter."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.unknown = Unknown(reason, detail)


class Metadata:
    """The keys of one architecture, named without its prefix."""

    def __init__(self, model: ModelFile) -> None:
        self.architecture = model.architecture
        self._values: Mapping[str, Any] = model.values

    def has(self, name: str) -> bool:
        return self._key(name) in self._values

    def whole(self, name: str, default: int | None = None) -> int:
        """A whole number; without a `default` it must be there."""
        if not self.has(name):
            if default is None:
                raise UnprovedError(Reason.NOT_REPORTED, f"the model's file does not state {self._key(name)}")
            return default
        return self._checked(name, self._values[self._key(name)])

    def positive(self, name: str, default: int | None = None) -> int:
        value = self.whole(name, default)
        if value == 0:
            raise UnprovedError(Reason.INVALID, f"{self._key(name)} in the model's file is zero where there must be some")
        return value

    def each(self, name: str, layers: int, default: Sequence[int] | None = None) -> Sequence[int]:
        """A number for each layer: the file states one for all, or a list."""
        if not self.has(name) and default is not None:
            return default
        value = self._values.get(self._key(name))
        if not isinstance(value, list | tuple):
            return (self.whole(name),) * layers
        if len(value) != layers:
            raise UnprovedError(Reason.INVALID, f"{self._key(name)} in the model's file is not of the model's length")
        return tuple(self._checked(name, each) for each in value)

    def listed(self, name: str, layers: int) -> tuple[bool, ...] | None:
        """A yes or no for each layer, None where the file lists nothing."""
        value = self._values.get(self._key(name))
        if not isinstance(value, list | tuple):
            return None
        if len(value) != layers or not all(isinstance(each, int) and 0 <= each <= 1 for each in value):
            raise UnprovedError(Reason.INVALID, f"{self._key(name)} in the model's file is not a list of layers")
        return tuple(bool(each) for each in value)

    def _key(self, name: str) -> str:
        return f"{self.architecture}.{name}"

    def _checked(self, name: str, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < LARGEST:
            raise UnprovedError(Reason.INVALID, f"{self._key(name)} in the model's file is not a whole number in range")
        return value
