"""What Alertmanager is told, and what becomes of it when Alertmanager is away."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from datetime import datetime

import anyio
import httpx
import pytest
from structlog.testing import capture_logs

from fakes import NOON, FakeClock
from inspector.alerts import catalogue
from inspector.alerts.conditions import Key
from inspector.alerts.status import AlertState, AlertStatus
from inspector.fetch import tls_context
from inspector.notify import AlertmanagerClient, Notifier, Server
from inspector.notify.client import Answer, Outcome
from inspector.notify.notice import alert_of, labels, notice
from inspector.notify.outbox import Outbox
from inspector.secrets import Secret

pytestmark = pytest.mark.anyio

KV = AlertStatus("InspectorKvHeadroomLow", "warning", "0", "kv", "", AlertState.FIRING, NOON, "kv headroom 3%")


def of(target="chat", status=KV, ended=None):
    return notice(target, status, NOON - 60, ended)


class FakeAlertmanager:
    """Takes what is posted while it is up. Alerts that are told live until their `endsAt`, by the given clock."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.answers = Outcome.TAKEN
        self.posts: list[list[dict]] = []
        self.readable: Answer = Answer(Outcome.TAKEN)
        self.closed = False
        self.arrived = anyio.Event()

    async def post(self, alerts):
        if self.answers is Outcome.TAKEN:
            self.posts.append(list(alerts))
            self.arrived.set()
            self.arrived = anyio.Event()
        return Answer(self.answers, "answered 500")

    async def active(self):
        return self.readable if self.answers is Outcome.TAKEN else Answer(self.answers, "answered 500")

    async def aclose(self):
        self.closed = True


class Delivery:
    """A notifier at work before a fake Alertmanager; `wait` until something holds."""

    def __init__(self, resend=1000.0) -> None:
        self.clock = FakeClock()
        self.server = FakeAlertmanager(self.clock)
        self.inherited = []
        self.notifier = Notifier(self.server, lambda *alert: self.inherited.append(alert), resend=resend, clock=self.clock, first_pause=0.01)

    async def __aenter__(self):
        self.tasks = anyio.create_task_group()
        await self.tasks.__aenter__()
        self.tasks.start_soon(self.notifier.run)
        return self

    async def __aexit__(self, *error):
        self.tasks.cancel_scope.cancel()
        await self.tasks.__aexit__(*error)

    async def wait(self, holds: Callable[[], bool]) -> None:
        with anyio.fail_after(10):
            while not holds():
                await anyio.sleep(0.005)


# --- The alert as Alertmanager takes it ---------------------------------------------------------------------------------------------------


def test_labels_are_identity_and_nothing_that_changes():
    told = of().payload(expires=NOON + 240)
    assert told["labels"] == {"alertname": "InspectorKvHeadroomLow", "severity": "warning", "target": "chat", "pool": "0"}
    assert told["annotations"]["description"] == "chat: kv headroom 3%"
    assert told["annotations"]["runbook_url"].endswith("docs/alerts.md#inspectorkvheadroomlow")


@pytest.mark.parametrize("ended", [None, NOON])
def test_an_alert_that_fires_expires_later_and_one_that_ended_has_ended(ended):
    told = of(ended=ended).payload(expires=NOON + 240)
    times = {None: "2027-01-15T08:04:00.000Z", NOON: "2027-01-15T07:59:30.000Z"}
    assert told["startsAt"] == "2027-01-15T07:59:00.000Z"
    assert told["endsAt"] == times[ended]


@pytest.mark.parametrize("behind", [0, 1, 20])
def test_an_end_has_come_also_for_an_alertmanager_whose_clock_is_behind(behind):
    """It would take an end that is yet to come for an alert that fires on, until that expires."""
    told = of(ended=NOON).payload(expires=NOON + 240)
    assert datetime.fromisoformat(told["endsAt"]).timestamp() <= NOON - behind


def test_an_alert_that_fired_for_a_moment_only_does_not_end_before_it_began():
    told = notice("chat", KV, NOON - 1, NOON).payload(expires=NOON + 240)
    assert told["startsAt"] <= told["endsAt"]


def test_a_clock_that_was_set_back_makes_no_alert_that_ends_before_it_began():
    """Alertmanager refuses such a one."""
    told = of().payload(expires=NOON - 3600)
    assert told["startsAt"] <= told["endsAt"]


def all_keys():
    for kind in catalogue.KINDS:
        for severity in kind.severities:
            for pool in ("", "0", "model b"):
                for session in ("", "chat"):
                    for resource in [kind.resource] if kind.resource else ["kv", "state"]:
                        yield Key(kind.name, severity, pool, resource, session)


def test_labels_lead_back_to_their_alert():
    for key in all_keys():
        assert alert_of(dict(labels("chat", key))) == ("chat", key)


def test_two_alerts_never_share_their_labels():
    keys = list(all_keys())
    assert len({labels("chat", key) for key in keys}) == len(keys)


@pytest.mark.parametrize(
    "change", [{"alertname": "HighLoad"}, {"target": None}, {"instance": "a:9836"}, {"severity": None}, {"alertname": None}, {"pool": ""}, {"target": 7}]
)
def test_alerts_of_others_are_not_taken_for_ours(change):
    """Prometheus' own alerts of these names carry `instance` and `job` as well."""
    found = {name: value for name, value in {**dict(of().labels), **change}.items() if value is not None}
    assert alert_of(found) is None


# --- The outbox -----------------------------------------------------------------------------------------------------------------------------


def test_what_fires_is_told_each_time_and_an_end_until_it_was_settled():
    outbox = Outbox()
    outbox.put([of("a")], [of("b", ended=NOON)])
    first = outbox.batch()
    assert {n.labels for n in first} == {of("a").labels, of("b").labels}
    assert outbox.batch() == first
    outbox.settled(first)
    assert [n.labels for n in outbox.batch()] == [of("a").labels]


def test_what_fires_anew_takes_back_its_end():
    outbox = Outbox()
    outbox.put([], [of(ended=NOON)])
    outbox.put([of()], [])
    assert [n.ended for n in outbox.batch()] == [None]


def test_an_end_that_came_while_another_was_on_its_way_is_not_lost():
    outbox = Outbox()
    outbox.put([], [of(ended=NOON)])
    sent = outbox.batch()
    outbox.put([], [of(ended=NOON + 9)])
    outbox.settled(sent)
    assert [n.ended for n in outbox.batch()] == [NOON + 9]


def test_the_outbox_is_bounded_and_counts_what_it_gives_up():
    outbox = Outbox(most_ends=3)
    outbox.put([], [of(f"t{number}", ended=NOON) for number in range(5)])
    assert (outbox.waiting, outbox.dropped) == (3, 2)
    assert {dict(n.labels)["target"] for n in outbox.batch()} == {"t2", "t3", "t4"}


# --- Delivery -------------------------------------------------------------------------------------------------------------------------------


async def test_a_change_is_told_at_once():
    async with Delivery() as delivery:
        delivery.notifier.put([of()], [], changed=True)
        await delivery.wait(lambda: bool(delivery.server.posts))
        assert delivery.server.posts[-1][0]["endsAt"] == "2027-01-15T09:06:40.000Z"
        assert delivery.notifier.deliveries.sent == 1


async def test_what_fires_already_when_an_alertmanager_is_named_is_told_at_once():
    """A reload that names another one is no change of any alert."""
    async with Delivery() as delivery:
        await anyio.wait_all_tasks_blocked()  # It has found nothing to tell, and waits for a change.
        delivery.notifier.put([of()], [], changed=False)
        await delivery.wait(lambda: bool(delivery.server.posts))


@pytest.mark.parametrize("asked", ["active", "post"])
async def test_a_change_that_came_during_a_round_is_told_at_once(asked, monkeypatch):
    """Not with the next resend, which may be minutes away."""
    async with Delivery() as delivery:
        answer, reached, go_on = getattr(delivery.server, asked), anyio.Event(), anyio.Event()

        async def slow(*arguments):
            reached.set()
            await go_on.wait()
            return await answer(*arguments)

        monkeypatch.setattr(delivery.server, asked, slow)
        delivery.notifier.put([of("a")], [], changed=True)
        with anyio.fail_after(10):
            await reached.wait()
        delivery.notifier.put([of("a"), of("b")], [of("c", ended=NOON)], changed=True)
        go_on.set()
        await delivery.wait(lambda: {alert["labels"]["target"] for post in delivery.server.posts for alert in post} == {"a", "b", "c"})


async def test_what_fires_is_told_again_before_it_expires():
    async with Delivery(resend=0.02) as delivery:
        delivery.notifier.put([of()], [], changed=True)
        await delivery.wait(lambda: len(delivery.server.posts) >= 3)
        delivery.clock.now += 50
        before = len(delivery.server.posts)
        await delivery.wait(lambda: len(delivery.server.posts) > before + 1)
        ends = [post[0]["endsAt"] for post in delivery.server.posts]
        assert ends[0] < ends[-1]


async def test_an_end_is_told_once():
    async with Delivery(resend=0.02) as delivery:
        delivery.notifier.put([of("a")], [of("b", ended=NOON)], changed=True)
        await delivery.wait(lambda: len(delivery.server.posts) >= 4)
        told = [alert["labels"]["target"] for post in delivery.server.posts for alert in post]
        assert told.count("b") == 1
        assert told.count("a") >= 4


async def test_nothing_is_lost_while_alertmanager_is_away():
    async with Delivery() as delivery:
        delivery.server.answers = Outcome.FAILED
        delivery.notifier.put([of("a")], [of("b", ended=NOON)], changed=True)
        await delivery.wait(lambda: delivery.notifier.deliveries.failures >= 3)
        assert delivery.notifier.deliveries.waiting == 1
        delivery.server.answers = Outcome.TAKEN
        await delivery.wait(lambda: bool(delivery.server.posts))
        assert {alert["labels"]["target"] for alert in delivery.server.posts[0]} == {"a", "b"}
        await delivery.wait(lambda: delivery.notifier.deliveries.waiting == 0)


@pytest.mark.parametrize("ends", [1, 1201])
async def test_an_end_whose_own_request_failed_is_told_by_a_later_one(ends):
    """Alertmanager goes away only after what an earlier process left there was read."""
    async with Delivery() as delivery:
        delivery.notifier.put([of("a")], [], changed=True)
        await delivery.wait(lambda: bool(delivery.server.posts))
        delivery.server.answers = Outcome.FAILED
        delivery.notifier.put([of("a")], [of(f"t{number}", ended=NOON) for number in range(ends)], changed=True)
        await delivery.wait(lambda: delivery.notifier.deliveries.failures >= 3)
        assert delivery.notifier.deliveries.waiting == ends
        delivery.server.answers = Outcome.TAKEN
        await delivery.wait(lambda: delivery.notifier.deliveries.waiting == 0)
        told = [alert["labels"]["target"] for post in delivery.server.posts for alert in post]
        assert sorted(name for name in told if name != "a") == sorted(f"t{number}" for number in range(ends))


async def test_what_is_refused_is_not_sent_for_ever():
    """A 400 is about the alerts themselves: the same ones would be refused again."""
    async with Delivery() as delivery:
        delivery.server.answers = Outcome.REFUSED
        delivery.notifier.put([], [of(ended=NOON)], changed=True)
        await delivery.wait(lambda: delivery.notifier.deliveries.waiting == 0)
        assert (delivery.notifier.deliveries.sent, delivery.notifier.deliveries.dropped) == (0, 1)


async def test_trouble_is_told_once_and_so_is_its_end():
    with capture_logs() as logs:
        async with Delivery() as delivery:
            delivery.server.answers = Outcome.FAILED
            delivery.notifier.put([of()], [], changed=True)
            await delivery.wait(lambda: delivery.notifier.deliveries.failures >= 4)
            delivery.server.answers = Outcome.TAKEN
            await delivery.wait(lambda: bool(delivery.server.posts))
    assert [event["event"] for event in logs] == ["alerts not delivered", "alerts are delivered again"]


async def test_many_alerts_go_in_several_requests():
    async with Delivery() as delivery:
        delivery.notifier.put([of(f"t{number}") for number in range(1201)], [], changed=True)
        await delivery.wait(lambda: sum(map(len, delivery.server.posts)) == 1201)
        assert max(map(len, delivery.server.posts)) <= 500


async def test_alerts_of_an_earlier_process_are_inherited_before_anything_is_told():
    async with Delivery() as delivery:
        delivery.server.readable = Answer(Outcome.TAKEN, alerts=[(dict(of().labels), NOON), ({"alertname": "HighLoad"}, NOON)])
        delivery.notifier.put([], [], changed=True)
        await delivery.wait(lambda: bool(delivery.inherited))
    assert delivery.inherited == [("chat", Key("InspectorKvHeadroomLow", "warning", "0", "kv"), NOON)]
    assert delivery.server.closed


# --- Over HTTP ------------------------------------------------------------------------------------------------------------------------------


def client(handler, **settings):
    def streamed(request):
        """Unread, as from a socket."""
        made = handler(request)
        return httpx.Response(made.status_code, headers=made.headers, stream=made.stream)

    return AlertmanagerClient(Server("http://127.0.0.1:9093/base/", **settings), tls_context, httpx.MockTransport(streamed))


@pytest.mark.parametrize(
    ("settings", "header"),
    [
        ({}, None),
        ({"bearer_token": Secret("token")}, "Bearer token"),
        ({"username": "ops", "password": Secret("pass")}, "Basic b3BzOnBhc3M="),
    ],
)
async def test_it_posts_a_list_with_the_permission_that_was_given(settings, header):
    seen = []
    asked = client(lambda request: seen.append(request) or httpx.Response(200), **settings)
    assert (await asked.post([of().payload(NOON)])).outcome is Outcome.TAKEN
    assert (seen[0].method, str(seen[0].url), seen[0].headers.get("authorization")) == ("POST", "http://127.0.0.1:9093/base/api/v2/alerts", header)
    assert json.loads(seen[0].content)[0]["labels"]["target"] == "chat"


@pytest.mark.parametrize(
    ("status", "outcome"),
    [(200, "taken"), (400, "refused"), (401, "failed"), (404, "failed"), (301, "failed"), (429, "failed"), (500, "failed"), (503, "failed")],
)
async def test_only_a_400_is_final(status, outcome):
    answer = await client(lambda _: httpx.Response(status, text="secret words", headers={"location": "/x"})).post([])
    assert answer.outcome == outcome
    assert "secret" not in answer.detail


@pytest.mark.parametrize(("status", "outcome"), [(403, "refused"), (405, "refused"), (401, "failed"), (502, "failed")])
async def test_one_that_shows_no_alerts_is_told_all_the_same(status, outcome):
    """A gate may let alerts in and nothing out: then there is nothing to inherit, and no reason to wait."""
    assert (await client(lambda _: httpx.Response(status)).active()).outcome == outcome


@pytest.mark.parametrize("error", [httpx.ConnectError("s3cret"), httpx.ReadTimeout("s3cret"), httpx.RemoteProtocolError("s3cret")])
async def test_every_trouble_on_the_way_is_an_outcome(error):
    def fail(_):
        raise error

    answer = await client(fail).post([])
    assert answer.outcome is Outcome.FAILED
    assert "s3cret" not in answer.detail


@pytest.mark.parametrize("body", [b"", b"<html>", b"{}", b"[1]", b'[{"labels": {}}]', b'[{"labels": 3, "startsAt": "x"}]', b"\xff"])
async def test_an_answer_that_is_no_list_of_alerts_is_refused(body):
    assert (await client(lambda _: httpx.Response(200, content=body)).active()).outcome is Outcome.REFUSED


async def test_an_answer_that_drips_does_not_hold_the_delivery(monkeypatch):
    """Each byte comes in time, and the last one never."""
    monkeypatch.setattr("inspector.notify.client.TIMEOUT", 0.2)

    async def drip():
        while True:
            yield b" "
            await anyio.sleep(0.01)

    asked = client(lambda _: httpx.Response(200, content=drip()))
    with anyio.fail_after(10):
        assert (await asked.active()).outcome is Outcome.FAILED
        assert (await asked.post([])).outcome is Outcome.FAILED


async def test_an_answer_is_not_unpacked_and_not_read_without_end(monkeypatch):
    """A few bytes of gzip may stand for gigabytes."""
    monkeypatch.setattr("inspector.notify.client.LARGEST_BODY", 1000)
    seen = []
    packed = httpx.Response(200, content=gzip.compress(b"[]"), headers={"Content-Encoding": "gzip"})
    assert (await client(lambda request: seen.append(request) or packed).active()).outcome is Outcome.REFUSED
    assert seen[0].headers["accept-encoding"] == "identity"
    assert (await client(lambda _: httpx.Response(200, content=b"[" + b" " * 2000 + b"]")).active()).outcome is Outcome.REFUSED
