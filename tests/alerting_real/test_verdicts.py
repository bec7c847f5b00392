"""What alerts make of a real server: its `/slots` taken away while an alert fires, and its layout unknown. The alerts' clock is the test's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from alerting_real.load import full_pool
from engines import client
from engines.builds import CurrentBuild
from engines.inspecting import Inspection, inspecting
from engines.proxy import Answer, Pass, RecordingProxy
from engines.server import wait_until
from inspector.alerts.alerts import Alerts, Change
from inspector.alerts.conditions import Key
from inspector.alerts.machine import Timing
from inspector.alerts.status import AlertState, AlertStatus
from inspector.judge import Level

pytestmark = [pytest.mark.anyio, pytest.mark.engine]
pytest_plugins = ["engines.fixtures"]

KV = Key("InspectorKvHeadroomLow", "warning", "0", "kv")
KV_UNKNOWN = Key("InspectorHeadroomUnknown", "warning", "0", "kv")
EVERY = 5
SHARED = ("--slots", "4", "--context", "8192", "--unified", "--metrics", "--verbosity", "4")
DISABLED = Answer(501, b'{"error":{"code":501,"message":"This server does not support slots endpoint.","type":"not_supported_error"}}')


class Watch:
    """Alerts of one real target, with a clock that a look moves by five seconds however long it took."""

    def __init__(self, inspection: Inspection) -> None:
        self.inspection = inspection
        self.alerts = Alerts(Timing(60, 120, 600))
        self.now = 0.0
        self.changes: list[Change] = []
        self.found: dict[Key, AlertStatus] = {}

    async def look(self, seconds: int = EVERY) -> dict[Key, AlertStatus]:
        for _ in range(seconds // EVERY):
            self.now += EVERY
            await self.inspection.poll()
            (entry,) = self.inspection.board.entries()
            found, changes = self.alerts.look(entry.info.name, entry.snapshot, entry.assessment, stale=entry.stale, now=self.now, at=1e9 + self.now)
            self.found = {Key(s.alert, s.severity, s.pool, s.resource, s.session): s for s in found}
            self.changes += changes
        return self.found

    async def until(self, key: Key, state: AlertState) -> None:
        for _ in range(400):
            if (await self.look())[key].state is state:
                return
        raise AssertionError(f"{key.alert} never came to be {state}: {self.found[key]}")


async def test_slots_taken_away_while_it_fires_neither_resolve_nor_fire_anew(current: CurrentBuild, tiny_model: Path, tmp_path: Path):
    hidden: list[bool] = []
    with current.serve(tiny_model, tmp_path / "server.log", *SHARED) as server, RecordingProxy(server.url) as proxy:
        proxy.behave = lambda request: DISABLED if hidden and request.path in ("/slots", "/metrics") else Pass()
        async with inspecting(proxy.url, logs=str(server.log_path), may_wake=True) as inspection:
            watch = Watch(inspection)
            await watch.look()
            with full_pool(server.url):
                await watch.until(KV, AlertState.FIRING)
                began = watch.found[KV].since
                hidden.append(True)
                await watch.look(595)
            # The load is over, and still nobody can tell.
            assert watch.found[KV_UNKNOWN].state is AlertState.PENDING
            await watch.look(60)
            assert (watch.found[KV].state, watch.found[KV].since, watch.found[KV].held) == (AlertState.FIRING, began, True)
            assert watch.found[KV_UNKNOWN].state is AlertState.FIRING
            assert [c.status.state for c in watch.changes if c.status.alert == KV.alert and c.status.severity == "warning"].count(AlertState.FIRING) == 1
            hidden.clear()
            await watch.look(150)
            assert (watch.found[KV].state, watch.found[KV_UNKNOWN].state) == (AlertState.OK, AlertState.OK)


async def test_an_unknown_layout_is_low_ok_or_undecided_by_what_is_certain(current: CurrentBuild, tiny_model: Path, tmp_path: Path):
    """Over HTTP alone two slots of 4,096 tokens may have as many each, or share from 4,096 to 8,192. Idle it is ok in every case; with both nearly full it
    is low in every case; with both busy and nearly empty, only a pool would have room."""
    with current.serve(tiny_model, tmp_path / "server.log", "--slots", "2", "--context", "8192", "--metrics") as server:
        async with inspecting(server.url, may_wake=True) as inspection:
            watch = Watch(inspection)
            found = await watch.look(700)
            assert (level(inspection), found[KV].state, found[KV_UNKNOWN].state) == (Level.OK, AlertState.OK, AlertState.OK)
            await busy_but_empty(server.url, watch)
            assert (level(inspection), watch.found[KV_UNKNOWN].state) == (Level.UNKNOWN, AlertState.PENDING)
            with full_pool(server.url, sessions=2, shape=(3850, 240)):
                await watch.until(KV, AlertState.FIRING)
            assert (await watch.look(150))[KV].state is AlertState.OK


async def busy_but_empty(url: str, watch: Watch) -> None:
    """Polls until one met two sessions that have only begun."""
    for _ in range(20):
        with client.sessions(url, [(20, 400)] * 2, n_probs=100, cache_prompt=False):
            wait_until(lambda: client.busy(url) == 2, "both slots are busy")
            await watch.look()
            if watch.found[KV].state is AlertState.UNKNOWN:
                return
    raise AssertionError(f"never undecided: {watch.found[KV]}")


def level(inspection: Inspection) -> Level:
    """The level of the KV headroom, as the board judges it."""
    (entry,) = inspection.board.entries()
    assert entry.assessment is not None
    (finding,) = (finding for finding in entry.assessment.findings if finding.resource == "kv")
    return finding.level
