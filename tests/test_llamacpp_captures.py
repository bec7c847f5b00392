"""Every case folder of tests/fixtures/llamacpp/cases: what real servers of seven builds answered, and what an honest inspector makes of it.

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
from inspector_llamacpp import ADAPTER

pytestmark = pytest.mark.anyio

CASES = Path(__file__).parent / "fixtures" / "llamacpp" / "cases"
OFFERED = sorted(ADAPTER.offers(None))


def ask_of(case: Path) -> FakeAsk:
    return load_case(case, ADAPTER.routes, ADAPTER.log_patterns)


def told(reading: Reading[Any]) -> Any:
    """A reading in the form of expected.json."""
    if isinstance(reading, Known):
        return reading.value
    return {"reason": str(reading.reason), "bounds": list(reading.bounds)} if reading.bounds else {"reason": str(reading.reason)}


def expected_fields(pool: dict[str, Any]) -> dict[str, Any]:
    unknown = {name: {"reason": form} if isinstance(form, str) else form for name, form in pool["unknown"].items()}
    return {**pool["known"], **unknown}


def fields(pool: Pool) -> dict[str, Any]:
    return {name: told(pool.reading(name)) for name in OFFERED}


async def observed(ask: FakeAsk) -> Observation:
    return await ADAPTER.observe(ask, ADAPTER.start())


@pytest.mark.parametrize("case", sorted(CASES.iterdir()), ids=lambda case: case.name)
async def test_case(case: Path) -> None:
    expected = json.loads((case / "expected.json").read_text())
    ask = ask_of(case)
    observation = await observed(ask)
    assert observation.state == expected["state"]
    assert {pool.id: fields(pool) for pool in observation.pools} == {name: expected_fields(pool) for name, pool in expected["pools"].items()}
    if "asked" in expected:
        assert ask.asked == expected["asked"]
    if "version" in expected:
        assert told(observation.version) == expected["version"]
    assert [drift.field for drift in observation.drift] == expected.get("drift", [])
    for pool in observation.pools:
        for slot, wanted in expected["pools"][pool.id].get("slots", {}).items():
            seen = next(s for s in pool.slots_detail if str(s.id) == slot)
            assert {name: told(getattr(seen, name)) for name in wanted} == wanted


def test_expected_json_speaks_of_every_offered_field() -> None:
    for case in CASES.iterdir():
        for pool in json.loads((case / "expected.json").read_text())["pools"].values():
            assert sorted({**pool["known"], **pool["unknown"]}) == OFFERED, case.name
