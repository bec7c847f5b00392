"""The status page as Chromium renders it: a daemon over recorded servers, and a board with a target of every kind. No script runs anywhere here.

`SCREENSHOTS` names a folder that is to hold what was seen."""

import json
import os
import re
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from anyio.from_thread import start_blocking_portal

from browser import browser
from gallery import BUSY_TOKENS, gallery
from inspector.board import Board
from inspector.server import address_of, bind, serve
from inspector.web.app import Services, application
from recorded_server import BODIES, BUSY, DISABLED, RecordedServer, recorded_server
from tools import tool

pytestmark = pytest.mark.stack

ASLEEP = BODIES.parent / "b10434"

CAPACITY = 2048
"""Tokens of the recorded server's KV cache, as the configuration states them."""

USED = sum(slot["n_prompt_tokens"] for slot in json.loads(BUSY["/slots"][1]) if slot["is_processing"])

SCHEMES = {"light": {}, "dark": {"dark": True}, "narrow": {"width": 360, "height": 740}}

LOOKS = """
const looks = element => {
  const box = element.getBoundingClientRect();
  return {text: element.innerText, width: box.width, height: box.height, seen: element.checkVisibility({visibilityProperty: true, opacityProperty: true})};
};
"""

TOO_FAINT = """(() => {
  const numbers = color => color.match(/[\\d.]+/g).map(Number);
  const light = color => {
    const [r, g, b] = numbers(color).map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = element => {
    for (let e = element; e; e = e.parentElement) {
      const color = getComputedStyle(e).backgroundColor;
      if (numbers(color).length === 3 || numbers(color)[3] > 0) return color;
    }
    return "rgb(255, 255, 255)";
  };
  const faint = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let looked = 0;
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !element.checkVisibility() || element.closest("title")) continue;
    const ink = element.closest("svg") ? getComputedStyle(element).fill : getComputedStyle(element).color;
    const [dim, bright] = [light(ink), light(ground(element))].sort((a, b) => a - b);
    looked += 1;
    if ((bright + 0.05) / (dim + 0.05) < 4.5) faint.push([walker.currentNode.data.trim(), ink, ground(element)]);
  }
  return {looked, faint};
})()"""

BEYOND_THE_EDGE = """(() => [...document.body.querySelectorAll("*")]
  .filter(e => e.checkVisibility() && !e.closest(".scroll, .defs") && e.getBoundingClientRect().right > document.documentElement.clientWidth + 0.5)
  .map(e => e.outerHTML.slice(0, 120)))()"""


# --- What is looked at --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A page that may run no script."""
    with browser(tool("chromium"), tmp_path_factory.mktemp("chromium")) as made:
        made.call("Emulation.setScriptExecutionDisabled", value=True)
        yield made


@dataclass
class Fleet:
    """A running daemon over four servers: `healthy`, `dark` (neither /slots nor /metrics, so its KV cache is unknown), `asleep` and `down`."""

    address: str
    healthy: RecordedServer


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    tool("chromium")
    sleeping = {path: (200, (ASLEEP / f"sleeping-{name}.json").read_bytes()) for path, name in (("/health", "health"), ("/props", "props"))}
    with ExitStack() as stack:
        healthy = stack.enter_context(recorded_server())
        dark = stack.enter_context(recorded_server({**BUSY, "/slots": DISABLED, "/metrics": DISABLED}))
        asleep = stack.enter_context(recorded_server({**sleeping, "/v1/models": BUSY["/v1/models"]}))
        urls = {"healthy": healthy.url, "dark": dark.url, "asleep": asleep.url, "down": "http://127.0.0.1:1"}
        targets = [{"name": name, "url": url, "engine": "llamacpp", "launch": "none"} for name, url in urls.items()]
        targets[0]["facts"] = {"kv_unified": True, "kv_capacity_tokens": CAPACITY}
        config = {"listen": "127.0.0.1:0", "poll": {"interval": "1s"}, "sessions": {"chat": {"prompt": 300, "output": 100}}, "targets": targets}
        file = tmp_path_factory.mktemp("inspector") / "inspector.yaml"
        file.write_text(json.dumps(config))
        address = stack.enter_context(daemon(file))
        yield Fleet(address, healthy)


@contextmanager
def daemon(file):
    """The address of `inspector serve`, once it has polled every target."""
    with (file.parent / "log").open("w+") as log:
        process = subprocess.Popen([sys.executable, "-m", "inspector", "serve", "--config", file, "--log-format", "json"], stderr=log)
        watchdog = threading.Timer(300, process.kill)
        watchdog.start()
        try:
            address = until(lambda: re.search(r'"address": ?"(http://[^"]+)"', Path(log.name).read_text()))[1]
            until(lambda: httpx.get(f"{address}-/ready", trust_env=False).status_code == 200)
            yield address
        finally:
            watchdog.cancel()
            process.terminate()
            process.wait()


@contextmanager
def served(board: Board):
    """The address of our web server over a board."""
    listener = bind("127.0.0.1", 0)
    address = f"http://{address_of(listener)}/"

    async def no_probe(_):
        return True

    with start_blocking_portal() as portal:
        future, _ = portal.start_task(serve, application(board, Services(no_probe, lambda: "")), listener)
        yield address
        future.cancel()


@pytest.fixture(scope="module")
def gallery_address():
    tool("chromium")
    with served(gallery(time.time())) as address:
        yield address


def until(holds, patience=60):
    deadline = time.monotonic() + patience
    while not (found := holds()):
        assert time.monotonic() < deadline, "it did not come to hold"
        time.sleep(0.05)
    return found


def card(page, name):
    """The text of a target's card, as far as it is rendered."""
    return page.evaluate(f"document.getElementById('t-{name}').innerText")


def looks(page, selector):
    """Text, size and visibility of every element that matches."""
    return page.evaluate(f"(() => {{ {LOOKS} return [...document.querySelectorAll({json.dumps(selector)})].map(looks) }})()")


def widths(page, selector):
    """Of a bar: the share of its width that each part takes, by the part's class."""
    script = """(() => { const bar = document.querySelector(SELECTOR), whole = bar.getBoundingClientRect();
      return Object.fromEntries([...bar.querySelectorAll("rect")].map(r => [r.getAttribute("class"), r.getBoundingClientRect().width / whole.width])) })()"""
    return page.evaluate(script.replace("SELECTOR", json.dumps(selector)))


# --- Four servers -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("healthy", ["ok", "ready", "43% free", "3 busy, 1 idle"]),
        ("asleep", ["ok", "sleeping", "the server is sleeping"]),
        ("dark", ["unknown", "ready", "unknown (would_wake)"]),
        ("down", ["critical", "unreachable"]),
    ],
)
def test_each_state_is_said_in_words(page, fleet, name, words):
    page.open(fleet.address)
    shown = card(page, name)
    assert [word for word in words if word not in shown] == []


def test_every_unknown_is_there_to_be_read_with_its_reason_and_its_remedy(page, fleet):
    reported = httpx.get(f"{fleet.address}api/v1/targets", trust_env=False).json()["targets"]
    page.open(fleet.address)
    looked = 0
    for target in reported:
        groups = looks(page, f"#t-{target['target']} .unknowns li")
        assert all(group["seen"] and group["width"] > 0 and group["height"] > 0 for group in groups)
        for pool in target["pools"]:
            for field, value in pool["fields"].items():
                if value["value"] is None:
                    derived = re.fullmatch(r"(.*) \((\w+)\)", value["detail"]) if value["reason"] == "derived_from_unknown" else None
                    remedy, reason = derived.groups() if derived else (value["detail"], value["reason"])
                    mine = [group["text"] for group in groups if re.search(rf"\b{field}\b", group["text"])]
                    assert len(mine) == 1, field
                    assert f"unknown ({reason})" in mine[0]
                    assert remedy in mine[0]
                    looked += 1
    assert looked > 30


@pytest.mark.parametrize("name", ["asleep", "dark", "down"])
def test_where_the_kv_cache_is_unknown_there_is_neither_a_bar_nor_a_zero(page, fleet, name):
    page.open(fleet.address)
    assert page.evaluate(f"document.querySelectorAll('#t-{name} .bar').length") == 0
    assert [
        seen["text"]
        for seen in looks(page, f"#t-{name} p.unknown, #t-{name} dd.unknown, #t-{name} td.unknown, #t-{name} tr.unknown")
        if re.search(r"\b0\b", seen["text"])
    ] == []
    line = page.evaluate(f"[...document.querySelectorAll('.fleet li')].find(e => e.innerText.startsWith('{name}')).innerText")
    assert not re.search(r"\d", line)


def test_bars_are_in_proportion(page, fleet):
    page.look()
    page.open(fleet.address)
    for selector in ("#t-healthy .bar[aria-label^='KV cache']", ".fleet .bar"):
        shown = widths(page, selector)
        assert shown["used"] == pytest.approx(USED / CAPACITY, abs=0.02)
        assert shown["free"] == pytest.approx(1 - USED / CAPACITY, abs=0.02)
    assert f"{USED:,} used" in card(page, "healthy")


def test_nothing_is_asked_of_anyone_else_and_the_console_stays_empty(page, fleet):
    page.open(fleet.address)
    asked = {event["request"]["url"] for event in page.seen("Network.requestWillBeSent")}
    assert asked
    assert {url for url in asked if not url.startswith(fleet.address)} == set()
    for complaint in ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Audits.issueAdded"):
        assert page.seen(complaint) == []


def test_the_browser_would_have_told_of_what_the_policy_forbids(page, fleet):
    """That the console stays empty proves nothing unless a violation is heard."""
    page.open(fleet.address)
    page.evaluate("document.body.setAttribute('style', 'color: red')")
    assert any("Content Security Policy" in event["entry"]["text"] for event in page.seen("Log.entryAdded"))


@pytest.mark.parametrize("of", ["", "#t-healthy", "?target=healthy"])
def test_it_refreshes_itself_and_keeps_its_place(page, fleet, of):
    page.look(width=1280, height=400)
    page.open(fleet.address + of)
    page.wait(lambda: "3 busy, 1 idle" in card(page, "healthy"), "the first state")
    page.evaluate("window.scrollTo(0, 150)")
    fleet.healthy.bodies |= {"/slots": (200, (BODIES / "slots-idle.json").read_bytes()), "/metrics": (200, (BODIES / "metrics-idle.txt").read_bytes())}
    try:
        page.wait(lambda: "0 busy, 4 idle" in card(page, "healthy"), "the next state")
        assert page.evaluate("window.scrollY") == 150
    finally:
        fleet.healthy.bodies |= BUSY
    page.wait(lambda: "3 busy, 1 idle" in card(page, "healthy"), "the former state, by a second refresh")


# --- A target of every kind ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("of", ["", "?target=ambiguous"])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_text_has_the_contrast_that_wcag_aa_asks_for(page, gallery_address, scheme, of):
    page.look(**SCHEMES[scheme])
    page.open(gallery_address + of)
    found = page.evaluate(TOO_FAINT)
    assert found["looked"] > 100
    assert found["faint"] == []


@pytest.mark.parametrize("of", ["", "?target=ambiguous"])
def test_on_a_telephone_nothing_runs_over_the_edge(page, gallery_address, of):
    page.look(**SCHEMES["narrow"])
    page.open(gallery_address + of)
    assert page.evaluate(BEYOND_THE_EDGE) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_a_capacity_between_bounds_is_hatched_from_the_certain_part_on(page, gallery_address):
    page.look()
    page.open(gallery_address)
    shown = widths(page, "#t-ambiguous .bar[aria-label^='KV cache']")
    # The pool holds 4 x 4,096 tokens, or 65,536: split, three slots of 4,096 are free; shared, all but what is used.
    assert shown["used"] == pytest.approx(BUSY_TOKENS / 65536, abs=0.02)
    assert shown["free"] + shown.get("reclaimable", 0.0) == pytest.approx(min(3 * 4096, 65536 - BUSY_TOKENS) / 65536, abs=0.02)
    assert shown["unsure"] == pytest.approx((65536 - BUSY_TOKENS - 3 * 4096) / 65536, abs=0.02)
    assert page.evaluate("getComputedStyle(document.querySelector('#t-ambiguous rect.unsure')).fill").startswith('url("#hatch")')


def test_alerts_are_told_in_words_on_top_and_on_their_cards(page, gallery_address):
    page.look()
    page.open(gallery_address)
    top = page.evaluate("document.querySelector('.panel').innerText")
    assert "3 alerts firing" in top
    assert "InspectorKvHeadroomLow on batch (pool 0, kv), firing for 4 min, held: what it watches is unknown now" in top
    assert "InspectorSlotsExhausted" not in top
    assert "InspectorSlotsExhausted (pool 0, slots), pending for 4 min" in card(page, "nearly-full")
    assert "InspectorHeadroomUnknown (warning): kv headroom has been unknown for 12 min" in card(page, "dark")


def test_the_fleet_stands_with_the_worst_and_fullest_first(page, gallery_address):
    page.open(gallery_address)
    names = page.evaluate("[...document.querySelectorAll('.fleet .name')].map(e => e.innerText)")
    assert names[:3] == ["down", "nearly-full", "batch"]
    assert names == page.evaluate("[...document.querySelectorAll('.card h2')].map(e => e.innerText)")


def test_links_of_the_page_lead_to_what_they_name(page, gallery_address):
    page.open(gallery_address)
    dead = "[...document.querySelectorAll('a[href^=\"#\"]')].map(a => decodeURIComponent(a.hash.slice(1))).filter(id => !document.getElementById(id))"
    assert page.evaluate(dead) == []


def test_a_reader_that_hears_the_page_finds_its_parts(page, gallery_address):
    page.open(gallery_address)
    nodes = page.call("Accessibility.getFullAXTree")["nodes"]
    named = {(node["role"]["value"], node.get("name", {}).get("value", "")) for node in nodes if not node["ignored"]}
    roles = {role for role, _ in named}
    assert {"main", "banner", "navigation", "contentinfo", "article", "heading", "list"} <= roles
    assert ("article", "nearly-full") in named
    bars = [name for role, name in named if role == "image" and name.startswith("KV cache: ")]
    assert any("64,010 used, 600 reclaimable" in name for name in bars)
    assert [role for role, name in named if role in ("image", "link", "article", "region") and not name] == []


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("what", ["fleet", "gallery", "single"])
def test_screenshots_can_be_taken(page, request, tmp_path, scheme, what):
    address = request.getfixturevalue("fleet").address if what == "fleet" else request.getfixturevalue("gallery_address")
    address += "?target=ambiguous" if what == "single" else ""
    folder = Path(os.environ.get("SCREENSHOTS", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    page.look(**SCHEMES[scheme])
    page.open(address)
    page.screenshot(folder / f"{what}-{scheme}.png")
    assert (folder / f"{what}-{scheme}.png").read_bytes().startswith(b"\x89PNG")
