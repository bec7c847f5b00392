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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests with a real Prometheus, Alertmanager, browser or terminal take minutes: `make test-stack` and CI run them."""
    if os.environ.get("CI") == "true" or os.environ.get("INSPECTOR_STACK") == "1":
        return
    for item in items:
        if item.get_closest_marker("stack"):
            item.add_marker(pytest.mark.skip(reason="needs Prometheus, Alertmanager, Chromium or tmux: `make test-stack` runs it"))
