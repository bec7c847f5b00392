"""Fixtures that give real engines and models to tests: `pytest_plugins = ["engines.fixtures"]`."""

from __future__ import annotations

from pathlib import Path

import pytest

from engines.builds import Build, CurrentBuild, MissingEngineError, build_10068, build_10434, current_build, missing
from inspector.demo import DemoError
from inspector.demo.model import write_tiny_model


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GGUF file of 0.5 MB, trained context 8192."""
    try:
        return write_tiny_model(tmp_path_factory.mktemp("model") / "tiny.gguf")
    except DemoError as error:
        missing(str(error))


@pytest.fixture(scope="session")
def two_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the models `ant` and `bee`, for a router."""
    folder = tmp_path_factory.mktemp("models")
    try:
        for name in ("ant", "bee"):
            write_tiny_model(folder / f"{name}.gguf")
    except DemoError as error:
        missing(str(error))
    return folder


@pytest.fixture(scope="session")
def b10434(tiny_model: Path) -> Build:
    """llama-server of August 2026: reading /metrics wakes a sleeping model."""
    try:
        return build_10434(tiny_model)
    except MissingEngineError as error:
        missing(str(error))


@pytest.fixture(scope="session")
def b10068(tiny_model: Path) -> Build:
    """llama-server of July 2026: /slots and /metrics also wait for a running decode."""
    try:
        return build_10068(tiny_model)
    except MissingEngineError as error:
        missing(str(error))


@pytest.fixture(scope="session")
def current() -> CurrentBuild:
    """llama.cpp's server of October 2026: reading /metrics does not wake a sleeping model."""
    try:
        return current_build()
    except MissingEngineError as error:
        missing(str(error))
