"""Alerts of a running daemon: on the board, in the journal, at an Alertmanager; through reloads, restarts and removals."""

from __future__ import annotations

from contextlib import asynccontextmanager

import anyio
import httpx
import pytest
import structlog

from board_fixtures import NOW, pool, snapshot
from fake_alertmanager import fake_alertmanager
from fakes import FakeClock, known
from inspector.alerting import Alerting
from inspector.alerts.alerts import Alerts
from inspector.alerts.conditions import Key
from inspector.alerts.machine import Timing
from inspector.board import Board, TargetInfo
from inspector.config import Alertmanager, load
from inspector.daemon import Daemon, Pace
from inspector.delivering import Delivering
from inspector.journal import Secrets
from inspector.metrics import OwnStatus
from inspector.registry import load_adapters
from inspector.report import targets_report
from inspector.server import bind
from inspector.wiring import secrets_of
from recorded_server import recorded_server

pytestmark = pytest.mark.anyio

FULL = pool(kv_used_tokens=known(4000))
EMPTY = pool(kv_used_tokens=known(10))
SECRET = "hunter2-hunter2"


class Listener:
    def __init__(self) -> None:
        self.firing, self.ended, self.changed = [], [], []
        self.starts = set()

    def put(self, firing, ended, *, changed):
        firing = list(firing)
        self.starts |= {(notice.labels, notice.started) for notice in [*firing, *ended]}
        self.firing = [dict(notice.labels) for notice in firing]
        self.ended += [dict(notice.labels) for notice in ended]
        self.changed.append(changed)


class Bench:
    """A board, its alerting and a clock."""

    def __init__(self, names=("chat",)) -> None:
        self.clock = FakeClock(NOW)
        self.board = Board(clock=self.clock)
        self.names = set(names)
        for name in names:
            self.board.add(TargetInfo(name, "fake", "127.0.0.1:8080", stale_after=15.0))
        self.alerting = Alerting(self.board, Alerts(Timing(0, 0, 600)), lambda: self.names, self.clock)
        self.alerting.listener = self.listener = Listener()

    def see(self, *snapshots):
        self.clock.now += 5
        for one in snapshots:
            self.board.put(one)
        self.alerting.evaluate()

    def names_firing(self):
        return sorted({(labels["target"], labels["alertname"], labels["severity"]) for labels in self.listener.firing})


KV = [("chat", "InspectorKvHeadroomLow", "critical"), ("chat", "InspectorKvHeadroomLow", "warning")]


def test_states_stand_on_the_board_and_the_listener_hears_of_changes():
    bench = Bench()
    bench.see(snapshot(pools=(EMPTY,), at=bench.clock.now))
    bench.see(snapshot(pools=(FULL,), at=bench.clock.now))
    assert bench.names_firing() == KV
    (entry,) = bench.board.entries()
    assert {a.alert for a in entry.alerts if a.state == "firing"} == {"InspectorKvHeadroomLow"}
    bench.see(snapshot(pools=(FULL,), at=bench.clock.now))
    assert bench.listener.changed == [False, True, False]
    bench.see(snapshot(pools=(EMPTY,), at=bench.clock.now))
    assert (bench.names_firing(), len(bench.listener.ended)) == ([], 2)


def test_what_fires_keeps_its_start_and_its_end_has_it_too():
    """Alertmanager knows one alert by its labels; a start that moves makes each telling a new one."""
    bench = Bench()
    for used in (EMPTY, FULL, FULL, FULL, EMPTY):
        bench.see(snapshot(pools=(used,), at=bench.clock.now))
    assert len(bench.listener.ended) == 2
    assert {started for _, started in bench.listener.starts} == {NOW + 10}


def test_the_json_tells_each_alert_with_its_words():
    bench = Bench()
    bench.see(snapshot(pools=(FULL,), at=bench.clock.now))
    (target,) = targets_report(bench.board.entries())["targets"]
    (alert,) = [a for a in target["alerts"] if (a["alert"], a["severity"]) == ("InspectorKvHeadroomLow", "critical")]
    assert (alert["state"], alert["pool"], alert["session"], alert["held"]) == ("firing", "0", None, False)
    assert alert["detail"] == "kv headroom 2%; wanted: at least 5%"


def test_the_journal_has_one_event_for_each_change():
    with structlog.testing.capture_logs() as events:
        bench = Bench()
        for used in (EMPTY, FULL, FULL, FULL, EMPTY, EMPTY):
            bench.see(snapshot(pools=(used,), at=bench.clock.now))
    loud = [(e["log_level"], e["event"], e["severity"]) for e in events if e["log_level"] != "debug"]
    assert sorted(loud) == sorted(
        [(level, event, severity) for severity in ("warning", "critical") for level, event in (("warning", "alert fires"), ("info", "alert ends"))]
    )


def test_a_target_that_is_begun_anew_keeps_its_alerts_and_one_that_is_removed_resolves_them():
    bench = Bench()
    bench.see(snapshot(pools=(FULL,), at=bench.clock.now))
    bench.board.remove("chat")
    bench.see()
    bench.board.add(TargetInfo("chat", "fake", "127.0.0.1:8081", stale_after=15.0))
    bench.see()
    assert (bench.names_firing(), bench.listener.ended) == (KV, [])
    bench.names.clear()
    bench.board.remove("chat")
    bench.see()
    assert (bench.names_firing(), len(bench.listener.ended)) == ([], 2)


def test_a_target_that_is_on_its_way_out_ends_once():
    """Its task is still closing, so the board still has it."""
    bench = Bench()
    bench.see(snapshot(pools=(FULL,), at=bench.clock.now))
    bench.names.clear()
    for _ in range(3):
        bench.see(snapshot(pools=(FULL,), at=bench.clock.now))
    assert (bench.names_firing(), len(bench.listener.ended)) == ([], 2)


def test_an_inherited_alert_is_not_kept_for_a_target_that_comes_next_week():
    bench = Bench(())
    bench.alerting.inherit("chat", Key("InspectorKvHeadroomLow", "critical", "0", "kv"), NOW - 100)
    bench.see()
    bench.clock.now += 7 * 86400
    bench.names.add("chat")
    bench.board.add(TargetInfo("chat", "fake", "127.0.0.1:8080", stale_after=15.0))
    bench.see()
    bench.see()
    assert bench.names_firing() == []


async def test_an_alertmanager_whose_client_cannot_be_made_disturbs_nobody():
    """Its certificate was taken away since the configuration was loaded."""

    def broken(_):
        raise OSError("words of a path")

    own = OwnStatus()
    with structlog.testing.capture_logs() as events:
        async with anyio.create_task_group() as tasks:
            Delivering(tasks, Bench().alerting, own, broken).tell(Alertmanager(url="http://127.0.0.1:9"))
            await until(lambda: own.task_failures == 1)
            tasks.cancel_scope.cancel()
    assert "words of a path" not in repr(events)


def test_a_board_that_nothing_is_put_on_any_more_resolves_nothing():
    bench = Bench()
    bench.see(snapshot(pools=(FULL,), at=bench.clock.now))
    for _ in range(400):
        bench.see()
    assert [name for name in bench.names_firing() if name[1] == "InspectorKvHeadroomLow"] == KV
    assert ("chat", "InspectorHeadroomUnknown", "warning") in bench.names_firing()


def test_an_inherited_alert_waits_for_its_target():
    """A daemon that looks for its servers by itself finds them after it has asked Alertmanager."""
    bench = Bench(())
    bench.alerting.inherit("chat", Key("InspectorKvHeadroomLow", "critical", "0", "kv"), NOW - 100)
    bench.see()
    assert bench.names_firing() == []
    bench.names.add("chat")
    bench.board.add(TargetInfo("chat", "fake", "127.0.0.1:8080", stale_after=15.0))
    bench.see()
    bench.see()
    assert bench.names_firing() == KV[:1]
    bench.see(snapshot(pools=(EMPTY,), at=bench.clock.now))
    assert (bench.names_firing(), len(bench.listener.ended)) == ([], 1)


# --- The daemon -----------------------------------------------------------------------------------------------------------------------------

FILE = """
alerts: {{for: 0, keep_firing_for: {keep}}}
alertmanager: {{url: "{alertmanager}", resend: 50ms, basic_auth: {{username: ops, password_file: password}}}}
thresholds: {{kv: {{warning: {kv}}}, slots: {{warning: 0.99}}}}
targets:
  - {{name: {name}, url: "{url}", engine: llamacpp, launch: none, interval: 50ms, may_wake: true, facts: {{kv_unified: true, kv_capacity_tokens: 4096}}}}
"""


class Site:
    """A configuration file that a test rewrites."""

    def __init__(self, folder, server, alertmanager) -> None:
        self.file = folder / "inspector.yaml"
        self.known = {"url": server.url, "alertmanager": alertmanager.url, "name": "chat", "kv": 0.99, "keep": "0s"}
        (folder / "password").write_text(SECRET)
        self.write()

    def write(self, **changes):
        self.known |= changes
        self.file.write_text(FILE.format(**self.known))

    def load(self):
        return load(self.file)


@asynccontextmanager
async def daemon_of(site):
    config = site.load()
    daemon = Daemon(config, load_adapters(), Secrets(secrets_of(config)), bind("127.0.0.1", 0), load=site.load, pace=Pace(alerts=0.05))
    async with anyio.create_task_group() as tasks:
        address = await tasks.start(daemon.run)
        async with httpx.AsyncClient(base_url=f"http://{address}", trust_env=False) as client:
            yield daemon, client
        tasks.cancel_scope.cancel()


async def until(holds):
    with anyio.fail_after(15):
        while not holds():
            await anyio.sleep(0.02)


def is_firing(alert):
    return alert["endsAt"] > alert["startsAt"]


@pytest.fixture
def site(tmp_path):
    with recorded_server() as server, fake_alertmanager() as alertmanager:
        made = Site(tmp_path, server, alertmanager)
        made.server, made.alertmanager = server, alertmanager
        yield made


SLOTS_ALERT = "InspectorSlotsHeadroomLow"


async def test_an_alert_reaches_alertmanager_and_the_metrics(site):
    async with daemon_of(site) as (_, client):
        await until(lambda: site.alertmanager.told(SLOTS_ALERT))
        text = (await client.get("/metrics")).text
    assert 'alert="InspectorSlotsHeadroomLow",engine="llamacpp",pool="0",resource="slots",session="",severity="warning",state="firing"' in text
    assert site.alertmanager.told(SLOTS_ALERT)[0]["labels"] == {"alertname": SLOTS_ALERT, "pool": "0", "severity": "warning", "target": "chat"}
    assert set(site.alertmanager.authorization) == {httpx.BasicAuth("ops", SECRET)._auth_header}
    assert SECRET not in text


@pytest.mark.parametrize("permission", ["basic_auth: {username: ops, password_file: password}", "bearer_token_file: password"])
def test_every_permission_for_alertmanager_is_masked_in_the_journal(tmp_path, permission):
    (tmp_path / "password").write_text(SECRET)
    file = tmp_path / "inspector.yaml"
    file.write_text(f'alertmanager: {{url: "http://127.0.0.1:9093", {permission}}}\ntargets: []\n')
    assert SECRET in set(secrets_of(load(file)))


async def test_states_survive_a_reload_and_a_removed_target_resolves_once(site):
    async with daemon_of(site) as (daemon, _):
        await until(lambda: site.alertmanager.told(SLOTS_ALERT))
        began = site.alertmanager.told(SLOTS_ALERT)[0]["startsAt"]
        site.write(kv=0.5)
        assert await daemon.reload() == ()
        before = len(site.alertmanager.posts)
        await until(lambda: len(site.alertmanager.posts) > before + 3)
        assert {alert["startsAt"] for alert in site.alertmanager.told(SLOTS_ALERT)} == {began}
        site.write(name="other")
        assert await daemon.reload() == ()
        of_chat = lambda: [a for a in site.alertmanager.told(SLOTS_ALERT) if a["labels"]["target"] == "chat"]  # noqa: E731
        await until(lambda: of_chat()[-1]["annotations"]["description"].endswith("the target is not watched any more"))
        before = len(site.alertmanager.posts)
        await until(lambda: len(site.alertmanager.posts) > before + 3)
        assert sum("not watched" in a["annotations"]["description"] for a in of_chat()) == 1


async def test_a_new_daemon_resolves_nothing_that_it_has_not_measured(site):
    """The server shows no slots any more: what the old daemon had firing stays so."""
    async with daemon_of(site):
        await until(lambda: site.alertmanager.told(SLOTS_ALERT))
    last = site.alertmanager.told(SLOTS_ALERT)[-1]
    site.alertmanager.active = [last]
    site.server.bodies["/slots"] = site.server.bodies["/metrics"] = (501, b"{}")
    site.alertmanager.posts.clear()
    async with daemon_of(site) as (daemon, _):
        await until(lambda: len(site.alertmanager.told(SLOTS_ALERT)) > 4)
        held = [a for a in daemon.board.entry("chat").alerts if a.alert == SLOTS_ALERT]
    assert {alert["startsAt"] for alert in site.alertmanager.told(SLOTS_ALERT)} == {last["startsAt"]}
    assert all(is_firing(alert) for alert in site.alertmanager.told(SLOTS_ALERT))
    assert [(a.state, a.held) for a in held] == [("firing", True)]


async def test_without_an_alertmanager_nothing_is_sent_and_one_may_come_and_go_with_a_reload(site):
    whole = site.file.read_text()
    site.file.write_text("\n".join(line for line in whole.splitlines() if not line.startswith("alertmanager")))
    async with daemon_of(site) as (daemon, client):
        await until(lambda: any(a.state == "firing" for a in daemon.board.entry("chat").alerts))
        assert "inspector_notifications_total" not in (await client.get("/metrics")).text
        site.file.write_text(whole)
        assert await daemon.reload() == ()
        await until(lambda: site.alertmanager.told(SLOTS_ALERT))
        text = (await client.get("/metrics")).text
        assert float(next(line for line in text.splitlines() if line.startswith("inspector_notifications_total")).split()[1]) >= 1


async def test_a_bug_of_the_delivery_disturbs_no_poll(site, monkeypatch):
    def broken(*_):
        raise ZeroDivisionError("words of a server")

    monkeypatch.setattr("inspector.notify.notifier.alert_of", broken)
    site.alertmanager.active = [{"labels": {}, "startsAt": "2026-11-30T12:00:00Z"}]
    with structlog.testing.capture_logs() as events:
        async with daemon_of(site) as (daemon, _):
            await until(lambda: any(e["event"] == "delivery of alerts failed" for e in events))
            polls = daemon.board.entry("chat").polls
            await until(lambda: daemon.board.entry("chat").polls > polls)
    assert "words of a server" not in repr(events)
