"""Snapshots and boards for tests of what shows them. Every number here is made up and serves one engine that does not exist."""

from inspector.board import Board, TargetInfo
from inspector.layout import Shared
from inspector.model import Drift, Fault, Memory, Pool, Slot, Snapshot, State
from inspector.reading import Kind, Known, Origin, Reason, Unknown

NOW = 1_800_000_000.0

UNTOLD = Unknown(Reason.ENDPOINT_DISABLED, "start the server with --metrics", (3, 9))


def known(value, path="/slots", at=NOW):
    return Known(value, Origin(Kind.HTTP, path, at))


def pool(**fields):
    given = {
        "model": known("tiny"),
        "slots": known(4),
        "slots_busy": known(1),
        "context_limit_tokens": known(1024),
        "kv_capacity_tokens": known(4096),
        "kv_used_tokens": known(903),
        "kv_reclaimable_tokens": known(0),
        "requests_waiting": UNTOLD,
        "generation_tokens_total": known(77),
        "layouts": (Shared(4, 4096, 1024),),
        "slots_detail": (Slot(0, known(True), known(1024), known(903), known(0)), Slot(1, UNTOLD, UNTOLD, UNTOLD, UNTOLD)),
    }
    return Pool(**given | fields)


def snapshot(target="chat", state=State.READY, pools=None, at=NOW, **fields):
    up = state.is_up
    given = {
        "engine": "fake",
        "state_detail": "" if state is State.READY else f"the server is {state}",
        "version": known("b1", "/props"),
        "pools": ((pool(),) if pools is None else pools) if up else (),
        "memory": Memory(),
        "observed_at": at,
        "duration": 0.01,
        "offered": frozenset({"slots", "slots_busy", "kv_used_tokens", "kv_capacity_tokens", "requests_waiting"}),
        "drift": (Drift("0", "slots", "http:/slots", "launch:unit", "4 against 8"),) if up else (),
        "faults": (Fault("/metrics", "endpoint_disabled", "answers 501"),) if up else (),
    }
    return Snapshot(target=target, state=state, **given | fields)


def board(*snapshots, now=NOW, unpolled=()):
    made = Board(clock=lambda: now)
    for name in [s.target for s in snapshots] + list(unpolled):
        made.add(TargetInfo(name, "fake", "127.0.0.1:8080", stale_after=15.0))
    for one in snapshots:
        made.put(one)
    return made
