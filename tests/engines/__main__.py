"""Gets the real engines ready before the tests: `python -m engines`, run by `make test`.

What cannot be had here is told and left to the tests, which skip it, or fail where the environment says CI=true.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from engines.builds import MissingEngineError, build_10068, build_10434, current_build
from engines.mlx import mlx_python
from inspector.demo import DemoError
from inspector.demo.model import write_tiny_model


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        model = write_tiny_model(Path(folder, "tiny.gguf"))
        engines: dict[str, Callable[[], object]] = {
            "llama.cpp b10434": lambda: build_10434(model),
            "llama.cpp b10068": lambda: build_10068(model),
            "llama.cpp, current": current_build,
            "MLX LM": mlx_python,
        }
        for name, get in engines.items():
            sys.stdout.write(f"engine {name}: ")
            sys.stdout.flush()
            print(_told(get))


def _told(get: Callable[[], object]) -> str:
    try:
        get()
    except (MissingEngineError, pytest.skip.Exception, pytest.fail.Exception) as error:
        return f"not here: {error}"
    return "ready"


if __name__ == "__main__":
    try:
        main()
    except DemoError as error:
        print(f"no engine can be tried: {error}")
