"""A model's own file as plain data: the metadata in a GGUF file's head, or a Hugging Face config.json. Blocking.

Both are read without trust and within bounds: what is long, such as a vocabulary, is passed over and never held.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from pydantic_core import from_json

from inspector.contract import ModelFile
from inspector.local.weights import MOST_FILES, PART, PATTERNS, _tensor_bytes
from inspector.reading import LARGEST_COUNT

LARGEST_CONFIG = 2**20
LARGEST_HEAD = 256 * 2**20
MOST_ENTRIES = 16_384
MOST_ITEMS = 5_000_000
KEPT_ITEMS = 4096
"""A list for the layers is shorter, a vocabulary longer."""
KEPT_TEXT = 256
KEPT_VALUES = 500_000
"""Numbers of all lists together."""

FORMS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""The format's numbers for the types of values, as `struct` names them."""
STRING, ARRAY = 8, 9
PASSED = object()


class ModelFileError(ValueError):
    """A file that cannot be planned from: what is wrong with it, and what to do."""


def read_gguf(file: Path) -> ModelFile:
    """Raises ModelFileError for what is no GGUF file, is cut, or holds what cannot be."""
    try:
        with _opened(file) as content:
            values = _Head(content).values()
    except OSError as error:
        raise ModelFileError(f"cannot be read ({error.strerror or 'not a file'}); name a GGUF file") from None
    architecture = values.get("general.architecture")
    if not isinstance(architecture, str):
        raise ModelFileError("states no general.architecture; name a GGUF file of a model")
    return ModelFile("gguf", architecture, values, _gguf_weights(file))


def read_config(file: Path) -> ModelFile:
    """Raises ModelFileError for what is no JSON object with a model_type."""
    try:
        with _opened(file) as content:
            raw = content.read(LARGEST_CONFIG + 1)
    except OSError as error:
        raise ModelFileError(f"cannot be read ({error.strerror or 'not a file'}); name a model's config.json") from None
    if len(raw) > LARGEST_CONFIG:
        raise ModelFileError("is larger than any config.json; name a model's config.json")
    try:
        values = from_json(raw, cache_strings="none")
    except (ValueError, RecursionError, OverflowError):
        raise ModelFileError("is not JSON; name a model's config.json") from None
    if not isinstance(values, dict):
        raise ModelFileError("is no JSON object; name a model's config.json")
    architecture = values.get("model_type")
    if not isinstance(architecture, str) or not architecture.isprintable() or not 0 < len(architecture) <= KEPT_TEXT:
        raise ModelFileError("states no model_type; name a model's config.json")
    return ModelFile("config", architecture, values, _folder_weights(file.parent))


def trained_context(model: ModelFile) -> int | None:
    """The context length in tokens that the model was made for, None where its file does not say."""
    if model.kind == "gguf":
        return _length(model.values.get(f"{model.architecture}.context_length"))
    inner = model.values.get("text_config")
    parts = [inner if isinstance(inner, Mapping) else {}, model.values]
    return next((length for part in parts if (length := _length(part.get("max_position_embeddings"))) is not None), None)


def _length(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= LARGEST_COUNT else None


def _opened(file: Path) -> BinaryIO:
    if file.exists() and not file.is_file():
        raise OSError  # Opening a pipe would wait for ever.
    return file.open("rb")


class _Head:
    """Reads the entries of one file's head."""

    def __init__(self, content: BinaryIO) -> None:
        self._content = content
        self._kept = 0

    def values(self) -> dict[str, Any]:
        if self._content.read(4) != b"GGUF":
            raise ModelFileError("is no GGUF file; name a file that ends in .gguf")
        if not 2 <= self._number("I") <= 100:
            raise ModelFileError("is a GGUF file of a version that cannot be read; convert the model again")
        self._number("Q")
        entries = self._number("Q")
        if entries > MOST_ENTRIES:
            raise _broken()
        found: dict[str, Any] = {}
        for _ in range(entries):
            key = self._text(longest=65535)
            value = self._value(self._number("I"))
            if value is not PASSED and len(key) <= KEPT_TEXT:
                found[key] = value
        self._check_end()
        return found

    def _check_end(self) -> None:
        """Passing over what is not there goes unnoticed until here."""
        at = self._content.tell()
        if self._content.seek(0, 2) < at:
            raise _cut()

    def _value(self, kind: int) -> Any:
        if kind == STRING:
            return self._short_text()
        if kind == ARRAY:
            return self._array(self._number("I"), self._number("Q"))
        return self._number(_form(kind))

    def _array(self, kind: int, length: int) -> Any:
        if length > MOST_ITEMS:
            raise _broken()
        if kind == STRING:
            for _ in range(length):
                self._pass(self._number("Q"))
            return PASSED
        form = _form(kind)
        size = struct.calcsize("<" + form) * length
        if length > KEPT_ITEMS or self._kept + length > KEPT_VALUES:
            self._pass(size)
            return PASSED
        self._kept += length
        return list(struct.unpack(f"<{length}{form}", self._read(size)))

    def _short_text(self) -> Any:
        length = self._number("Q")
        if length > KEPT_TEXT:
            self._pass(length)
            return PASSED
        return self._read(length).decode(errors="replace")

    def _text(self, longest: int) -> str:
        length = self._number("Q")
        if length > longest:
            raise _broken()
        return self._read(length).decode(errors="replace")

    def _number(self, form: str) -> Any:
        (value,) = struct.unpack("<" + form, self._read(struct.calcsize("<" + form)))
        return value

    def _read(self, length: int) -> bytes:
        data = self._content.read(length)
        if len(data) < length:
            raise _cut()
        return data

    def _pass(self, length: int) -> None:
        if length > LARGEST_HEAD or self._content.tell() > LARGEST_HEAD:
            raise _broken()
        self._content.seek(length, 1)


def _form(kind: int) -> str:
    if kind not in FORMS:
        raise _broken()
    return FORMS[kind]


def _cut() -> ModelFileError:
    return ModelFileError("ends in its head; download it again")


def _broken() -> ModelFileError:
    return ModelFileError("holds what no GGUF file can; download it again")


def _gguf_weights(file: Path) -> int | None:
    """Bytes of all tensors, over all parts of a model that is split; None where a part is not here."""
    found = PART.search(file.name)
    files = [file]
    if found is not None:
        parts = int(found["parts"])
        if not 0 < parts <= MOST_FILES:
            return None
        files = [file.with_name(f"{file.name[: found.start()]}-{number:05}-of-{parts:05}.gguf") for number in range(1, parts + 1)]
    return _sum(files)


def _folder_weights(folder: Path) -> int | None:
    """Bytes of the safetensors beside a config.json; None where there are none."""
    for pattern in PATTERNS:
        files = sorted(folder.glob(pattern))
        if files:
            return _sum(files) if len(files) <= MOST_FILES else None
    return None


def _sum(files: list[Path]) -> int | None:
    try:
        return sum(_tensor_bytes(file) for file in files)
    except (OSError, ValueError):
        return None
