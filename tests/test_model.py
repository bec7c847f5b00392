"""The model: one table a kind of fact, and what is left of a snapshot when its live facts may not be shown."""

from __future__ import annotations

import dataclasses

import pytest

from fakes import known, snapshot, unknown
from inspector.layout import Split
from inspector.model import MEMORY_FIELDS, POOL_FIELDS, SLOT_FIELDS, Memory, Pool, Slot, State, memory_without_live, without_live
from inspector.reading import NOT_OFFERED, Reason, Unknown

WHY = Unknown(Reason.STALE, "last observed 99 s ago")
NOT_READINGS = {Pool: {"id", "slots_detail", "layouts"}, Slot: {"id"}, Memory: set()}
TABLES = [(Pool, POOL_FIELDS), (Slot, SLOT_FIELDS), (Memory, MEMORY_FIELDS)]


@pytest.mark.parametrize(("kind", "table"), TABLES)
def test_every_measured_field_stands_in_its_table(kind, table):
    """A field without a table row would have no metric, no help and no age."""
    assert {f.name for f in dataclasses.fields(kind)} - NOT_READINGS[kind] == set(table)


@pytest.mark.parametrize(("kind", "table"), TABLES)
def test_what_nobody_filled_in_is_not_offered(kind, table):
    """There is no default figure in the model."""
    empty = kind(id=0) if kind is Slot else kind()
    assert {getattr(empty, name) for name in table} == {NOT_OFFERED}


@pytest.mark.parametrize(("kind", "table"), TABLES)
def test_a_row_says_what_its_field_means(kind, table):
    assert all(info.help and info.help[0].isupper() and not info.help.endswith(".") for info in table.values())
    assert all(info.counter == name.endswith("_total") and (info.live or not info.counter) for name, info in table.items())


@pytest.mark.parametrize("kind", [Pool, Slot, Memory])
def test_facts_are_frozen(kind):
    thing = kind(id=0) if kind is Slot else kind()
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(thing, dataclasses.fields(thing)[0].name, 1)


def full_pool() -> Pool:
    slot = Slot(3, **{name: known(True if name == "busy" else 5) for name in SLOT_FIELDS})
    return Pool("0", slots_detail=(slot,), layouts=(Split(4, 512),), **{name: known(1) for name in POOL_FIELDS})


def test_no_live_fact_survives_and_every_static_one_does():
    pool = full_pool()
    (aged,) = without_live((pool,), WHY)
    for name, info in POOL_FIELDS.items():
        assert aged.reading(name) == (WHY if info.live else pool.reading(name)), name
    for name, info in SLOT_FIELDS.items():
        assert getattr(aged.slots_detail[0], name) == (WHY if info.live else getattr(pool.slots_detail[0], name)), name
    assert aged.layouts == pool.layouts
    assert aged.slots_detail[0].id == 3
    memory = Memory(**{name: known(1) for name in MEMORY_FIELDS})
    for name, info in MEMORY_FIELDS.items():
        assert memory_without_live(memory, WHY).reading(name) == (WHY if info.live else memory.reading(name)), name


def test_what_the_engine_does_not_offer_does_not_become_stale():
    """`not_offered` has no series; `stale` would start one."""
    (aged,) = without_live((Pool(kv_used_tokens=known(5)),), WHY)
    assert aged.kv_used_tokens == WHY
    assert aged.preemptions_total == NOT_OFFERED
    assert memory_without_live(Memory(), WHY) == Memory()


def test_an_older_unknown_is_replaced_too():
    """What was unknown for another reason is as old as the rest."""
    assert without_live((Pool(slots_busy=unknown(Reason.ENDPOINT_DISABLED)),), WHY)[0].slots_busy == WHY


@pytest.mark.parametrize(
    ("state", "up"),
    [("ready", True), ("loading", True), ("sleeping", True), ("stalled", True), ("unauthorized", False), ("not_recognized", False), ("unreachable", False)],
)
def test_a_target_is_up_when_its_engine_was_recognized_and_answered(state, up):
    assert State(state).is_up is up


def test_the_states_are_those_of_the_table():
    assert len(State) == 7


def test_a_snapshot_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        snapshot().state = State.LOADING  # type: ignore[misc]
