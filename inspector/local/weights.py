"""Bytes of a model's weights, from the heads of its files: safetensors or GGUF. Paths stay inside the core. Blocking; read once in a server's life."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from inspector.gguf_header import gguf_tensor_bytes
from inspector.local.files import GONE, environ_of, seen_from_here
from inspector.local.process import Process
from inspector.reading import Kind, Known, Origin, Reading, Reason, Unknown

LARGEST_HEAD = 100_000_000
"""Bytes of a safetensors head, by the format."""

MOST_FILES = 1000

PATTERNS = ("model*.safetensors", "adapters.safetensors", "*.safetensors")
"""Weights of a folder: the first that finds some. Other names beside the first are copies in another form, or checkpoints."""

REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")
PART = re.compile(r"-(?P<number>\d{5})-of-(?P<parts>\d{5})\.gguf$")

NOT_NAMED = Unknown(Reason.NO_SOURCE, "the launch settings name no model file or folder")
NOT_FOUND = Unknown(Reason.NO_SOURCE, "the model's files are not found where the launch settings say; state `facts: {weights_bytes: …}`")
NOT_READ = Unknown(Reason.INVALID, "the model's files are neither safetensors nor GGUF that can be read")


def model_folder(process: Process, name: str) -> Path | Unknown:
    """The folder of a model that is named by its path or its repository."""
    files = _files(process, name)
    return files if isinstance(files, Unknown) else files[0].parent


def weights_of(process: Process, named: Sequence[str], now: float) -> Reading[int]:
    """The sum over all that the launch settings name: a model, its draft model, its adapter."""
    if not named:
        return NOT_NAMED
    total, kinds = 0, set()
    for name in named:
        files = _files(process, name)
        if isinstance(files, Unknown):
            return files
        try:
            total += sum(_tensor_bytes(file) for file in files)
        except (OSError, ValueError):
            return NOT_READ
        kinds |= {"GGUF" if file.suffix == ".gguf" else "safetensors" for file in files}
    return Known(total, Origin(Kind.SYSTEM, f"{' and '.join(sorted(kinds))} of the model", now))


def _files(process: Process, name: str) -> Sequence[Path] | Unknown:
    place = seen_from_here(process, name)
    if isinstance(place, Unknown):
        return place
    try:
        if place.is_file():
            return _parts(place)
        if not place.exists() and REPOSITORY.fullmatch(name):
            cached = _cached(process, name)
            if isinstance(cached, Unknown):
                return cached
            place = cached
        for pattern in PATTERNS:
            found = sorted(place.glob(pattern))
            if found:
                return found if len(found) <= MOST_FILES else NOT_READ
    except (OSError, ValueError):
        return NOT_FOUND
    return NOT_FOUND


def _parts(file: Path) -> Sequence[Path]:
    """A GGUF file, or all parts of one that is split."""
    found = PART.search(file.name)
    if found is None:
        return (file,)
    stem, parts = file.name[: found.start()], int(found["parts"])
    if not 0 < parts <= MOST_FILES:
        raise OSError("a split model with an impossible number of parts")
    return [file.with_name(f"{stem}-{number:05}-of-{parts:05}.gguf") for number in range(1, parts + 1)]


def _cached(process: Process, name: str) -> Path | Unknown:
    """The newest snapshot of a repository in the process's Hugging Face cache."""
    environ = environ_of(process)
    home = environ.get("HF_HOME") or (f"{environ['HOME']}/.cache/huggingface" if "HOME" in environ else "")
    hub = environ.get("HF_HUB_CACHE") or (f"{home}/hub" if home else "")
    if not hub:
        return NOT_FOUND
    repository = seen_from_here(process, f"{hub}/models--{name.replace('/', '--')}")
    if isinstance(repository, Unknown):
        return repository
    revision = (repository / "refs" / "main").read_text()[:64].strip()
    return repository / "snapshots" / revision if revision.isalnum() else GONE


def _tensor_bytes(file: Path) -> int:
    if not file.is_file():
        raise OSError("not a file: opening a pipe would wait for ever")
    if file.suffix == ".gguf":
        return gguf_tensor_bytes(file)
    return _safetensors_bytes(file)


def _safetensors_bytes(file: Path) -> int:
    """All behind the head: the format leaves no holes between tensors."""
    with file.open("rb") as content:
        first = content.read(9)
    size = file.stat().st_size
    head = int.from_bytes(first[:8], "little")
    if len(first) < 9 or first[8:] != b"{" or not 2 <= head <= min(LARGEST_HEAD, size - 8):
        raise ValueError("not a safetensors file")
    return size - 8 - head
