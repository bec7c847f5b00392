"""What the alerting rules must do, case by case, and the cases as a test file of promtool.

A sample and an evaluation every minute. A case is one target with its series and the times between which it must fire, with every label and every word.
Kinds: `bad` fires, and resolves afterwards; `good` never fires; `gone`: what fired is not watched any more, and lets go; `unknown`: nothing can be told, for
ten minutes and more, and it neither fires nor resolves; `flapping`: to and fro at the threshold, and nothing changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from inspector.alerts.catalogue import BY_NAME, RUNBOOKS

END = 50
"""Minutes of a test, at one sample a minute."""

HELD = "held, because nothing shows yet that it is over."
UP = "host:9836"
DARK = "dark:9836"
"""The instance that nobody answers for from minute 15 to minute 30."""

KINDS = ("bad", "good", "gone", "unknown")

OWN = {
    "InspectorDown": ("critical", "The inspector cannot be scraped"),
    "InspectorSnapshotStale": ("warning", "The inspector has no fresh look at a server"),
    "InspectorConfigReloadFailed": ("warning", "The inspector keeps its old configuration"),
}
"""Alerts that only Prometheus can raise: severity and summary."""

Sample = float | None
Series = Mapping[str, Sequence[Sample]]
"""Samples of each series; None where there is none."""


@dataclass(frozen=True, slots=True)
class Fires:
    """Fires from minute `start` on, until before minute `end`, described as `told`."""

    start: int
    end: int
    told: str


@dataclass(frozen=True, slots=True)
class Case:
    """`labels`: those of the alert, without its name and severity. `group`: cases of one group share a Prometheus."""

    kind: str
    name: str
    labels: Mapping[str, str]
    series: Series
    fires: tuple[Fires, ...] = ()
    group: str = "inspector"


def over(*parts: tuple[int, Sample]) -> list[Sample]:
    """Samples: each value for so many minutes, the last one for the rest."""
    samples = [value for minutes, value in parts for _ in range(minutes)]
    return samples + [parts[-1][1]] * (END - len(samples))


def alternating(minutes: int, one: Sample, other: Sample, then: Sequence[Sample] = ()) -> list[Sample]:
    """One value and the other in turn, then what follows."""
    return ([one, other] * minutes)[:minutes] + list(then)[: END - minutes]


def rising(*then: tuple[int, Sample]) -> list[Sample]:
    """A counter at 0 that rises by one in each of the minutes 5 to 24; `then` what follows."""
    return [0.0] * 5 + [float(i + 1) for i in range(20)] + over(*then)[: END - 25]


ALWAYS = over((END, 1))
UNTIL_15 = over((15, 1), (END, None))
"""Removed in minute 15."""
NOT_15_TO_30 = over((15, 1), (15, None), (END, 1))


def series(name: str, labels: Mapping[str, str], samples: Sequence[Sample]) -> Series:
    told = ", ".join(f'{label}="{value}"' for label, value in sorted(labels.items()))
    return {f"{name}{{{told}}}": samples}


def target(name: str, instance: str = UP, engine: str = "llamacpp") -> dict[str, str]:
    return {"job": "inspector", "instance": instance, "target": name, "engine": engine}


def watched(
    name: str, instance: str = UP, *, present: Sequence[Sample] = ALWAYS, seen: Sequence[Sample] | None = None, pool: Sequence[Sample] | None = None
) -> Series:
    """A target that is on the inspector's list (`present`), was seen as ready (`seen`), and has a KV pool and memory (`pool`)."""
    seen = present if seen is None else seen
    pool = seen if pool is None else pool
    labels = target(name, instance)
    return {
        **series("inspector_polls_total", labels, present),
        **series("inspector_target_state", {**labels, "state": "ready"}, seen),
        **series("inspector_target_state", {**labels, "state": "stalled"}, [None if s is None else 1 - s for s in seen]),
        **series("inspector_field_known", {**labels, "pool": "0", "field": "slots"}, pool),
        **series("inspector_field_known", {**labels, "pool": "", "field": "memory_used_bytes"}, pool),
    }


STALLED_15_TO_30 = over((15, 1), (15, 0), (END, 1))


def headroom(resource: str, low: float, mark: float, told: str) -> Iterator[Case]:
    """Cases of a headroom with a threshold of the rules' own: `low` is below it."""
    just_back, back = mark + 0.01, 0.5

    def case(
        kind: str, name: str, guaranteed: Sequence[Sample], possible: Sequence[Sample] | None = None, *fires: Fires, alert: Series | None = None, **kept: Any
    ) -> Case:
        labels = {**target(name, kept.get("instance", UP)), "resource": resource, **({"pool": "0"} if resource == "kv" else {})}
        ratios = {
            **series("inspector_headroom_ratio", {**labels, "bound": "guaranteed"}, guaranteed),
            **series("inspector_headroom_ratio", {**labels, "bound": "possible"}, guaranteed if possible is None else possible),
        }
        return Case(kind, name, labels, {**watched(name, **kept), **ratios, **(alert or {})}, fires)

    fell = f"at most {low:.0%} {told}"
    gap = over((15, low), (15, None), (END, back))
    held = (Fires(1, 15, fell), Fires(15, 32, HELD))
    yield case("good", "plenty", over((END, back)))
    yield case("good", "just-enough", over((END, mark)))
    yield case("bad", "low", over((15, low), (END, back)), None, Fires(1, 17, fell))
    yield case("bad", "surely-low", over((15, 0.0), (END, back)), over((15, low), (END, back)), Fires(1, 17, fell))
    yield case("gone", "removed", over((15, low), (END, None)), None, Fires(1, 17, fell), present=UNTIL_15)
    # The inspector's own alerts about the whole target go on.
    reachable = states({**target("unloaded"), "alert": "InspectorTargetDown", "severity": "critical", "resource": "reachability"}, (END, "ok"))
    yield case("gone", "unloaded", over((15, low), (END, None)), None, Fires(1, 17, fell), pool=UNTIL_15, alert=reachable)
    if resource == "kv":
        # A router that does not list its models for a while: the inspector's own alert holds.
        own = {**target("list-lost"), "alert": "InspectorKvHeadroomLow", "severity": "warning", "resource": "kv", "pool": "0"}
        yield case("unknown", "list-lost", gap, None, *held, pool=NOT_15_TO_30, alert=states(own, (30, "firing"), (END, "ok")))
    yield case("unknown", "without-value", gap, None, *held)
    yield case("unknown", "dark", gap, None, *held, instance=DARK, present=NOT_15_TO_30)
    yield case("unknown", "stale", gap, None, *held, seen=NOT_15_TO_30)
    yield case("unknown", "stalls", gap, None, *held, seen=STALLED_15_TO_30, pool=NOT_15_TO_30)
    yield case("unknown", "undecided", over((15, low), (15, 0.0), (END, back)), over((15, low), (END, back)), *held)
    yield case("unknown", "never-decided", over((END, 0.0)), over((END, back)))
    yield case("unknown", "never-known", over((END, None)))
    yield case("unknown", "lost-before-it-fired", over((1, low), (END, None)))
    yield case("flapping", "at-the-mark", alternating(10, mark - 0.01, just_back, over((5, mark - 0.01), (15, just_back), (END, back))), None,
               Fires(11, 15, f"at most {mark - 0.01:.0%} {told}"), Fires(15, 32, HELD))  # fmt: skip


def states(labels: Mapping[str, str], *parts: tuple[int, str | None]) -> Series:
    """`inspector_alert_state`, as the inspector tells it."""
    made: dict[str, Sequence[Sample]] = {}
    for state in ("ok", "pending", "firing", "unknown"):
        made |= series("inspector_alert_state", {**labels, "state": state}, over(*((m, None if s is None else float(s == state)) for m, s in parts)))
    return made


def judged(alert: str, severity: str, about: Mapping[str, str], told: str, delay: int, waits: str = "pending") -> Iterator[Case]:
    """Cases of an alert that the inspector judges itself: it reports `waits` for two minutes, then that it fires."""

    def case(kind: str, name: str, *parts: tuple[int, str | None], fires: tuple[Fires, ...] = (), **kept: Any) -> Case:
        labels = {**target(name, kept.get("instance", UP)), **about}
        return Case(kind, name, labels, {**watched(name, **kept), **states({**labels, "alert": alert, "severity": severity}, *parts)}, fires)

    fired, held = (Fires(delay, 17, told),), (Fires(delay, 15, told), Fires(15, 32, HELD))
    gap = ((2, waits), (13, "firing"), (15, None), (END, "ok"))
    yield case("good", "ok", (END, "ok"))
    yield case("bad", "fires", (2, waits), (13, "firing"), (END, "ok"), fires=fired)
    yield case("gone", "removed", (2, waits), (13, "firing"), (END, None), present=UNTIL_15, fires=fired)
    yield case("gone", "not-judged-any-more", (2, waits), (13, "firing"), (END, None), fires=fired)
    yield case("unknown", "dark", *gap, instance=DARK, present=NOT_15_TO_30, fires=held)
    yield case("unknown", "started-anew", *gap, seen=NOT_15_TO_30, fires=held)
    yield case("unknown", "started-anew-and-stalls", *gap, seen=STALLED_15_TO_30, pool=NOT_15_TO_30, fires=held)
    yield case("unknown", "decided-later", (2, waits), (13, "firing"), (15, "unknown"), (END, "ok"), fires=held)
    yield case("unknown", "never-decided", (END, "unknown"))
    yield case("unknown", "never-told", (END, None))


def slots() -> Iterator[Case]:
    """Cases of requests that wait while every slot is busy."""

    def case(
        kind: str, name: str, waiting: Sequence[Sample], busy: Sequence[Sample], *fires: Fires, total: Sequence[Sample] | None = None, **kept: Any
    ) -> Case:
        labels = {**target(name, kept.get("instance", UP)), "pool": "0"}
        counts = {"inspector_requests_waiting": waiting, kept.pop("use", "inspector_slots_busy"): busy, "inspector_slots": total or over((END, 4))}
        return Case(kind, name, labels, {**watched(name, **kept), **{k: v for n, s in counts.items() for k, v in series(n, labels, s).items()}}, fires)

    full, three = over((END, 4)), "every slot of pool 0 is busy and 3 requests wait."
    fired, held = Fires(2, 17, three), (Fires(2, 15, three), Fires(15, 32, HELD))
    queue, gap, busy_gap = over((15, 3), (END, 0)), over((15, 3), (15, None), (END, 0)), over((15, 4), (15, None), (END, 2))
    yield case("good", "busy-without-queue", over((END, 0)), full)
    yield case("good", "queue-with-a-free-slot", over((END, 3)), over((END, 3)))
    yield case("bad", "queue", queue, full, fired)
    yield case("bad", "freed", over((END, 3)), over((15, 4), (END, 3)), fired)
    yield case("bad", "counted-by-requests", queue, full, fired, use="inspector_requests_running")
    yield case("gone", "removed", over((15, 3), (END, None)), over((15, 4), (END, None)), fired, present=UNTIL_15)
    yield case("gone", "unloaded", over((15, 3), (END, None)), over((15, 4), (END, None)), fired, pool=UNTIL_15)
    yield case("unknown", "queue-unknown", gap, over((30, 4), (END, 2)), *held)
    yield case("unknown", "use-unknown", over((30, 3), (END, 0)), busy_gap, *held)
    yield case("unknown", "dark", gap, busy_gap, *held, instance=DARK, present=NOT_15_TO_30)
    yield case("unknown", "stalls", gap, busy_gap, *held, seen=STALLED_15_TO_30, pool=NOT_15_TO_30)
    yield case("unknown", "slots-never-known", over((END, 3)), full, total=over((END, None)))
    yield case("unknown", "queue-never-known", over((END, None)), full)
    yield case("flapping", "now-and-then", alternating(END, 3, 0), full)
    yield case("flapping", "while-firing", [3] * 10 + alternating(10, 0, 3, over((END, 0)))[: END - 10], full, Fires(2, 22, three))


def counter(metric: str, told: str, shape: str) -> Iterator[Case]:
    """Cases of a counter of events: three at once in minute 10 (`jump`), or one with every sample from minute 5 on, until minute 25 (`rise`)."""

    def case(kind: str, name: str, samples: Sequence[Sample], *fires: Fires, **kept: Any) -> Case:
        labels = {**target(name, kept.get("instance", UP)), "pool": "0"}
        return Case(kind, name, labels, {**watched(name, **kept), **series(metric, labels, samples)}, fires)

    if shape == "jump":
        # Seen until minute 12, in the window until minute 20. Known at both ends of a window again, 10 minutes after it is back.
        gap = over((10, 0), (2, 3), (18, None), (END, 3))
        fired, held = Fires(10, 22, told), (Fires(10, 20, told), Fires(20, 42, HELD))
        dark = NOT_12_TO_30
        yield case("bad", "killed", over((10, 0), (END, 3)), fired)
        yield case("bad", "killed-by-a-new-process", over((10, 5), (END, 3)), fired)
        yield case("gone", "removed", over((10, 0), (2, 3), (END, None)), Fires(10, 22, told), present=over((12, 1), (END, None)))
        yield case("gone", "unloaded", over((10, 0), (2, 3), (END, None)), Fires(10, 22, told), pool=over((12, 1), (END, None)))
    else:
        # The last rise is in the window until minute 29.
        gap = rising((15, None), (END, 20))
        fired, held = Fires(15, 31, told), (Fires(15, 29, told), Fires(29, 47, HELD))
        dark = over((25, 1), (15, None), (END, 1))
        yield case("bad", "again-and-again", rising((END, 20)), fired)
        yield case("gone", "removed", rising((END, None)), fired, present=over((25, 1), (END, None)))
        yield case("gone", "unloaded", rising((END, None)), fired, pool=over((25, 1), (END, None)))
        yield case("flapping", "now-and-then", over((5, 0), (10, 1), (10, 2), (END, 3)))
    yield case("good", "none", over((END, 7)))
    yield case("unknown", "counter-unknown", gap, *held)
    yield case("unknown", "dark", gap, *held, instance="counter-dark:9836", present=dark)
    yield case("unknown", "stalls", gap, *held, seen=[0 if s is None else s for s in dark], pool=dark)
    yield case("unknown", "never-known", over((END, None)))


NOT_12_TO_30 = over((12, 1), (18, None), (END, 1))


def state(bad: str, told: str, delay: int, endless: str) -> Iterator[Case]:
    """Cases of a target that is in a bad state from minute 5 to minute 15. `endless`: a state that does not say whether it is over."""

    def case(kind: str, name: str, *parts: tuple[int, str | None], fires: tuple[Fires, ...] = (), **kept: Any) -> Case:
        labels = target(name, kept.pop("instance", UP))
        made: dict[str, Sequence[Sample]] = dict(series("inspector_polls_total", labels, kept.get("present", ALWAYS)))
        for one in ("ready", "loading", "sleeping", "stalled", "unauthorized", "unreachable"):
            made |= series("inspector_target_state", {**labels, "state": one}, over(*((m, None if s is None else float(s == one)) for m, s in parts)))
        return Case(kind, name, labels, made, fires)

    fired, held = (Fires(5 + delay, 17, told),), (Fires(5 + delay, 15, told), Fires(15, 32, HELD))
    yield case("good", "ready", (END, "ready"))
    yield case("good", "comes-up", (10, "loading"), (10, "ready"), (END, "sleeping"))
    yield case("bad", "trouble", (5, "ready"), (10, bad), (END, "ready"), fires=fired)
    yield case("bad", "started-anew", (5, "ready"), (10, bad), (END, "loading"), fires=fired)
    yield case("gone", "removed", (5, "ready"), (10, bad), (END, None), present=UNTIL_15, fires=fired)
    yield case("unknown", "stale", (5, "ready"), (10, bad), (15, None), (END, "ready"), fires=held)
    yield case("unknown", "dark", (5, "ready"), (10, bad), (15, None), (END, "ready"), instance=DARK, present=NOT_15_TO_30, fires=held)
    if endless:
        yield case("unknown", endless, (5, "ready"), (10, bad), (15, endless), (END, "ready"), fires=held)
    yield case("unknown", "never-seen", (END, None))


def another_engine() -> Iterator[Case]:
    """A server that was not recognized before it answered: its engine is named from then on, and that must not keep the old alert."""
    name = "recognized-late"
    before, after = target(name, engine=""), target(name)
    yield Case("bad", name, {k: v for k, v in before.items() if v}, {
        **series("inspector_polls_total", before, over((15, 1), (END, None))),
        **series("inspector_polls_total", after, over((15, None), (END, 1))),
        **series("inspector_target_state", {**before, "state": "unreachable"}, over((15, 1), (END, None))),
        **series("inspector_target_state", {**after, "state": "unreachable"}, over((15, None), (END, 0))),
    }, (Fires(1, 17, "the inspector gets no answer."),))  # fmt: skip


def stale() -> Iterator[Case]:
    def case(kind: str, name: str, seen: Sequence[Sample], *fires: Fires, **kept: Any) -> Case:
        labels = target(name, kept.get("instance", UP))
        return Case(kind, name, labels, watched(name, seen=seen, **kept), fires)

    told = "watched, but not seen lately: its polls take too long or do not end."
    late = over((15, None), (END, 1))
    yield case("good", "fresh", ALWAYS)
    yield case("bad", "late", late, Fires(2, 17, told))
    yield case("gone", "removed", over((END, None)), Fires(2, 17, told), present=UNTIL_15)
    yield case("unknown", "dark", over((30, None), (END, 1)), Fires(2, 15, told), Fires(15, 32, HELD), instance=DARK, present=NOT_15_TO_30)
    yield case("unknown", "never-asked", over((END, None)), instance="off:9836", present=over((END, None)))
    yield case("flapping", "every-other-poll", alternating(END, None, 1))


def down() -> Iterator[Case]:
    """The inspector itself. Without any `up` there is no inspector at all, and that is told at once when the former alert ends."""

    def case(kind: str, instance: str, samples: Sequence[Sample], *fires: Fires, group: str = "inspector") -> Case:
        labels = {"job": "inspector-sidecar", "instance": instance}
        return Case(kind, instance, labels, series("up", labels, samples), fires, group)

    told = "{} does not answer Prometheus: what its servers do is unknown."
    yield case("good", "up:1", ALWAYS)
    yield case("bad", "down:1", over((5, 1), (10, 0), (END, 1)), Fires(7, 17, told.format("down:1")))
    yield case("gone", "removed:1", over((15, 0), (END, None)), Fires(2, 17, told.format("removed:1")))
    yield case("flapping", "lossy:1", alternating(END, 0, 1))
    yield case("unknown", "alone:1", over((15, 0), (15, None), (END, 1)), Fires(2, 17, told.format("alone:1")), group="alone")
    yield Case("unknown", "", {}, {}, (Fires(17, 32, "Prometheus has no inspector to scrape."),), "alone")
    yield Case(
        "gone", "", {}, series("up", {"job": "node", "instance": "other:1"}, over((END, 0))), (Fires(2, END, "Prometheus has no inspector to scrape."),), "none"
    )


def reload() -> Iterator[Case]:
    def case(kind: str, instance: str, up: Sequence[Sample], taken: Sequence[Sample], *fires: Fires) -> Case:
        labels = {"job": "inspector", "instance": instance}
        return Case(kind, instance, labels, {**series("up", labels, up), **series("inspector_config_last_reload_successful", labels, taken)}, fires)

    told = "the configuration that was last loaded has mistakes and is not in use."
    yield case("good", "taken:1", ALWAYS, ALWAYS)
    yield case("good", "never-reloaded:1", ALWAYS, over((END, None)))
    yield case("bad", "refused:1", ALWAYS, over((15, 0), (END, 1)), Fires(1, 17, told))
    yield case("gone", "removed:1", UNTIL_15, over((15, 0), (END, None)), Fires(1, 17, told))
    yield case("gone", "started-anew:1", ALWAYS, over((15, 0), (END, None)), Fires(1, 17, told))
    yield case("unknown", "does-not-answer:1", over((15, 1), (15, 0), (END, 1)), over((15, 0), (15, None), (END, 1)), Fires(1, 15, told), Fires(15, 32, HELD))


POOL = {"pool": "0"}
LOW_KV = "of the KV cache of pool 0 is left for new work."
LOW_MEMORY = "of the memory that the server may use is left for new work."

CASES: Mapping[tuple[str, str], tuple[Case, ...]] = {
    ("InspectorKvHeadroomLow", "warning"): tuple(headroom("kv", 0.1, 0.15, LOW_KV)),
    ("InspectorKvHeadroomLow", "critical"): tuple(headroom("kv", 0.03, 0.05, LOW_KV)),
    ("InspectorMemoryHeadroomLow", "warning"): tuple(headroom("memory", 0.1, 0.15, LOW_MEMORY)),
    ("InspectorMemoryHeadroomLow", "critical"): tuple(headroom("memory", 0.03, 0.05, LOW_MEMORY)),
    **{
        (alert, severity): tuple(judged(alert, severity, about, f"{told} than the {severity} threshold of the inspector asks for.", 2))
        for alert, about, told in (
            ("InspectorSlotsHeadroomLow", {**POOL, "resource": "slots"}, "fewer slots of pool 0 are free"),
            ("InspectorContextHeadroomLow", {**POOL, "resource": "context"}, "a session of pool 0 has less of its context left"),
            ("InspectorSessionHeadroomLow", {**POOL, "resource": "sessions", "session": "chat"}, "fewer sessions chat still fit into pool 0"),
        )
        for severity in ("warning", "critical")
    },
    ("InspectorSlotsExhausted", "warning"): tuple(slots()),
    ("InspectorKvExhaustion", "critical"): tuple(
        counter("inspector_kv_exhaustions_total", "pool 0 ran full in the last 10 minutes, and its requests were killed.", "jump")
    ),
    ("InspectorPreemptions", "warning"): tuple(
        counter("inspector_preemptions_total", "requests of pool 0 have been preempted for 10 minutes or longer.", "rise")
    ),
    ("InspectorTargetStalled", "critical"): tuple(state("stalled", "requests are in hand and nothing has moved for a minute or longer.", 0, "unreachable")),
    ("InspectorTargetDown", "critical"): (*state("unreachable", "the inspector gets no answer.", 1, ""), *another_engine()),
    ("InspectorHeadroomUnknown", "warning"): tuple(
        judged("InspectorHeadroomUnknown", "warning", {**POOL, "resource": "kv"}, "pool 0, kv cannot be judged; the inspector tells why.", 10)
    ),
    ("InspectorSnapshotStale", "warning"): tuple(stale()),
    ("InspectorDown", "critical"): tuple(down()),
    ("InspectorConfigReloadFailed", "warning"): tuple(reload()),
}


def promtool_file(alert: str, severity: str, cases: Iterable[Case]) -> dict[str, Any]:
    """The cases as a test file of promtool. Around each change it is looked at minute by minute."""
    groups: dict[str, list[Case]] = {}
    for case in cases:
        groups.setdefault(case.group, []).append(case)
    tests = [_group(name, alert, severity, group) for name, group in groups.items()]
    return {"evaluation_interval": "1m", "tests": tests}


def summary(alert: str) -> str:
    return BY_NAME[alert].summary if alert in BY_NAME else OWN[alert][1]


def _group(name: str, alert: str, severity: str, cases: Sequence[Case]) -> dict[str, Any]:
    inputs: dict[str, Sequence[Sample]] = {}
    if name == "inspector" and alert != "InspectorDown":
        lasting = {UP: ALWAYS, DARK: over((15, 1), (15, 0), (END, 1)), "off:9836": over((END, 0))}
        for case in cases:
            if case.labels["instance"] == "counter-dark:9836":
                polled = next(samples for key, samples in case.series.items() if key.startswith("inspector_polls_total"))
                lasting["counter-dark:9836"] = [0 if s is None else s for s in polled]
        for instance, samples in lasting.items():
            inputs |= series("up", {"job": "inspector", "instance": instance}, samples)
    for case in cases:
        inputs |= case.series
    changes = {minute for case in cases for fires in case.fires for minute in (fires.start, fires.end)}
    last = min(END, max(changes) + 3)
    minutes = sorted({minute + i for minute in changes for i in (-1, 0) if 0 <= minute + i < last} | set(range(0, last, 5)))
    return {
        "name": f"{alert} {severity} {name}",
        "interval": "1m",
        "input_series": [{"series": key, "values": notation(samples[:last])} for key, samples in inputs.items()],
        "alert_rule_test": [
            {
                "eval_time": f"{minute}m",
                "alertname": alert,
                "exp_alerts": [_expected(alert, severity, case, fires) for case in cases for fires in case.fires if fires.start <= minute < fires.end],
            }
            for minute in minutes
        ],
    }


def _expected(alert: str, severity: str, case: Case, fires: Fires) -> dict[str, Any]:
    subject = case.labels.get("target") or (case.labels.get("instance") if alert == "InspectorConfigReloadFailed" else None)
    told = f"{subject}: {fires.told}" if subject else fires.told
    return {
        "exp_labels": {**case.labels, "severity": severity},
        "exp_annotations": {"summary": summary(alert), "description": told, "runbook_url": f"{RUNBOOKS}#{alert.lower()}"},
    }


def notation(samples: Sequence[Sample]) -> str:
    """Samples as promtool writes them: a series that ends is marked as stale, as a scrape without it does."""
    written, before = [], None
    for sample in samples:
        written.append(("_" if before is None else "stale") if sample is None else f"{sample:g}")
        before = sample
    return " ".join(written)
