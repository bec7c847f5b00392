"""The kit that every adapter must pass, over recordings of a real mlx_lm.server."""

from __future__ import annotations

from pathlib import Path

import pytest

from inspector.contract import Reply
from inspector.discovery import RECOGNITION_ROUTES
from inspector.testing import conformance, load_recordings
from inspector.testing.recordings import Recording
from inspector.testing.scripted import NOW, Answer
from inspector_mlx import ADAPTER

RECORDINGS = load_recordings(Path(__file__).parent / "fixtures" / "conformance" / "mlx")


@pytest.mark.parametrize("name", sorted(conformance.CHECKS))
def test_conformance(name: str) -> None:
    conformance.check_one(name, ADAPTER, RECORDINGS)


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda recording: recording.name)
def test_it_recognizes_its_own(recording: Recording) -> None:
    replies: dict[str, Reply] = {}
    known: list[bool] = []
    for route in RECOGNITION_ROUTES:
        answer = recording.answers.get(route.path, Answer(b"Not Found", 404, {"server": "BaseHTTP/0.6 Python/3.11.7"}))
        assert isinstance(answer, Answer)
        replies[route.path] = Reply(route, answer.status, answer.headers, answer.body, NOW)
        known.append(ADAPTER.recognize(replies))
    assert known == [False, False, False, True]


def test_another_python_server_is_a_stranger() -> None:
    server = {"server": "SimpleHTTP/0.6 Python/3.11.7"}
    bodies = {"/health": b'{"status": "ok"}', "/v1/models": b'{"object": "list", "data": [{"id": "a", "object": "model", "created": 1, "owned_by": "b"}]}'}
    for headers in (server, {"server": "BaseHTTP/0.6 Python/3.11.7"}):
        replies = {route.path: Reply(route, 200, headers, bodies.get(route.path, b"{}"), NOW) for route in RECOGNITION_ROUTES}
        assert not ADAPTER.recognize(replies)
