"""Shared by all tests."""

import os

import pytest
from hypothesis import settings

# No deadline: the machine may be busy. Before a change lands the examples are the same each time; elsewhere new ones are tried.
settings.register_profile("everywhere", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") == "true" else "everywhere")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
