"""The status page: templates that lay out the views of the board's entries."""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined

from inspector import __version__
from inspector.board import Entry
from inspector.clocks import Clock
from inspector.views import MEANINGS, fleet, now_of, view


class Page:
    """Renders the page. `policy` is the content security policy that goes with it: our own style sheet counts, nothing else runs or loads.

    `monotonic` is the clock of the board's entries: ages on the page do not jump when the wall clock is set.
    """

    def __init__(self, monotonic: Clock = time.monotonic) -> None:
        loader = PackageLoader("inspector.web")
        self._environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
        self._environment.filters["percent"] = percent
        self._monotonic = monotonic
        self._style, _, _ = loader.get_source(self._environment, "status.css")
        digest = base64.b64encode(hashlib.sha256(self._style.encode()).digest()).decode()
        self.policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

    def render(self, entries: Iterable[Entry], now: float, refresh: int, chosen: Sequence[str] = (), troubles: Sequence[str] = ()) -> str:
        """The page as HTML. `now` is Unix seconds; a browser asks again after `refresh` seconds. `chosen`: names that the address asked for, if any;
        `troubles`: what is wrong with the inspector itself."""
        monotonic = self._monotonic()
        seen = fleet(view(entry, now_of(entry, monotonic, now)) for entry in entries)
        template = self._environment.get_template("status.html")
        address = "?" + urlencode([("target", name) for name in chosen]) if chosen else "."
        made = datetime.fromtimestamp(now, UTC)
        told = {"fleet": seen, "made": made, "refresh": refresh, "chosen": chosen, "address": address, "troubles": troubles}
        return template.render(version=__version__, style=self._style, meanings=MEANINGS, **told)


def percent(share: float) -> str:
    """A length for SVG: style attributes would need a policy that allows them."""
    return f"{share:.3%}"
