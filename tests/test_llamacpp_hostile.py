"""A body with a key dropped, nulled or mistyped: no reading that was known becomes another value, and nothing raises."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from asking import FakeAsk
from inspector.contract import Observation
from inspector.model import POOL_FIELDS, SLOT_FIELDS
from inspector.reading import Known
from inspector_llamacpp import ADAPTER
from inspector_llamacpp.numbers import scanner
from inspector_llamacpp.observe import Recall
from test_llamacpp_captures import CASES, OFFERED, ask_of

pytestmark = pytest.mark.anyio

SITUATIONS = [CASES / f"{build}-{when}-host" for build in ("b7551", "b9538", "b10068", "b10434", "b10566", "b11434", "b11549") for when in ("idle", "busy")]
SITUATIONS += [CASES / f"{build}-after-host" for build in ("b7551", "b9538", "b11434")]
SITUATIONS += [
    CASES / f"{build}-{kind}"
    for build in ("b10068", "b10434", "b11434")
    for kind in ("sleeping", "nothing-enabled", "router-loaded", "router-sleeping", "router-may-wake")
]
SITUATIONS += [CASES / f"b11434-{kind}" for kind in ("idle-http", "busy-http", "loading", "unauthorized", "router-unloaded", "exhausted")]

DROPPED = object()
MISTYPED = (DROPPED, None, "x", True, -1, 0.5, 10**30, [1])
UNREAD = {"params", "chat_template", "chat_template_caps", "models", "modalities", "ui_settings", "webui_settings", "capabilities", "details"}
"""Parts that no reading comes from: one change at their root is enough."""


SCANNER = scanner()


async def observed(ask: FakeAsk) -> Observation:
    """As the first poll of a generation. The scanner is shared, for making one takes longer than a poll."""
    return await ADAPTER.observe(ask, Recall(scanner=SCANNER))


def places(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value of a JSON body, objects and lists included."""
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items:
        yield (*path, key)
        if key not in UNREAD:
            yield from places(value, (*path, key))


def changed(body: Any, path: tuple[Any, ...], value: Any) -> bytes:
    node = whole = copy.deepcopy(body)
    for key in path[:-1]:
        node = node[key]
    if value is DROPPED:
        del node[path[-1]]
    else:
        node[path[-1]] = value
    return json.dumps(whole).encode()


def same_kind(before: Any, value: Any) -> bool:
    """Another valid value, not a broken one: of that no promise is made."""
    if isinstance(value, bool) or isinstance(before, bool):
        return isinstance(value, bool) and isinstance(before, bool)
    return (isinstance(value, str) and isinstance(before, str)) or (isinstance(value, list) and isinstance(before, list) and value == before)


def known_values(observation: Observation) -> dict[tuple[str, ...], Any]:
    values: dict[tuple[str, ...], Any] = {}
    for pool in observation.pools:
        for name in POOL_FIELDS:
            reading = pool.reading(name)
            if isinstance(reading, Known):
                values[pool.id, name] = reading.value
        for slot in pool.slots_detail:
            for name in SLOT_FIELDS:
                reading = getattr(slot, name)
                if isinstance(reading, Known):
                    values[pool.id, str(slot.id), name] = reading.value
    return values


def unchanged(before: dict[tuple[str, ...], Any], after: dict[tuple[str, ...], Any]) -> dict[tuple[str, ...], Any]:
    """What was known and is known as something else now."""
    return {key: (before[key], after[key]) for key in before.keys() & after.keys() if before[key] != after[key]}


def new_zeros(before: dict[tuple[str, ...], Any], after: dict[tuple[str, ...], Any]) -> set[tuple[str, ...]]:
    return {key for key in after.keys() - before.keys() if after[key] == 0}


def with_body(ask: FakeAsk, path: str, body: bytes) -> FakeAsk:
    status = ask.replies[path][0]  # type: ignore[index]
    return FakeAsk(ask.routes, {**ask.replies, path: (status, body)}, ask.log, ask.launch, stated=ask.stated, may_wake=ask.may_wake)


@pytest.mark.parametrize("case", SITUATIONS, ids=lambda case: case.name)
async def test_a_broken_value_of_json_changes_no_reading_into_another(case: Path) -> None:
    ask = ask_of(case)
    before = known_values(await observed(ask))
    for path, reply in ask.replies.items():
        if "/metrics" in path and b'"error"' not in reply[1]:  # type: ignore[index]
            continue
        body = json.loads(reply[1])  # type: ignore[index]
        for place in places(body):
            node = body
            for key in place:
                node = node[key]
            for value in MISTYPED:
                if same_kind(node, value) or (value is DROPPED and "args" in place[:-1]):  # an argument less is another valid command line
                    continue
                after = known_values(await observed(with_body(ask, path, changed(body, place, value))))
                assert not unchanged(before, after), (path, place, value)
                assert not new_zeros(before, after), (path, place, value)


@pytest.mark.parametrize("case", SITUATIONS, ids=lambda case: case.name)
async def test_a_broken_line_of_metrics_changes_no_reading_into_another(case: Path) -> None:
    ask = ask_of(case)
    before = known_values(await observed(ask))
    for path, reply in ask.replies.items():
        body = reply[1]  # type: ignore[index]
        if "/metrics" not in path or b'"error"' in body:
            continue
        lines = body.splitlines(keepends=True)
        for number, line in enumerate(lines):
            name = line.partition(b" ")[0]
            for broken in (
                b"",
                name + b"\n",
                name + b" NaN\n",
                name + b" -nan\n",
                name + b" -1\n",
                name + b" +Inf\n",
                name + b" 0.5\n",
                name + b" x\n",
                line + line,
            ):
                if broken == line + line and line.startswith(b"#"):
                    continue
                after = known_values(await observed(with_body(ask, path, b"".join((*lines[:number], broken, *lines[number + 1 :])))))
                assert not unchanged(before, after), (path, line, broken)
                assert not new_zeros(before, after), (path, line, broken)


@pytest.mark.parametrize("case", [CASES / "b11434-busy-host", CASES / "b11434-router-may-wake"], ids=lambda case: case.name)
async def test_a_truncated_body_changes_no_reading_into_another(case: Path) -> None:
    ask = ask_of(case)
    before = known_values(await observed(ask))
    for path, reply in ask.replies.items():
        body = reply[1]  # type: ignore[index]
        cuts = [m for m, byte in enumerate(body) if byte == 10] if "/metrics" in path else range(0, len(body), max(1, len(body) // 60))
        for cut in cuts:
            after = known_values(await observed(with_body(ask, path, body[:cut])))
            assert not unchanged(before, after), (path, cut)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["id", "n_ctx", "state", "is_processing", "data", "status", "value", "args", "role", "x"]), inner, max_size=5)
    ),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    path=st.sampled_from(["/health", "/props", "/v1/models", "/slots", "/models"]), body=JSON, status=st.sampled_from([200, 200, 200, 401, 404, 500, 501, 503])
)
def test_no_payload_raises(path: str, body: Any, status: int) -> None:
    for name in ("b11434-busy-host", "b11434-router-may-wake"):
        ask = ask_of(CASES / name)
        for asked in [p for p in ask.replies if p.partition("?")[0] == path]:
            ask.replies = {**ask.replies, asked: (status, json.dumps(body).encode())}
        anyio.run(observed, ask)


@settings(max_examples=150, deadline=None)
@given(path=st.sampled_from(["/health", "/props", "/v1/models", "/slots", "/metrics", "/models"]), body=st.binary(max_size=200))
def test_no_bytes_raise(path: str, body: bytes) -> None:
    for name in ("b11434-busy-host", "b11434-router-may-wake"):
        ask = ask_of(CASES / name)
        for asked in [p for p in ask.replies if p.partition("?")[0] == path]:
            ask.replies = {**ask.replies, asked: (200, body)}
        anyio.run(observed, ask)


@settings(max_examples=150, deadline=None)
@given(args=JSON)
def test_no_arguments_of_a_routers_model_raise(args: Any) -> None:
    ask = ask_of(CASES / "b11434-router-loaded")
    ask.replies = {**ask.replies, "/models": (200, json.dumps({"data": [{"id": "tiny-b", "status": {"value": "loaded", "args": args}}]}).encode())}
    anyio.run(observed, ask)


def test_every_field_that_was_promised_exists() -> None:
    assert set(OFFERED) <= POOL_FIELDS.keys()
