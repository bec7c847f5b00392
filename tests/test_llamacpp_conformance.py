"""The kit that every adapter must pass, over recordings of real llama.cpp servers."""

from __future__ import annotations

from pathlib import Path

import pytest

from inspector.reading import Unknown
from inspector.testing import conformance
from inspector.testing.recordings import Recording
from inspector.testing.scripted import Answer
from inspector_llamacpp import ADAPTER
from test_llamacpp_captures import CASES, ask_of

# The kit breaks each body in hundreds of ways: a case of every kind is enough.
SITUATIONS = (
    "b7551-busy-host",
    "b9538-after-host",
    "b10434-idle-http",
    "b11434-busy-http",
    "b11434-exhausted",
    "b11434-sleeping",
    "b11434-loading",
    "b10068-router-loaded",
    "b11434-router-may-wake",
)


def recording(case: Path) -> Recording:
    """A case folder as a recording; the kit keys a router's model by all of its query."""
    ask = ask_of(case)
    answers: dict[str, Answer | Unknown] = {}
    for path, reply in ask.replies.items():
        answers[path.replace("?model=", "?autoload=false&model=")] = reply if isinstance(reply, Unknown) else Answer(reply[1], reply[0])
    return Recording(case.name, answers, ask.log, ask.launch, ask.stated, ask.may_wake, ask.may_scrape)


@pytest.mark.parametrize("name", sorted(conformance.CHECKS))
def test_conformance(name: str) -> None:
    conformance.check_one(name, ADAPTER, [recording(CASES / case) for case in SITUATIONS])
