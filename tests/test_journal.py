"""What is written to the journal, and what never is."""

import io
import json
import logging

import pytest
import structlog

from board_fixtures import UNTOLD, known, pool, snapshot
from inspector.journal import Changes, Secrets, set_up
from inspector.model import State
from inspector.verbosity import Format, LogLevel

KEY = "sk-very-secret"


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture(autouse=True)
def _restore():
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    structlog.reset_defaults()
    root.handlers[:] = handlers
    root.setLevel(level)


def written(stream):
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def journal(level=LogLevel.DEBUG, secrets=()):
    stream = io.StringIO()
    set_up(Secrets(secrets), Format.AUTO, level, stream)
    return stream


def test_off_a_terminal_every_event_is_a_line_of_json():
    stream = journal()
    structlog.get_logger().info("started", targets=2)
    (event,) = written(stream)
    assert (event["event"], event["targets"], event["level"]) == ("started", 2, "info")
    assert event["timestamp"].endswith("Z")


@pytest.mark.parametrize(("no_color", "colored"), [(None, True), ("1", False)])
def test_on_a_terminal_it_is_for_people_and_coloured_unless_they_object(monkeypatch, no_color, colored):
    monkeypatch.delenv("NO_COLOR", raising=False)
    if no_color is not None:
        monkeypatch.setenv("NO_COLOR", no_color)
    stream = Terminal()
    set_up(Secrets(), stream=stream)
    structlog.get_logger().info("started")
    assert "started" in stream.getvalue()
    assert ("\x1b[" in stream.getvalue()) is colored


def test_people_can_have_their_format_without_a_terminal_and_then_it_has_no_colour():
    stream = io.StringIO()
    set_up(Secrets(), Format.HUMAN, stream=stream)
    structlog.get_logger().info("started", target="chat")
    assert "target=chat" in stream.getvalue()
    assert "\x1b" not in stream.getvalue()


def test_the_level_is_a_threshold():
    stream = journal(LogLevel.WARNING)
    structlog.get_logger().info("quiet")
    structlog.get_logger().warning("loud")
    assert [event["event"] for event in written(stream)] == ["loud"]


@pytest.mark.parametrize(
    "event",
    [
        {"detail": f"Authorization: Bearer {KEY}"},
        {"headers": {"x-key": KEY}},
        {"headers": {KEY: "x"}},
        {"argv": ["llama-server", "--api-key", KEY]},
        {"pair": ({"deep": [KEY]},)},
        {"error": ValueError(f"bad header {KEY}")},
    ],
)
@pytest.mark.parametrize("log_format", [Format.JSON, Format.HUMAN])
def test_a_secret_is_masked_wherever_it_stands(event, log_format):
    stream = io.StringIO()
    set_up(Secrets([KEY]), log_format, stream=stream)
    structlog.get_logger().error(f"failed with {KEY}", **event)
    assert KEY not in stream.getvalue()
    assert "***" in stream.getvalue()


def test_a_secret_in_a_traceback_is_masked():
    stream = journal(secrets=[KEY])
    try:
        int(KEY)
    except ValueError:
        structlog.get_logger().exception("broke")
    assert "ValueError" in stream.getvalue()
    assert KEY not in stream.getvalue()


def test_a_secret_that_a_library_logs_is_masked_as_well():
    stream = journal(secrets=[KEY])
    logging.getLogger("httpx").warning("sent %s", KEY)
    (event,) = written(stream)
    assert (event["event"], event["logger"]) == ("sent ***", "httpx")


def test_an_exception_that_a_library_logs_is_its_type_and_place_without_text_or_folder():
    stream = journal()
    try:
        raise OSError("/srv/hunter2 cannot be read")  # noqa: TRY301
    except OSError:
        logging.getLogger("asyncio").exception("Fatal error\nprotocol: <x at /srv/hunter2>")
    (event,) = written(stream)
    assert (event["event"], event["logger"], event["error"]) == ("Fatal error", "asyncio", "OSError")
    assert event["at"].startswith("test_journal.py:")
    assert not {"hunter2", "/", "Traceback"} & {word for word in ("hunter2", "/", "Traceback") if word in stream.getvalue()}


def test_what_libraries_tell_at_info_is_not_our_concern():
    stream = journal()
    logging.getLogger("httpx").info("GET http://127.0.0.1:8080/health")
    assert written(stream) == []


def test_the_longer_of_two_secrets_is_masked_whole():
    assert Secrets(["token", "token-and-more"]).masked("token-and-more") == "***"


def test_numbers_and_nothing_are_left_as_they_are():
    values = {"a": 1, "b": 1.5, "c": None, "d": True}
    assert Secrets(["1234"]).masked(values) == values


def changes_of(*snapshots):
    stream = journal()
    changes = Changes()
    for one in snapshots:
        changes.note(one)
    return [event for event in written(stream) if event["level"] != "debug"]


def test_a_target_is_introduced_once_and_then_only_changes_are_told():
    events = changes_of(snapshot(), snapshot(), snapshot())
    assert [event["event"] for event in events] == ["target state", "target fields"]
    assert (events[0]["state"], events[0]["engine"], events[0]["version"]) == ("ready", "fake", "b1")
    assert events[1]["unknown"] == ["requests_waiting (endpoint_disabled)"]


def test_a_change_of_state_tells_the_old_and_the_new_and_why():
    events = changes_of(snapshot(), snapshot(state=State.UNREACHABLE), snapshot(state=State.UNREACHABLE), snapshot())
    states = [(e.get("before"), e["state"], e["level"]) for e in events if e["event"] == "target state"]
    assert states == [(None, "ready", "info"), ("ready", "unreachable", "warning"), ("unreachable", "ready", "info")]
    assert [e["detail"] for e in events if e.get("state") == "unreachable"] == ["the server is unreachable"]


def test_a_field_that_becomes_unknown_is_told_with_reason_and_remedy_and_again_when_it_is_back():
    dark = snapshot(pools=(pool(kv_used_tokens=UNTOLD),))
    events = changes_of(snapshot(), dark, dark, snapshot())
    told = [(e["event"], e["field"], e.get("reason"), e.get("detail")) for e in events if e["event"].startswith("field")]
    assert told == [("field unknown", "kv_used_tokens", "endpoint_disabled", UNTOLD.detail), ("field known", "kv_used_tokens", None, None)]


def test_a_server_that_is_down_is_one_event_not_one_for_every_field():
    events = changes_of(snapshot(), snapshot(state=State.UNREACHABLE), snapshot())
    assert not [e for e in events if e["event"].startswith("field")]


def test_another_value_is_no_change():
    assert len(changes_of(snapshot(), snapshot(pools=(pool(kv_used_tokens=known(1)),)))) == 2


def test_a_target_that_was_forgotten_is_introduced_anew():
    stream = journal()
    changes = Changes()
    changes.note(snapshot())
    changes.forget("chat")
    changes.note(snapshot())
    assert [e["event"] for e in written(stream) if e["level"] != "debug"] == ["target state", "target fields"] * 2


def test_every_poll_is_a_debug_event():
    stream = journal()
    Changes().note(snapshot())
    assert [e["event"] for e in written(stream) if e["level"] == "debug"] == ["polled"]
