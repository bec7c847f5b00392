"""The status page: a template that lays out the views of the board's entries."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable

from jinja2 import Environment, PackageLoader, StrictUndefined

from inspector import __version__
from inspector.board import Entry
from inspector.judge import worst
from inspector.views import view


class Page:
    """Renders the page. `policy` is the content security policy that goes with it: our own style sheet counts, nothing else runs or loads."""

    def __init__(self) -> None:
        loader = PackageLoader("inspector.web")
        self._environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
        self._style, _, _ = loader.get_source(self._environment, "status.css")
        digest = base64.b64encode(hashlib.sha256(self._style.encode()).digest()).decode()
        self.policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

    def render(self, entries: Iterable[Entry], now: float, refresh: int) -> str:
        """The page as HTML. `now` is Unix seconds; a browser asks again after `refresh` seconds."""
        targets = [view(entry, now) for entry in entries]
        level = worst([t.level for t in targets])
        template = self._environment.get_template("status.html")
        return template.render(targets=targets, level=level, refresh=refresh, version=__version__, style=self._style)
