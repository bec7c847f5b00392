"""Settings of a launch file beside those of the process that runs."""

from __future__ import annotations

from typing import Any

from fakes import known
from inspector.contract import LaunchView, Observation
from inspector.launch import with_launch_drift
from inspector.model import Drift, Pool, State
from inspector.reading import Kind, Known, Origin, Reason, Unknown

UNCLEAR = Unknown(Reason.NO_SOURCE, "a variable that is not resolved here")
ONE_POOL = Observation(State.READY, pools=(Pool(id="0", slots=known(4)),))


def view(live: bool, missing: str = "", **stated: Any) -> LaunchView:
    path = "pid 7" if live else "start.sh"
    origin = Origin(Kind.LAUNCH, path, 1.0)
    return LaunchView(path, live, {name: value if isinstance(value, Unknown) else Known(value, origin) for name, value in stated.items()}, 1.0, missing)


def drift(live: LaunchView | Unknown, file: LaunchView | Unknown, observation: Observation = ONE_POOL) -> tuple[Drift, ...]:
    return with_launch_drift(observation, live, file).drift


def test_each_setting_that_both_state_differently_is_drift_and_the_process_is_believed() -> None:
    live, file = view(live=True, parallel=4, ctx_size=8192, metrics=True, model="a"), view(live=False, parallel=4, ctx_size=4096, metrics=False, model="a")
    assert drift(live, file) == (
        Drift("0", "ctx_size", "launch", "launch file", "launch:pid 7 says 8192, launch:start.sh says 4096"),
        Drift("0", "metrics", "launch", "launch file", "launch:pid 7 says True, launch:start.sh says False"),
    )


def test_equal_ones_are_none() -> None:
    assert drift(view(live=True, parallel=4, cache_type_k="q8_0"), view(live=False, parallel=4, cache_type_k="q8_0")) == ()


def test_what_one_of_them_does_not_say_is_no_disagreement() -> None:
    for live, file in (({}, {"parallel": 4}), ({"parallel": 4}, {}), ({"parallel": UNCLEAR}, {"parallel": 4}), ({"parallel": 4}, {"parallel": UNCLEAR})):
        assert drift(view(live=True, **live), view(live=False, **file)) == ()
    assert drift(view(live=True, parallel=4), view(live=False, missing="an environment file was not read")) == ()


def test_without_process_or_file_nothing_is_compared() -> None:
    nothing = Unknown(Reason.NO_SOURCE, "not looked at")
    assert drift(nothing, view(live=False, parallel=4)) == drift(view(live=True, parallel=4), nothing) == ()


def test_what_the_adapter_compared_itself_is_told_once() -> None:
    own = Drift("0", "slots", "log", "launch file", "4 against 2")
    observation = Observation(State.READY, pools=ONE_POOL.pools, drift=(own,))
    assert drift(view(live=True, slots=4), view(live=False, slots=2), observation) == (own,)


def test_settings_belong_to_no_pool_where_there_are_several() -> None:
    several = Observation(State.READY, pools=(Pool(id="a"), Pool(id="b")))
    (found,) = drift(view(live=True, port=1), view(live=False, port=2), several)
    assert found.pool == ""
