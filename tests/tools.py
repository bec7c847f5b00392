"""Programs of other projects that some tests need. Where one is missing the test is skipped, and says what to install; with CI set it fails."""

from __future__ import annotations

import os
import shutil

import pytest

PACKAGES = {
    "promtool": "prometheus",
    "prometheus": "prometheus",
    "amtool": "prometheus-alertmanager",
    "prometheus-alertmanager": "prometheus-alertmanager",
    "chromium": "chromium",
    "tmux": "tmux",
    "systemd-analyze": "systemd",
}
"""The Debian package of each program."""


def tool(name: str) -> str:
    """The path of a program. Skips the test without it, or fails it where CI is set."""
    path = shutil.which(name)
    if path is not None:
        return path
    missing = f"{name} is needed: install Debian's package {PACKAGES.get(name, name)}"
    if os.environ.get("CI"):
        pytest.fail(missing)
    pytest.skip(missing)
