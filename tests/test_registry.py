"""Adapters by entry points: one that does not work is listed, never raised."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from inspector.contract import Observation, Route
from inspector.model import State
from inspector.registry import Broken, load_adapters


class Good:
    name = "good"
    title = "Good engine"
    interval = 5.0
    routes = (Route("/health"),)

    def offers(self, version: str | None) -> frozenset[str]:
        return frozenset()

    def start(self) -> None:
        return None

    async def observe(self, ask: Any, recall: None) -> Observation:
        return Observation(State.READY)


@dataclass
class Point:
    name: str
    target: Any
    value: str = "somewhere:ADAPTER"
    distribution: str | None = "some-package"

    @property
    def dist(self) -> Any:
        return None if self.distribution is None else SimpleNamespace(name=self.distribution)

    def load(self) -> Any:
        if isinstance(self.target, BaseException):
            raise self.target
        return self.target


def variant(**changes: Any) -> Good:
    return type("Variant", (Good,), changes)()


def test_our_own_adapter_is_found_by_its_entry_point():
    registry = load_adapters()
    assert registry.broken == ()
    assert registry.adapters["llamacpp"].name == "llamacpp"


def test_a_good_adapter():
    good = Good()
    registry = load_adapters([Point("good", good)])
    assert registry.adapters == {"good": good}
    assert registry.broken == ()


@pytest.mark.parametrize(
    "error",
    [
        ModuleNotFoundError("No module named 'inspector_x'"),
        AttributeError("no ADAPTER"),
        ValueError("x\ny"),
        RuntimeError("z" * 5000),
        SystemExit(3),
        SyntaxError("bad"),
    ],
)
def test_an_adapter_that_cannot_be_imported_is_listed_and_the_others_work(error):
    registry = load_adapters([Point("bad", error), Point("good", Good())])
    assert list(registry.adapters) == ["good"]
    (broken,) = registry.broken
    assert (broken.name, broken.distribution) == ("bad", "some-package")
    assert type(error).__name__ in broken.problem
    assert "\n" not in broken.problem
    assert len(broken.problem) < 300


@pytest.mark.parametrize(
    ("adapter", "says"),
    [
        (object(), "lacks name, title, interval, routes, offers, start, observe"),
        (None, "lacks"),
        (Good, "names a class"),
        (variant(name="other"), "name"),
        (variant(title=""), "title"),
        (variant(title=3), "title"),
        (variant(interval=0), "interval"),
        (variant(interval=True), "interval"),
        (variant(interval="5s"), "interval"),
        (variant(routes=()), "routes"),
        (variant(routes=["/health"]), "routes"),
        (variant(routes=("/health",)), "routes"),
        (variant(start=None), "methods"),
        (variant(observe=lambda self, ask, recall: None), "async"),
        (variant(flags={"-c": 1}), "FlagTable"),
        (variant(log_patterns=["x"]), "LogPattern"),
        (variant(title=property(lambda self: 1 / 0)), "ZeroDivisionError"),
    ],
)
def test_an_object_of_another_shape_is_listed_with_what_is_wrong(adapter, says):
    registry = load_adapters([Point("good", adapter)])
    assert registry.adapters == {}
    (broken,) = registry.broken
    assert says in broken.problem


def test_a_name_that_two_packages_use_goes_to_the_first_and_the_second_is_listed():
    first, second = Good(), Good()
    registry = load_adapters([Point("good", first), Point("good", second, value="elsewhere:ADAPTER", distribution="other-package")])
    assert registry.adapters["good"] is first
    assert registry.broken == (Broken("good", "another installed adapter has this name and is used: uninstall one of them", "other-package"),)


def test_one_package_that_is_found_twice_is_no_clash():
    registry = load_adapters([Point("good", Good()), Point("good", Good())])
    assert list(registry.adapters) == ["good"]
    assert registry.broken == ()


def test_an_entry_point_without_a_distribution():
    assert load_adapters([Point("bad", ImportError("x"), distribution=None)]).broken[0].distribution == ""
