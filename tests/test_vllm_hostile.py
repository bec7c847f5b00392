"""A page with a line or a label dropped, nulled or mistyped: no reading that was known becomes another value or a zero, and nothing raises."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asking import FakeAsk
from inspector.contract import Observation
from inspector.exposition import Scanner
from inspector.model import POOL_FIELDS
from inspector.reading import Kind, Known
from inspector_vllm import ADAPTER
from inspector_vllm.names import WANTED
from inspector_vllm.observe import Recall
from inspector_vllm.scrape import PageMemory
from test_vllm_cases import CASES, ask_of

pytestmark = pytest.mark.anyio

CAPTURED = sorted(case for case in CASES.iterdir() if case.name.startswith("0.32.0-"))
OLDER = [CASES / f"definitions-{name}" for name in ("0.4.3-v0", "0.8.0-v1", "0.8.5-v1", "0.9.2-v1", "0.10.2-v0", "0.10.2-v1", "0.24.0-v1")]
MADE = [CASES / f"made-{name}" for name in ("0.9.2-log-one-group", "0.32.0-gemma3-sliding-and-full")]
# A page that ends between two lines before the sleep states is a whole one of an older version.
CUT = [case for case in CAPTURED if not case.name.endswith(("-paused", "-sleep-level1"))]

VALUES = ("", " NaN", " -nan", " -1", " +Inf", " 1e400", " x", " 1_0", " 1 2 3")
LABEL_VALUES = ("None", "", "x", "-5", "0", "1.5", "NaN", "9" * 30)
NAMES = {*WANTED, *(name.removesuffix("_total") for name in WANTED)}
LABEL = re.compile(rb'(\w+)="([^"]*)"')
SCANNER = Scanner(WANTED)


async def observed(ask: FakeAsk) -> Observation:
    """As the first poll of a generation. The scanner is shared, for making one takes longer than a poll."""
    return await ADAPTER.observe(ask, Recall(page=PageMemory(scanner=SCANNER)))


def known_values(observation: Observation) -> dict[tuple[str, str], Any]:
    """What rests on replies. The log's own figure, which stands in for a page without statistics, is one of another source."""
    readings = ((pool.id, name, pool.reading(name)) for pool in observation.pools for name in POOL_FIELDS)
    return {(pool, name): reading.value for pool, name, reading in readings if isinstance(reading, Known) and reading.origin.kind is not Kind.LOG}


def with_page(ask: FakeAsk, page: bytes) -> FakeAsk:
    return FakeAsk(ask.routes, {**ask.replies, "/metrics": (200, page)}, ask.log, ask.launch)


def broken_lines(line: bytes) -> Iterator[bytes]:
    """A line dropped, given twice, with a broken value, with a label dropped or mistyped."""
    series = line.rpartition(b" ")[0]
    yield b""
    yield line + line
    yield from (series + value.encode() + b"\n" for value in VALUES)
    for label in LABEL.finditer(line):
        yield line[: label.start()] + line[label.end() :].removeprefix(b",")
        yield from (line[: label.start(2)] + value.encode() + line[label.end(2) :] for value in LABEL_VALUES if value.encode() != label[2])


def assert_nothing_false(before: dict[tuple[str, str], Any], after: dict[tuple[str, str], Any], damage: object) -> None:
    changed = {key: (before[key], after[key]) for key in before.keys() & after.keys() if key[1] != "model" and before[key] != after[key]}
    assert not changed, damage
    zeros = {key for key in after.keys() - before.keys() if after[key] == 0 and key[0] in {pool for pool, _ in before}}
    assert not zeros, damage


@pytest.mark.parametrize("case", CAPTURED + OLDER + MADE, ids=lambda case: case.name)
async def test_a_broken_line_or_label_changes_no_reading_into_another(case: Path) -> None:
    ask = ask_of(case)
    before = known_values(await observed(ask))
    lines = ask.replies["/metrics"][1].splitlines(keepends=True)  # type: ignore[index]
    for number, line in enumerate(lines):
        if re.split(rb"[{ ]", line)[0].decode() not in NAMES:
            continue
        for broken in broken_lines(line):
            after = known_values(await observed(with_page(ask, b"".join((*lines[:number], broken, *lines[number + 1 :])))))
            assert_nothing_false(before, after, (line, broken))


@pytest.mark.parametrize("case", [*CUT, CASES / "definitions-0.9.2-v1"], ids=lambda case: case.name)
async def test_a_page_that_is_cut_off_changes_no_reading_into_another(case: Path) -> None:
    ask = ask_of(case)
    before = known_values(await observed(ask))
    page: bytes = ask.replies["/metrics"][1]  # type: ignore[index]
    ends = [match.end() for match in re.finditer(rb"\n", page)]
    for cut in (*ends, *range(0, len(page), 997)):
        after = known_values(await observed(with_page(ask, page[:cut])))
        assert_nothing_false(before, after, cut)


async def test_a_page_that_ends_within_a_number_is_no_page() -> None:
    ask = ask_of(CASES / "0.32.0-preempting")
    page: bytes = ask.replies["/metrics"][1]  # type: ignore[index]
    within = page.index(b"14206.0", page.index(b"\nvllm:generation_tokens_total")) + 3
    assert ("0", "generation_tokens_total") not in known_values(await observed(with_page(ask, page[:within])))


@pytest.mark.parametrize("path", ["/v1/models", "/version"])
@pytest.mark.parametrize("value", [None, "x", True, -1, 0, 0.5, 10**30, [], {"value": 1}, "9" * 400, "a\nb"])
async def test_a_broken_value_of_json_changes_no_reading_into_another(path: str, value: Any) -> None:
    ask = ask_of(CASES / "0.32.0-busy")
    before = known_values(await observed(ask))
    body = json.loads(ask.replies[path][1])  # type: ignore[index]
    rows = [body, *body.get("data", [])]
    for row in rows:
        for key in list(row):
            if isinstance(value, str) and isinstance(row[key], str) and value == "x":  # another valid text
                continue
            kept, row[key] = row[key], value
            ask.replies = {**ask.replies, path: (200, json.dumps(body).encode())}
            assert_nothing_false(before, known_values(await observed(ask)), (key, value))
            del row[key]
            ask.replies = {**ask.replies, path: (200, json.dumps(body).encode())}
            assert_nothing_false(before, known_values(await observed(ask)), (key, "dropped"))
            row[key] = kept


@settings(max_examples=200, deadline=None)
@given(
    path=st.sampled_from(["/health", "/metrics", "/v1/models", "/version"]),
    body=st.binary(max_size=200),
    status=st.sampled_from([200, 200, 401, 404, 500, 503]),
)
def test_no_bytes_raise(path: str, body: bytes, status: int) -> None:
    ask = ask_of(CASES / "0.32.0-busy")
    ask.replies = {**ask.replies, path: (status, body)}
    anyio.run(observed, ask)


ROW = st.tuples(st.sampled_from(sorted(WANTED)), st.sampled_from(["", "0", "1", "01", "x", "-1"]), st.sampled_from(["0.0", "1.0", "NaN", "1e30", "-1", "x"]))


@settings(max_examples=300, deadline=None)
@given(rows=st.lists(ROW, max_size=12))
def test_no_rows_raise_and_no_field_is_left_out(rows: list[tuple[str, str, str]]) -> None:
    page = "".join(
        f'{name}{{engine="{engine}",num_gpu_blocks="2",block_size="16",kv_cache_size_tokens="0",kv_cache_max_concurrency="{value}"}} {value}\n'
        for name, engine, value in rows
    )
    ask = ask_of(CASES / "0.32.0-busy")
    ask.replies = {**ask.replies, "/metrics": (200, page.encode())}
    observation = anyio.run(observed, ask)
    for pool in observation.pools:
        for name in ADAPTER.offers(None):
            reading = pool.reading(name)
            assert isinstance(reading, Known) or reading.reason != "not_offered", name
