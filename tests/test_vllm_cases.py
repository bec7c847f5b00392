"""Every case folder of tests/fixtures/vllm/cases: what vLLM of each version shows, and what an honest inspector makes of it.

`expected.json` lists every field: the known ones with their value, the unknown ones with their reason. A new case is a new folder.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from asking import FakeAsk, load_case
from inspector.contract import Observation
from inspector.model import Pool
from inspector.reading import Known, Reading
from inspector_vllm import ADAPTER

pytestmark = pytest.mark.anyio

CASES = Path(__file__).parent / "fixtures" / "vllm" / "cases"
OFFERED = sorted(ADAPTER.offers(None))


def ask_of(case: Path) -> FakeAsk:
    return load_case(case, ADAPTER.routes, ADAPTER.log_patterns)


def told(reading: Reading[Any]) -> Any:
    """A reading in the form of expected.json."""
    if isinstance(reading, Known):
        return reading.value
    return {"reason": str(reading.reason), "bounds": list(reading.bounds)} if reading.bounds else {"reason": str(reading.reason)}


def fields(pool: Pool) -> dict[str, Any]:
    return {name: told(pool.reading(name)) for name in OFFERED}


def expected_fields(pool: dict[str, Any]) -> dict[str, Any]:
    return {**pool["known"], **{name: {"reason": form} if isinstance(form, str) else form for name, form in pool["unknown"].items()}}


async def observed(ask: FakeAsk) -> Observation:
    return await ADAPTER.observe(ask, ADAPTER.start())


@pytest.mark.parametrize("case", sorted(CASES.iterdir()), ids=lambda case: case.name)
async def test_case(case: Path) -> None:
    expected = json.loads((case / "expected.json").read_text())
    observation = await observed(ask_of(case))
    assert observation.state == expected["state"]
    assert {pool.id: fields(pool) for pool in observation.pools} == {name: expected_fields(pool) for name, pool in expected["pools"].items()}
    assert told(observation.version) == expected["version"]
    assert [drift.field for drift in observation.drift] == expected.get("drift", [])


def test_expected_json_speaks_of_every_offered_field() -> None:
    for case in CASES.iterdir():
        for pool in json.loads((case / "expected.json").read_text())["pools"].values():
            assert sorted({**pool["known"], **pool["unknown"]}) == OFFERED, case.name


def test_what_was_not_captured_says_so() -> None:
    for case in CASES.iterdir():
        captured = case.name.startswith("0.32.0-")
        assert captured or (case / "SOURCE.md").read_text().strip(), case.name
        assert captured or not case.name.startswith("definitions-") or "SYNTHESIZED" in (case / "SOURCE.md").read_text()
