"""A board with a target of every kind that a screen must show. Every number is made up; what a bar must show follows from the numbers named here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from inspector.alerts.status import AlertState, AlertStatus
from inspector.board import Board, TargetInfo
from inspector.budget import Shape
from inspector.judge import Rules, assess
from inspector.layout import Layout, MemoryBound, Paged, Shared, Split
from inspector.model import Drift, Fault, Memory, Pool, Slot, Snapshot, State, without_live
from inspector.reading import NOT_OFFERED, Kind, Known, Origin, Reason, Unknown

RULES = Rules(shapes={"chat": Shape(6000, 800), "agent": Shape(24000, 2000)})

SHARED_OR_SPLIT = (Shared(4, 65536, 16384), Split(4, 4096))
BUSY_TOKENS = 5200

LONG_NAME = "new-" + 24 * "long"
"""As long as a configured name may be."""

NO_LOG = Unknown(Reason.NO_SOURCE, "only the log tells: set `logs` for this target")
NO_METRICS = Unknown(Reason.ENDPOINT_DISABLED, "start llama-server with --metrics")
NO_SLOTS = Unknown(Reason.ENDPOINT_DISABLED, "start llama-server without --no-slots")
ASLEEP = Unknown(Reason.SLEEPING, "the server is sleeping")
HTTP_DOES_NOT_TELL = Unknown(Reason.AMBIGUOUS, "HTTP does not tell whether the slots share their KV cache: state `facts: {kv_unified: …}`", (16384, 65536))


class Gallery:
    """`now` is Unix seconds: everything was observed then."""

    def __init__(self, now: float) -> None:
        self.now = now
        self.board = Board(lambda snapshot: assess(snapshot, RULES), clock=lambda: now)

    def known(self, value: Any, path: str = "/slots", kind: Kind = Kind.HTTP, ago: float = 2.0) -> Known[Any]:
        return Known(value, Origin(kind, path, self.now - ago))

    def put(self, name: str, engine: str = "llamacpp", state: State = State.READY, alerts: Sequence[AlertStatus] = (), **fields: Any) -> None:
        given: dict[str, Any] = {"state_detail": "", "version": self.known("b11549", "/props"), "pools": (), "memory": Memory(), "duration": 0.02} | fields
        self.board.add(TargetInfo(name, engine, f"{name}.example.net:8080", 15.0))
        self.board.put(Snapshot(target=name, engine=engine, state=state, observed_at=self.now, **given))
        self.board.put_alerts(name, tuple(alerts))

    def alert(self, name: str, state: AlertState, severity: str = "critical", resource: str = "kv", detail: str = "", **fields: Any) -> AlertStatus:
        return AlertStatus(name, severity, fields.pop("pool", "0"), resource, "", state, self.now - 260, detail, **fields)

    def pool(self, model: str, context: int, used: Sequence[int], layouts: Sequence[Layout], slots: int = 4, kept: int = 0, **fields: Any) -> Pool:
        """A pool of slots of which the first are busy, each with so many tokens; idle ones keep `kept` tokens each."""
        known, busy = self.known, len(used)
        detail = [Slot(i, known(True), known(context), known(tokens), known(0), known(300)) for i, tokens in enumerate(used)]
        detail += [Slot(i, known(False), known(context), known(0), known(kept), known(0)) for i in range(busy, slots)]
        given: dict[str, Any] = {
            "model": known(model, "/v1/models"),
            "slots": known(slots, "/props"),
            "slots_busy": known(busy),
            "requests_running": known(busy, "/metrics"),
            "requests_waiting": known(0, "/metrics"),
            "context_limit_tokens": known(context, "/props"),
            "kv_used_tokens": known(sum(used)),
            "kv_reclaimable_tokens": known(kept * (slots - busy)),
            "kv_exhaustions_total": NO_LOG,
            "slots_detail": tuple(detail),
            "layouts": tuple(layouts),
        }
        return Pool(**given | fields)


def gallery(now: float) -> Board:
    """A server that is nearly full, one whose alert is held, one that is down, asleep, dark, ambiguous, without a pool, of two pools, not polled, healthy."""
    made = Gallery(now)
    known = made.known
    full = made.pool("Qwen3-30B-A3B-Q4_K_M", 32768, [30000, 20000, 12210, 1100, 700], [Shared(8, 65536, 32768)], slots=8, kept=200)
    memory = Memory(*(known(gib << 30, path, Kind.SYSTEM) for gib, path in ((64, "meminfo"), (60, "cgroup"), (41, "pss"), (18, "model.gguf"))))
    firing = made.alert("InspectorKvHeadroomLow", AlertState.FIRING, detail="kv headroom 2%, below 5%")
    pending = made.alert("InspectorSlotsExhausted", AlertState.PENDING, "warning", "slots", "all 8 slots were busy and 2 requests waited")
    made.put("nearly-full", pools=(full,), memory=memory, alerts=(firing, pending, made.alert("InspectorPreemptions", AlertState.OK)))
    made.put("batch", "vllm", pools=(_paged(made),), alerts=(made.alert("InspectorKvHeadroomLow", AlertState.FIRING, "warning", detail="was 13%", held=True),))
    refused = "the connection was refused; is the server running, and is the port right?"
    down = made.alert("InspectorTargetDown", AlertState.FIRING, resource="reachability", detail=refused, pool="")
    made.put("down", state=State.UNREACHABLE, state_detail=refused, alerts=(down,))
    asleep = without_live((made.pool("gemma-3-4b-it-Q8_0", 8192, [], [Split(4, 8192)]),), ASLEEP)
    made.put("asleep", state=State.SLEEPING, state_detail=ASLEEP.detail, pools=asleep)
    dark = made.pool("phi-4-mini", 4096, [], [Shared(4, 16384, 4096), Split(4, 4096)])
    dark = replace(dark, slots_busy=NO_SLOTS, kv_used_tokens=NO_SLOTS, kv_reclaimable_tokens=NO_SLOTS, slots_detail=())
    dark = replace(dark, requests_running=NO_METRICS, requests_waiting=NO_METRICS, kv_capacity_tokens=HTTP_DOES_NOT_TELL)
    unknown = made.alert("InspectorHeadroomUnknown", AlertState.UNKNOWN, "warning", detail="kv headroom has been unknown for 12 min")
    made.put("dark", pools=(dark,), alerts=(unknown,))
    drift = (Drift("0", "slots", "http:/props", "launch:llama.service", "4 against 8"),)
    fault = (Fault("/metrics", "endpoint_disabled", "answers 501; start llama-server with --metrics"),)
    either = made.pool("mistral-small-24b", 16384, [BUSY_TOKENS], SHARED_OR_SPLIT, kv_capacity_tokens=HTTP_DOES_NOT_TELL)
    made.put("ambiguous", pools=(either,), drift=drift, faults=fault)
    made.put("studio", "mlx", pools=(_bound_by_memory(made),), memory=_unified_memory(made))
    router = [made.pool(f"model-{i}", 8192, [700 * i], [Split(4, 8192)], id=f"model-{i}") for i in (1, 2)]
    made.put("router", pools=tuple(router))
    healthy = made.pool("Qwen3-8B-Q4_K_M", 16384, [2600], [Split(4, 16384)], kept=1000, kv_exhaustions_total=known(0, "llama.log", Kind.LOG))
    made.put("healthy", pools=(healthy,), alerts=[made.alert("InspectorKvHeadroomLow", AlertState.OK)] * 7)
    made.board.add(TargetInfo(LONG_NAME, "", f"{LONG_NAME}.example.net:8080", 15.0))
    return made.board


def _paged(made: Gallery) -> Pool:
    known = made.known
    return Pool(
        model=known("Llama-3.3-70B-Instruct", "/v1/models"),
        slots=known(256, "vllm", Kind.LAUNCH),
        requests_running=known(61, "/metrics"),
        requests_waiting=known(4, "/metrics"),
        context_limit_tokens=known(131072, "/v1/models"),
        kv_capacity_tokens=known(402_144, "/metrics"),
        kv_used_tokens=known(351_000, "/metrics"),
        kv_usage_ratio=known(351_000 / 402_144, "/metrics"),
        kv_reclaimable_tokens=Unknown(Reason.NOT_REPORTED, "vLLM counts cached blocks as free"),
        preemptions_total=known(12, "/metrics"),
        layouts=(Paged(25135, 16, 1, 256, 131072),),
    )


def _bound_by_memory(made: Gallery) -> Pool:
    return Pool(
        model=made.known("Qwen3-8B-4bit", "/v1/models"),
        slots=made.known(2, "mlx_lm.server", Kind.LAUNCH),
        slots_busy=NOT_OFFERED,
        requests_in_flight=made.known(1, "sockets", Kind.SYSTEM),
        kv_reclaimable_bytes=made.known(3 << 29, "mlx.log", Kind.LOG, 40),
        layouts=(MemoryBound(2, lambda tokens: tokens * 98304, 20 << 30),),
    )


def _unified_memory(made: Gallery) -> Memory:
    limit = Unknown(Reason.AMBIGUOUS, "iogpu.wired_limit_mb is 0, which means the default: set it, or state `facts: {ceiling_bytes: …}`", (42 << 30, 48 << 30))
    return Memory(made.known(64 << 30, "sysctl", Kind.SYSTEM), limit, made.known(14 << 30, "footprint", Kind.SYSTEM))
