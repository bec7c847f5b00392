"""The kit that every adapter must pass, ours and others'. `check` runs all of it; `CHECKS` are for a parametrized test.

@pytest.mark.parametrize("name", conformance.CHECKS)
def test_conformance(name): conformance.check_one(name, ADAPTER, load_recordings("tests/recordings"))
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, TypeAlias

import anyio

from inspector.contract import Adapter, Observation
from inspector.model import MEMORY_FIELDS, POOL_FIELDS, State
from inspector.reading import Kind, Known, Unknown
from inspector.testing import hostile
from inspector.testing.facts import Facts, facts_of, normal, owed_to, problems_of
from inspector.testing.recordings import Recording
from inspector.testing.scripted import Answer, ScriptedAsk
from inspector.testing.shape import shape_problems

Problems: TypeAlias = AsyncIterator[str]
Check: TypeAlias = Callable[[Adapter[Any], Recording], Problems]

MOST_TOLD = 10
"""Problems of one check that are told; the others are alike."""


def check(adapter: Adapter[Any], recordings: Sequence[Recording]) -> None:
    """All checks over all recordings. Raises AssertionError that tells what is wrong."""
    told = [problem for name in CHECKS for problem in problems(name, adapter, recordings)]
    if told:
        raise AssertionError("\n".join(told))


def check_one(name: str, adapter: Adapter[Any], recordings: Sequence[Recording]) -> None:
    """One check of `CHECKS` over all recordings."""
    told = problems(name, adapter, recordings)
    if told:
        raise AssertionError("\n".join(told))


def problems(name: str, adapter: Adapter[Any], recordings: Sequence[Recording]) -> list[str]:
    """What one check finds wrong."""
    if not recordings:
        raise ValueError("a kit without recordings would prove nothing: give at least one of a server that is ready")
    if name == "shape":
        return [f"shape: {problem}" for problem in shape_problems(adapter)]
    return anyio.run(_collected, name, adapter, recordings)


async def _collected(name: str, adapter: Adapter[Any], recordings: Sequence[Recording]) -> list[str]:
    told = []
    for recording in recordings:
        told += [f"{name}, {recording.name}: {problem}" async for problem in _first(CHECKS[name](adapter, recording))]
    return told


async def _first(found: Problems) -> Problems:
    number = 0
    async for problem in found:
        yield problem
        number += 1
        if number == MOST_TOLD:
            yield "… and perhaps more"
            return


async def _observe(adapter: Adapter[Any], ask: ScriptedAsk, recall: Any = None) -> Observation:
    """One poll with fresh memory, or with a given one. What an adapter raises becomes an AssertionError that says where."""
    try:
        return await adapter.observe(ask, adapter.start() if recall is None else recall)
    except Exception as error:
        asked = ", ".join(each.target for each in ask.asked) or "nothing"
        raise AssertionError(f"it raised {type(error).__name__}: {error} (asked: {asked})") from error


# --- The checks ---------------------------------------------------------------------------------------------------------------------


async def _readings(adapter: Adapter[Any], recording: Recording) -> Problems:
    """What is observed is well formed, and offered if it is anything."""
    ask = recording.ask(adapter)
    observation = await _observe(adapter, ask)
    for problem in problems_of(observation, adapter, ask.now):
        yield problem


async def _asking(adapter: Adapter[Any], recording: Recording) -> Problems:
    """Only listed routes are asked, each question once a poll."""
    ask = recording.ask(adapter)
    await _observe(adapter, ask)
    for violation in ask.violations:
        yield violation
    targets = [asked.target for asked in ask.asked]
    for target in dict.fromkeys(targets):
        if targets.count(target) > 1:
            yield f"{target} is asked {targets.count(target)} times in one poll"


async def _determinism(adapter: Adapter[Any], recording: Recording) -> Problems:
    """The same replies make the same observation, at the first poll and in another target's memory."""
    first, second = [normal(await _observe(adapter, recording.ask(adapter))) for _ in range(2)]
    if first != second:
        yield "two polls with fresh memory and the same replies differ: something is kept outside of the memory that the core hands over"


async def _no_answers(adapter: Adapter[Any], recording: Recording) -> Problems:
    """Without any reply nothing is known and nothing is up; without one of them nothing else changes."""
    for name, unknown in hostile.NO_ANSWERS.items():
        observation = await _observe(adapter, ScriptedAsk(adapter.routes, otherwise=unknown))
        for fact in _from_http(observation):
            yield f"all {name}: {fact} is known"
        if observation.state.is_up and name != "invalid":
            yield f"all {name}: the state is {observation.state}"
        async for problem in _one_by_one(adapter, recording, name, unknown):
            yield problem


async def _refusals(adapter: Adapter[Any], recording: Recording) -> Problems:
    """A server that refuses every request is unauthorized, and nothing of it is known."""
    for status in (401, 403):
        refusal = Answer(b'{"error": {"code": %d, "message": "Invalid API Key", "type": "authentication_error"}}' % status, status)
        observation = await _observe(adapter, ScriptedAsk(adapter.routes, otherwise=refusal))
        if observation.state is not State.UNAUTHORIZED:
            yield f"{status} everywhere: the state is {observation.state}, not unauthorized"
        for fact in _from_http(observation):
            yield f"{status} everywhere: {fact} is known"
        async for problem in _one_by_one(adapter, recording, str(status), refusal):
            yield problem


async def _hostile_bodies(adapter: Adapter[Any], recording: Recording) -> Problems:
    """Bodies out of which nothing can be read: nothing is known of them, whatever their status."""
    for name, body in hostile.WHOLE.items():
        for status in (200, 503):
            answer = Answer(body, status)
            observation = await _observe(adapter, ScriptedAsk(adapter.routes, otherwise=answer))
            for fact in _from_http(observation):
                yield f"{status} with {name} everywhere: {fact} is known"
            async for problem in _one_by_one(adapter, recording, f"{status} with {name}", answer):
                yield problem


async def _damaged_bodies(adapter: Adapter[Any], recording: Recording) -> Problems:
    """One key dropped or mistyped, one sample broken, the end cut off: what was known becomes unknown or stays, it never becomes another figure."""
    intact = facts_of(await _observe(adapter, recording.ask(adapter)))
    for target, answer in recording.answers.items():
        if isinstance(answer, Unknown):
            continue
        for name, body in hostile.damages(answer.body):
            observation = await _observe(adapter, recording.ask(adapter, **{target: replace(answer, body=body)}))
            for problem in _changed(intact, facts_of(observation), target):
                yield f"{target}, {name}: {problem}"


async def _memory(adapter: Adapter[Any], recording: Recording) -> Problems:
    """A live fact is never handed out again: after a good poll, one without replies knows none."""
    recall = adapter.start()
    await _observe(adapter, recording.ask(adapter), recall)
    silent: dict[str, Answer | Unknown] = {**hostile.NO_ANSWERS, "empty": Answer()}
    for name, answer in silent.items():
        later = replace(recording.ask(adapter), answers={}, otherwise=answer, now=recording.ask(adapter).now + 60)
        for fact in _from_http(await _observe(adapter, later, recall)):
            if fact.rpartition(" ")[2] in LIVE:
                yield f"all {name} at the second poll: {fact} is still known"


async def _secrets(adapter: Adapter[Any], recording: Recording) -> Problems:
    """What stands in unknown keys, in folders of paths, in comments, headers and error texts is passed on nowhere."""
    with_marks = {
        target: answer if isinstance(answer, Unknown) else Answer(hostile.marked(answer.body), answer.status, {**answer.headers, "x-strange": hostile.MARKER})
        for target, answer in recording.answers.items()
    }
    if hostile.MARKER in repr(await _observe(adapter, recording.ask(adapter, **with_marks))):
        yield "a marker from an unknown key, a path's folder, a comment or a header stands in the observation"
    for status in (200, 400, 401, 404, 500, 501, 503):
        for body in (b'{"error": {"message": "%s", "type": "%s", "code": "%s"}}', b'{"detail": "%s", "message": "%s", "%s": 1}', b"<html>%s %s %s</html>"):
            marker = hostile.MARKER.encode()
            answer = Answer(body % (marker, marker, marker), status, {"server": hostile.MARKER})
            for ask in (ScriptedAsk(adapter.routes, otherwise=answer), *(recording.ask(adapter, **{target: answer}) for target in recording.answers)):
                if hostile.MARKER in repr(await _observe(adapter, ask)):
                    yield f"a marker from an error body with status {status} stands in the observation"


CHECKS: Mapping[str, Check] = MappingProxyType(
    {
        "shape": _readings,  # Looked at without a recording: see `problems`.
        "readings": _readings,
        "asking": _asking,
        "determinism": _determinism,
        "no answers": _no_answers,
        "refusals": _refusals,
        "hostile bodies": _hostile_bodies,
        "damaged bodies": _damaged_bodies,
        "memory": _memory,
        "secrets": _secrets,
    }
)

LIVE = frozenset(name for table in (POOL_FIELDS, MEMORY_FIELDS) for name, info in table.items() if info.live)


# --- Comparisons --------------------------------------------------------------------------------------------------------------------


async def _one_by_one(adapter: Adapter[Any], recording: Recording, name: str, answer: Answer | Unknown) -> Problems:
    """Each recorded answer in turn is replaced: no fact may rest on it then, and no other may become another figure because of it."""
    intact = facts_of(await _observe(adapter, recording.ask(adapter)))
    for target in recording.answers:
        observation = await _observe(adapter, recording.ask(adapter, **{target: answer}))
        found = facts_of(observation)
        for problem in _changed(intact, found, target):
            yield f"{target}: {name}: {problem}"


def _changed(intact: Facts, found: Facts, target: str) -> Iterator[str]:
    """Figures that are not those of the intact replies although they rest on the damaged one."""
    for key, reading in found.items():
        before = intact.get(key)
        if before is None or not isinstance(reading, Known) or isinstance(reading.value, str) or not owed_to(reading, target.partition("?")[0]):
            continue
        if not isinstance(before, Known):
            yield f"{' '.join(key)} becomes known, {reading.value!r}"
        elif before.value != reading.value:
            yield f"{' '.join(key)} becomes {reading.value!r} instead of {before.value!r}"


def _from_http(observation: Observation) -> Iterator[str]:
    """Names of what is known from replies, directly or derived."""
    for key, reading in facts_of(observation).items():
        if isinstance(reading, Known) and (reading.origin.kind is Kind.HTTP or f"{Kind.HTTP}:" in reading.origin.path):
            yield " ".join(key)
