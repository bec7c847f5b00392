"""Versions of mlx-lm: which one runs, and what can be said of it when nobody tells. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TypeAlias

from inspector.reading import Known, Reading

Release: TypeAlias = tuple[int, int, int]

RELEASE = re.compile(r"v?(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}))?(?=$|[.\-+abrd])")

HEALTH_TELLS: Release = (0, 32, 0)
"""From here on /health is 503 when the generation thread has died."""
BATCHING: Release = (0, 28, 4)
"""From here on requests are decoded together; before, one at a time."""
CONCURRENCY_FLAGS: Release = (0, 30, 6)


def release(version: Reading[str]) -> Release | None:
    """The numbers of a version, None where it has none or is not known."""
    found = RELEASE.match(version.value) if isinstance(version, Known) else None
    return (int(found[1]), int(found[2]), int(found[3]) if found[3] else 0) if found else None


def at_least(releases: Iterable[Release]) -> Release | None:
    """The oldest release that has all that was seen of a server; None where nothing was seen."""
    return max(releases, default=None)
