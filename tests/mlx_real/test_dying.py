"""Real mlx_lm servers that cannot serve: states, not zeros."""

from __future__ import annotations

from pathlib import Path

import pytest

from engines.mlx import serve
from engines.server import wait_until
from inspector.model import Snapshot, State
from inspector.reading import NOT_OFFERED, Reason, Unknown
from mlx_real.conftest import Watch

pytestmark = [pytest.mark.anyio, pytest.mark.engine]


def assert_nothing_is_known(snapshot: Snapshot) -> None:
    assert snapshot.pools == ()
    assert {snapshot.memory.reading(name) for name in ("total_bytes", "ceiling_bytes", "used_bytes", "weights_bytes")} == {NOT_OFFERED}


async def test_a_server_whose_model_is_missing_is_unreachable_although_it_answers(tmp_path: Path, watch: Watch) -> None:
    with serve(tmp_path / "no-such-model", tmp_path / "mlx.log", wait=False) as server:
        server.wait_log("generation thread died")
        async with watch(server) as inspection:
            snapshot = await inspection.poll()
            samples = inspection.samples()
    assert snapshot.state is State.UNREACHABLE
    assert "generation thread died" in snapshot.state_detail
    assert "no-such-model" not in repr(snapshot)
    assert_nothing_is_known(snapshot)
    assert samples["inspector_target_up"][0][1] == 0
    assert "inspector_requests_in_flight" not in samples


async def test_a_killed_server_is_unreachable_and_a_new_one_is_another(tiny_mlx_model: Path, tmp_path: Path, watch: Watch) -> None:
    """Without a model cache folder its list of models is empty with status 200: no model, not an empty name."""
    with serve(tiny_mlx_model, tmp_path / "mlx.log", "--decode-concurrency", "3", "--prompt-concurrency", "1", with_hub=False) as server:
        async with watch(server, launch="none", logs=None) as afar:
            (pool,) = (await afar.poll()).pools
            assert isinstance(pool.model, Unknown)
            assert pool.model.reason is Reason.NOT_REPORTED
        async with watch(server) as inspection:
            first = await inspection.poll()
            assert first.pools[0].slots.value == 3  # type: ignore[union-attr]
            port = server.port
            server.kill()
            dead = await inspection.poll()
            assert dead.state is State.UNREACHABLE
            assert_nothing_is_known(dead)
            with serve(tiny_mlx_model, tmp_path / "mlx.log", "--decode", "5", "--prompt-conc=1", "--kv-bits=8", port=port) as successor:
                wait_until(successor.alive, "the successor runs")
                later = await inspection.poll()
    assert later.generation > first.generation
    assert later.pools[0].slots.value == 1  # type: ignore[union-attr]
    assert later.drift == ()
