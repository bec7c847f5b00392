"""The bytes of a GGUF file's tensors, from its head: all that lies behind it."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import BinaryIO

SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
"""Bytes of a value, by the format's number for its type."""
STRING, ARRAY = 8, 9

LARGEST_HEAD = 256 * 2**20
MOST_ENTRIES = 5_000_000
ALIGNMENT = "general.alignment"


def gguf_tensor_bytes(file: Path) -> int:
    """Raises ValueError for a file that is no GGUF of version 2 or newer, OSError where it cannot be read."""
    size = file.stat().st_size
    with file.open("rb") as content:
        if content.read(4) != b"GGUF" or not 2 <= _number(content, "<I") <= 100:
            raise ValueError("not a GGUF file")
        tensors, entries = _number(content, "<Q"), _number(content, "<Q")
        if max(tensors, entries) > MOST_ENTRIES:
            raise ValueError("an impossible number of entries")
        alignment = 32
        for _ in range(entries):
            alignment = _entry(content) or alignment
        for _ in range(tensors):
            _pass_string(content)
            dimensions = _number(content, "<I")
            _pass(content, min(dimensions, 64) * 8 + 4 + 8)
        start = -(-content.tell() // alignment) * alignment
    if start > size:
        raise ValueError("the file ends in its head")
    return size - start


def _entry(content: BinaryIO) -> int | None:
    """Passes over one entry; the alignment, if it is that."""
    key = _text(content)
    kind = _number(content, "<I")
    if key == ALIGNMENT and kind == 4:
        alignment = _number(content, "<I")
        if not 0 < alignment <= 2**20:
            raise ValueError("an impossible alignment")
        return alignment
    _pass_value(content, kind)
    return None


def _pass_value(content: BinaryIO, kind: int) -> None:
    if kind == STRING:
        _pass_string(content)
    elif kind != ARRAY:
        _pass(content, SIZES.get(kind, -1))
    else:
        inner, length = _number(content, "<I"), _number(content, "<Q")
        if length > MOST_ENTRIES:
            raise ValueError("an impossible list")
        if inner in SIZES:
            _pass(content, SIZES[inner] * length)
        else:
            for _ in range(length):
                _pass_string(content) if inner == STRING else _refuse()


def _refuse() -> None:
    raise ValueError("a list of an unknown kind")


def _pass_string(content: BinaryIO) -> None:
    _pass(content, _number(content, "<Q"))


def _text(content: BinaryIO) -> str:
    length = _number(content, "<Q")
    if length > 65535:
        raise ValueError("an impossible key")
    return content.read(length).decode(errors="replace")


def _pass(content: BinaryIO, length: int) -> None:
    if not 0 <= length <= LARGEST_HEAD or content.tell() > LARGEST_HEAD:
        raise ValueError("an impossible length")
    content.seek(length, 1)


def _number(content: BinaryIO, form: str) -> int:
    data = content.read(struct.calcsize(form))
    if len(data) < struct.calcsize(form):
        raise ValueError("the file ends in its head")
    return int(struct.unpack(form, data)[0])
