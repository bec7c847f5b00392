"""Every installed adapter passes the kit; and the kit finds out an adapter that breaks a promise."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fakes import NOON, known
from inspector.contract import Ask, Flag, FlagKind, FlagTable, Observation, Reply, Route
from inspector.layout import Shared
from inspector.model import Drift, Fault, Memory, Pool, Slot, State
from inspector.reading import NOT_OFFERED, Kind, Known, Origin, Reason, Unknown, count, first_known, positive, text
from inspector.registry import load_adapters
from inspector.testing import Answer, Recording, ScriptedAsk, conformance, load_recording, load_recordings
from inspector.testing.recordings import paths_of

FIXTURES = Path(__file__).parent / "fixtures" / "conformance"
ADAPTERS = load_adapters().adapters


def recordings_of(name: str) -> tuple[Recording, ...]:
    """The recordings of an engine; and once more with the permission to wake, where an adapter reads more."""
    recorded = load_recordings(FIXTURES / name)
    return recorded + tuple(
        replace(each, name=f"{each.name}-may-wake", may_wake=True) for each in recorded if not each.name.endswith(("-loading", "-off", "-idle"))
    )


@pytest.mark.parametrize("check", conformance.CHECKS)
@pytest.mark.parametrize("name", ADAPTERS)
def test_every_installed_adapter_passes_the_kit(name, check):
    conformance.check_one(check, ADAPTERS[name], recordings_of(name))


def test_there_is_an_adapter_to_check():
    """Otherwise the test above would pass by being empty."""
    assert "llamacpp" in ADAPTERS
    assert load_adapters().broken == ()


@pytest.mark.parametrize("name", ADAPTERS)
def test_the_recordings_answer_every_route_of_the_adapter(name):
    assert {route.path for route in ADAPTERS[name].routes} <= paths_of(recordings_of(name))


# --- A toy engine, done right -------------------------------------------------------------------------------------------------------

STATUS = Route("/status")
STATS = Route("/stats")
GIVEN = {"slots": 4, "busy": 1, "tokens": 900, "model": "/srv/models/tiny.gguf", "decodes": 50}


class Toy:
    """An adapter of an engine that does not exist: two routes, one pool."""

    name = "toy"
    title = "Toy engine"
    interval = 5.0
    routes: tuple[Route, ...] = (STATUS, STATS)

    def offers(self, version: str | None) -> frozenset[str]:
        return frozenset({"model", "slots", "slots_busy", "kv_used_tokens", "requests_waiting"})

    def start(self) -> dict[str, Any]:
        return {}

    def recognize(self, replies: Mapping[str, Reply]) -> bool:
        return any(reply.headers.get("server") == "toy" for reply in replies.values())

    async def observe(self, ask: Ask, recall: dict[str, Any]) -> Observation:
        reply = await ask.get(STATUS)
        if isinstance(reply, Unknown):
            return Observation(State.UNREACHABLE, reply.detail)
        if reply.status in (401, 403):
            return Observation(State.UNAUTHORIZED, "the server wants a key: set `api_key_file`")
        return self.ready(reply, await ask.get(STATS), recall)

    def ready(self, status: Reply, stats: Reply | Unknown, recall: dict[str, Any]) -> Observation:
        body = self.body(status)
        pool = Pool(
            model=self.model(body.get("model"), status.origin),
            slots=positive(body.get("slots"), status.origin, "slots"),
            slots_busy=count(body.get("busy"), status.origin, "busy"),
            kv_used_tokens=self.used(body, status.origin, recall),
            requests_waiting=self.waiting(stats),
        )
        return self.finished(Observation(State.READY, pools=(pool,)), body)

    def body(self, reply: Reply) -> dict[str, Any]:
        told = reply.json()
        return told.value if reply.status == 200 and isinstance(told, Known) and isinstance(told.value, dict) else {}

    def model(self, value: object, origin: Origin) -> Known[str] | Unknown:
        told = text(value, origin, "model")
        return told if isinstance(told, Unknown) else text(told.value.rpartition("/")[2], origin, "model")

    def used(self, body: dict[str, Any], origin: Origin, recall: dict[str, Any]) -> Known[int] | Unknown:
        return count(body.get("tokens"), origin, "tokens")

    def waiting(self, stats: Reply | Unknown) -> Known[int] | Unknown:
        if isinstance(stats, Unknown):
            return stats
        line = next((line for line in stats.body.split(b"\n")[:-1] if line.startswith(b"waiting ")), b"") if stats.status == 200 else b""
        number = line[8:]
        return count(int(number) if number.isdigit() and len(number) < 12 else None, stats.origin, "waiting")

    def finished(self, observation: Observation, body: dict[str, Any]) -> Observation:
        return observation


READY = Recording("ready", {"/status": Answer(json.dumps(GIVEN).encode(), headers={"server": "toy"}), "/stats": Answer(b"# queue\nwaiting 35\n")})


def test_an_adapter_that_keeps_the_promises_passes():
    conformance.check(Toy(), [READY])


# --- and done wrong -----------------------------------------------------------------------------------------------------------------


def with_(**methods: Any) -> Toy:
    return type("Toy", (Toy,), methods)()


def changed(change: Callable[[Observation, dict[str, Any]], Observation]) -> Toy:
    return with_(finished=lambda self, observation, body: change(observation, body))


def with_pool(**facts: Any) -> Toy:
    return changed(lambda observation, body: replace(observation, pools=(replace(observation.pools[0], **facts),)))


def routed(*routes: Route) -> Toy:
    return with_(routes=(*Toy.routes, *routes))


async def ask_more(self: Toy, ask: Ask, recall: Any, route: Route, **query: str) -> Observation:
    with contextlib.suppress(ValueError):
        await ask.get(route, **query)
    return await Toy.observe(self, ask, recall)


def asking(route: Route, **query: str) -> Toy:
    return with_(observe=lambda self, ask, recall: ask_more(self, ask, recall, route, **query))


def keep_tokens(self: Toy, body: dict[str, Any], origin: Origin, recall: dict[str, Any]) -> Known[int] | Unknown:
    """Serves the last figure when there is no new one, with a new date."""
    told = count(body.get("tokens"), origin, "tokens")
    if isinstance(told, Known):
        recall["tokens"] = told.value
    return told if isinstance(told, Known) or "tokens" not in recall else Known(recall["tokens"], origin)


COUNTER = {"polls": 0}


def count_polls(observation: Observation, body: dict[str, Any]) -> Observation:
    COUNTER["polls"] += 1
    return replace(observation, counters={"polls": float(COUNTER["polls"])})


def echo_error(self: Toy, stats: Reply | Unknown) -> Known[int] | Unknown:
    told = Toy.waiting(self, stats)
    return Unknown(Reason.INVALID, stats.body.decode(errors="replace")[:300] or "?") if isinstance(stats, Reply) and stats.status >= 500 else told


def or_zero(self: Toy, body: dict[str, Any], origin: Origin, recall: dict[str, Any]) -> Known[int] | Unknown:
    return count(body.get("tokens") or 0, origin, "tokens")


WRONG = {
    "a name with a blank": ("shape", with_(name="My Engine")),
    "no title": ("shape", with_(title=" ")),
    "no interval": ("shape", with_(interval=0)),
    "no route": ("shape", with_(routes=())),
    "a route twice": ("shape", routed(Route("/status"))),
    "a route with a query": ("shape", routed(Route("/status?model=x"))),
    "a route to elsewhere": ("shape", routed(Route("//other.example/status"))),
    "a route without a root": ("shape", routed(Route("status"))),
    "a route that climbs": ("shape", routed(Route("/a/../b"))),
    "a route that lets go of what it requires": ("shape", routed(Route("/props", required=(("autoload", "false"),), allowed=frozenset({"autoload"})))),
    "an offered field that is none": ("shape", with_(offers=lambda self, version: frozenset({"slots", "gpu_temperature"}))),
    "one memory for all": ("shape", with_(start=lambda self, kept={}: kept)),
    "a flag twice": ("shape", with_(flags=FlagTable(frozenset({"toy"}), (Flag("slots", FlagKind.INTEGER, ("-s",)), Flag("size", FlagKind.INTEGER, ("-s",)))))),
    "knows every server": ("shape", with_(recognize=lambda self, replies: True)),
    "knows by status": ("shape", with_(recognize=lambda self, replies: any(r.status == 200 for r in replies.values()))),
    "trips over a stranger": ("shape", with_(recognize=lambda self, replies: replies["/health"].json().value["status"] == "toy")),
    "a reading that is not offered": ("readings", with_pool(preemptions_total=known(0))),
    "an unknown that is not offered": ("readings", with_pool(preemptions_total=Unknown(Reason.NOT_REPORTED, "not said"))),
    "an offered field left out": ("readings", with_pool(requests_waiting=NOT_OFFERED)),
    "a boolean for a number": ("readings", with_pool(slots_busy=known(True))),
    "a fraction of a token": ("readings", with_pool(kv_used_tokens=known(0.5))),
    "a negative number": ("readings", with_pool(kv_used_tokens=known(-1))),
    "no slots at all": ("readings", with_pool(slots=known(0))),
    "a path for a model": ("readings", with_pool(model=known("/srv/models/tiny.gguf"))),
    "text with a line end": ("readings", with_pool(model=known("a\nb"))),
    "an unknown without a word": ("readings", with_pool(kv_used_tokens=Unknown(Reason.INVALID, ""))),
    "a time to come": ("readings", with_pool(kv_used_tokens=Known(1, Origin(Kind.HTTP, "/status", NOON + 999)))),
    "no time": ("readings", with_pool(kv_used_tokens=Known(1, Origin(Kind.HTTP, "/status", 0.0)))),
    "a layout without slots": ("readings", with_pool(layouts=(Shared(0, 4096, 4096),))),
    "one layout twice": ("readings", with_pool(layouts=(Shared(4, 4096, 4096),) * 2)),
    "two slots of one number": ("readings", with_pool(slots_detail=(Slot(0), Slot(0)))),
    "two pools of one name": ("readings", changed(lambda observation, body: replace(observation, pools=observation.pools * 2))),
    "progress of no pool": ("readings", changed(lambda observation, body: replace(observation, progress={"other": (1.0,)}))),
    "a counter that is not a number": ("readings", changed(lambda observation, body: replace(observation, counters={"x": float("nan")}))),
    "memory that is not offered": ("readings", changed(lambda observation, body: replace(observation, memory=Memory(used_bytes=known(1))))),
    "asks another route": ("asking", asking(Route("/completion"))),
    "asks with a forbidden parameter": ("asking", asking(STATUS, wake="1")),
    "asks twice": ("asking", asking(STATUS)),
    "keeps something outside of its memory": ("determinism", changed(count_polls)),
    "up without an answer": ("no answers", with_(observe=lambda self, ask, recall: ready_anyway(self, ask))),
    "zero for no answer": ("no answers", with_(waiting=lambda self, stats: known(0, "/stats") if isinstance(stats, Unknown) else Toy.waiting(self, stats))),
    "raises without an answer": ("no answers", with_(waiting=lambda self, stats: count(len(stats.body), stats.origin, "waiting"))),
    "takes a refusal for loading": ("refusals", with_(observe=lambda self, ask, recall: loading(ask))),
    "zero for a refusal": ("refusals", with_(waiting=lambda self, stats: Toy.waiting(self, stats) if stats.status == 200 else known(0, "/stats"))),
    "or zero": ("damaged bodies", with_(used=or_zero)),
    "a default of zero": ("hostile bodies", with_(used=lambda self, body, origin, recall: count(body.get("tokens", 0), origin, "tokens"))),
    "the size of anything": ("hostile bodies", with_(waiting=lambda self, stats: count(stats.body.count(b"\n"), stats.origin, "waiting"))),
    "trusts that it is an object": ("hostile bodies", with_(body=lambda self, reply: json.loads(reply.body))),
    "takes a cut line for whole": ("damaged bodies", with_(waiting=lambda self, stats: cut_line(stats))),
    "takes text for a number": ("damaged bodies", with_(used=lambda self, body, origin, recall: count(int(bool(body.get("tokens"))) * 900, origin, "tokens"))),
    "the last figure, dated now": ("memory", with_(used=keep_tokens)),
    "repeats an error's text": ("secrets", with_(waiting=echo_error)),
    "tells the folder of a model": (
        "secrets",
        changed(lambda observation, body: replace(observation, faults=(Fault("/status", "info", str(body.get("model"))),))),
    ),
    "tells an unknown key": ("secrets", changed(lambda observation, body: replace(observation, drift=tuple(Drift("0", key, "a", "b", "") for key in body)))),
    "tells a prompt": ("secrets", changed(lambda observation, body: replace(observation, detail=str(body.get("prompt", ""))))),
}


async def ready_anyway(self: Toy, ask: Ask) -> Observation:
    reply = await ask.get(STATUS)
    return Observation(State.READY) if isinstance(reply, Unknown) else await Toy.observe(self, ask, {})


async def loading(ask: Ask) -> Observation:
    reply = await ask.get(STATUS)
    return Observation(State.UNREACHABLE if isinstance(reply, Unknown) else State.LOADING)


def cut_line(stats: Reply | Unknown) -> Known[int] | Unknown:
    if isinstance(stats, Unknown):
        return stats
    number = stats.body.rpartition(b"waiting ")[2].strip() if stats.status == 200 else b""
    return first_known(count(int(number) if number.isdigit() and len(number) < 12 else None, stats.origin, "waiting"))


@pytest.mark.parametrize("fault", WRONG)
def test_the_kit_finds_out_what_is_wrong(fault):
    check, adapter = WRONG[fault]
    with pytest.raises(AssertionError):
        conformance.check_one(check, adapter, [READY])


@pytest.mark.parametrize("check", conformance.CHECKS)
def test_every_check_of_the_kit_can_fail(check):
    """A check that no wrong adapter fails would be decoration."""
    assert check in {name for name, _ in WRONG.values()}


def test_a_kit_without_recordings_is_refused(tmp_path):
    with pytest.raises(ValueError, match="recording"):
        conformance.check(Toy(), [])
    with pytest.raises(FileNotFoundError, match=r"http\.json"):
        load_recordings(tmp_path)


def test_the_kit_tells_what_is_wrong_and_where():
    with pytest.raises(AssertionError, match=r"readings, ready: pool 0 kv_used_tokens: .*-1"):
        conformance.check(with_pool(kv_used_tokens=known(-1)), [READY])


# --- Scripts and recordings ---------------------------------------------------------------------------------------------------------

PER_MODEL = Route("/props", required=(("autoload", "false"),), allowed=frozenset({"model"}))


@pytest.mark.anyio
async def test_a_script_answers_by_path_and_query_then_by_path_then_otherwise():
    answers = {"/props?autoload=false&model=a%2Fb": Answer(b"of a/b"), "/props": Answer(b"of any"), "/stats": Unknown(Reason.TIMEOUT, "no answer")}
    ask = ScriptedAsk((PER_MODEL, STATS, STATUS), answers)
    assert (await ask.get(PER_MODEL, model="a/b")).body == b"of a/b"
    assert (await ask.get(PER_MODEL, model="c")).body == b"of any"
    assert (await ask.get(STATS)).reason is Reason.TIMEOUT
    assert (await ask.get(STATUS)).status == 404
    assert [asked.target for asked in ask.asked] == ["/props?autoload=false&model=a%2Fb", "/props?autoload=false&model=c", "/stats", "/status"]


@pytest.mark.anyio
async def test_a_script_refuses_what_the_daemon_refuses_and_remembers_it():
    ask = ScriptedAsk((PER_MODEL,))
    for route, query in ((Route("/completion"), {}), (PER_MODEL, {"wake": "1"}), (PER_MODEL, {"autoload": "true"})):
        with pytest.raises(ValueError, match="route"):
            await ask.get(route, **query)
    assert len(ask.violations) == 3
    assert ask.asked == []


def test_a_recording_is_read_from_its_folder(tmp_path):
    (tmp_path / "body.txt").write_bytes(b"waiting 1\n")
    index = {
        "/file": {"file": "body.txt", "headers": {"Server": "toy"}},
        "/json": {"body": {"a": [1]}, "status": 503},
        "/text": {"body": "plain"},
        "/slow": {"timeout": True},
        "/down": {"refused": True},
    }
    (tmp_path / "http.json").write_text(json.dumps(index))
    answers = load_recording(tmp_path).answers
    assert answers["/file"] == Answer(b"waiting 1\n", 200, {"server": "toy"})
    assert answers["/json"] == Answer(b'{"a": [1]}', 503)
    assert answers["/text"] == Answer(b"plain")
    assert answers["/slow"].reason is Reason.TIMEOUT
    assert answers["/down"].reason is Reason.UNREACHABLE
