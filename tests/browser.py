"""Chromium without a window, driven over the pipe of its DevTools protocol. No library is needed: a message is JSON that ends with a zero byte."""

from __future__ import annotations

import base64
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PATIENCE = 60.0
"""Seconds that an answer may take on a busy machine."""

# The browser reads commands from its file descriptor 3 and answers on 4.
LAUNCHER = "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); os.execv(sys.argv[3], sys.argv[3:])"

FLAGS = (
    "--headless=new",
    "--no-sandbox",  # Chromium refuses to run as root with one, and it only ever sees pages of these tests.
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-component-update",
    "--disable-background-networking",
    "--no-first-run",
    "--no-default-browser-check",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--remote-debugging-pipe",
)


class BrowserError(Exception):
    """The browser refused a command, ended, or did not answer in time."""


@dataclass
class Browser:
    """One page of a browser. `events` holds what came since the page was opened: (method, parameters)."""

    to: int
    back: int
    session: str = ""
    events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    _last: int = 0
    _rest: bytes = b""

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The result of a command. Raises BrowserError."""
        self._last += 1
        message = {"id": self._last, "method": method, "params": parameters} | ({"sessionId": self.session} if self.session else {})
        os.write(self.to, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + PATIENCE
        while True:
            told = self._next(deadline)
            if told.get("id") == self._last:
                if "error" in told:
                    raise BrowserError(f"{method}: {told['error']['message']}")
                return dict(told["result"])

    def wait(self, holds: Callable[[], Any], what: str) -> Any:
        """The first true value of `holds`, asked again and again."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            try:
                found = holds()
            except BrowserError:  # Asked in the middle of a refresh, when the page's context is gone.
                found = None
            if found:
                return found
            time.sleep(0.1)
        raise BrowserError(f"{what} did not come to hold in {PATIENCE:g} s")

    def open(self, url: str) -> None:
        """Loads a page to its end, from nowhere: between fragments of one page nothing would be loaded. Forgets what came before."""
        self.call("Page.navigate", url="about:blank")
        self.wait(lambda: self.evaluate("location.href") == "about:blank", "an empty page")
        self.events.clear()
        answer = self.call("Page.navigate", url=url)
        if answer.get("errorText"):
            raise BrowserError(f"{url}: {answer['errorText']}")
        self.wait(lambda: self.evaluate("document.readyState") == "complete" and self.evaluate("location.href") != "about:blank", f"loading {url}")

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression, evaluated by the debugger: the page itself may be forbidden to run any."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise BrowserError(result["exceptionDetails"].get("exception", {}).get("description", result["exceptionDetails"]["text"]))
        return result["result"].get("value")

    def seen(self, method: str) -> list[dict[str, Any]]:
        """Parameters of every event of this name."""
        self.call("Page.getNavigationHistory")  # What was sent before its answer has arrived.
        return [parameters for name, parameters in self.events if name == method]

    def look(self, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """The size of the window, in CSS pixels, and the colour scheme that the reader prefers."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=2 if width < 600 else 1, mobile=width < 600)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def screenshot(self, path: Path) -> None:
        """The whole page as a PNG."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], 8000), "scale": 1}
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)["data"]))

    def _next(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self.back], [], [], max(0.0, deadline - time.monotonic()))
            more = os.read(self.back, 1 << 16) if ready else b""
            if not more:
                raise BrowserError("the browser ended" if ready else f"the browser did not answer in {PATIENCE:g} s")
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\0")
        told: dict[str, Any] = json.loads(line)
        if "method" in told:
            self.events.append((told["method"], told["params"]))
        return told


@contextmanager
def browser(program: str, profile: Path) -> Iterator[Browser]:
    """A browser with one empty page whose console and network are listened to; it ends with the block. `profile` is an empty folder for its own files."""
    commands, to = os.pipe()
    back, answers = os.pipe()
    arguments = [sys.executable, "-c", LAUNCHER, str(commands), str(answers), program, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
    with (profile / "browser.log").open("wb") as log:
        process = subprocess.Popen(arguments, pass_fds=(commands, answers), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    os.close(commands)
    os.close(answers)
    try:
        made = Browser(to, back)
        page = next(target for target in made.wait(lambda: made.call("Target.getTargets")["targetInfos"], "a page") if target["type"] == "page")
        made.session = made.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "Audits"):
            made.call(f"{domain}.enable")
        yield made
        made.session = ""
        made.call("Browser.close")
    finally:
        os.close(to)
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        os.close(back)
