"""The truth in the server's own words: what llama.cpp's log says. Independent of the product's own log patterns on purpose."""

from __future__ import annotations

import re
from dataclasses import dataclass

from engines.server import Server

RELEASED = "stop processing: n_tokens = "
RELEASE = re.compile(r"slot\s+release: id\s+(\d+) \| task (-?\d+) \| stop processing: n_tokens = (\d+), truncated = (\d)")
LAYOUT = re.compile(r"initializing, n_slots = (\d+), n_ctx_slot = (\d+), kv_unified = '(true|false)'")
FELL_ASLEEP = "server is entering sleeping state"
WOKE = "server is exiting sleeping state"
LOADING = "loading model '"
LISTENING = re.compile(r"listening on (http://\S+)")
EXHAUSTED = re.compile(r"Context size has been exceeded\. off = ")
SHIFTED = "slot context shift"
# A router's own words; its children's lines are in the same log behind "[port]".
ROUTER_LOADS = re.compile(r"spawning server instance with name=(\S+) on port (\d+)")
ROUTER_STOPS = re.compile(r"unload: stopping model instance name=(\S+)")


@dataclass(frozen=True)
class Release:
    """A slot that finished: how many tokens its cache then holds, and whether the generation was cut at the context's end."""

    slot: int
    task: int
    tokens: int
    truncated: bool


def releases(text: str) -> list[Release]:
    return [Release(int(slot), int(task), int(tokens), cut == "1") for slot, task, tokens, cut in RELEASE.findall(text)]


def wait_for_releases(server: Server, count: int) -> list[Release]:
    """The first `count` or more, waited for: the log is written beside the work, so a reply may arrive before its line."""
    server.wait_log(RELEASED, times=count)
    return releases(server.log_text())


@dataclass(frozen=True)
class Layout:
    slots: int
    slot_tokens: int
    unified: bool


def layout(text: str) -> Layout | None:
    """The newest load's layout; None while nothing was loaded or where the build does not say."""
    found = LAYOUT.findall(text)
    return Layout(int(found[-1][0]), int(found[-1][1]), found[-1][2] == "true") if found else None


def sleeps(text: str) -> int:
    return text.count(FELL_ASLEEP)


def wakes(text: str) -> int:
    return text.count(WOKE)


def loads(text: str) -> int:
    """How often a model was loaded: once at the start, and again for each wake."""
    return text.count(LOADING)


def router_loads(text: str) -> list[str]:
    """Models that a router started a process for, in order."""
    return [name for name, _port in ROUTER_LOADS.findall(text)]


def router_stops(text: str) -> list[str]:
    """Models that a router unloaded, by eviction or on request."""
    return ROUTER_STOPS.findall(text)


def exhaustions(text: str) -> int:
    """How often the shared KV pool ran out and every active request was killed."""
    return len(EXHAUSTED.findall(text))
