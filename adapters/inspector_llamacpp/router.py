"""One poll of a llama.cpp router: a pool for each of its models that is loaded. Nothing that looks at a model may load it, evict another, or wake it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from inspector.contract import NO_VERSION, Ask, LaunchView, Observation, Reply
from inspector.model import Drift, Fault, Pool, State
from inspector.reading import Known, Origin, Reading, Reason, Unknown, positive, text
from inspector_llamacpp import causes, pool, routes
from inspector_llamacpp.flags import PARALLEL, never_sleeps, router_settings, setting
from inspector_llamacpp.numbers import no_numbers
from inspector_llamacpp.observe import Recall, faults_of, read_numbers, read_props, read_slots
from inspector_llamacpp.payloads import Props, as_object, base_name, refusal
from inspector_llamacpp.permits import Permits
from inspector_llamacpp.pool import Sources

_NAME = re.compile(r"(?![A-Za-z]:/)(?![.~])[^/\\]+(?:/(?!.*\.gguf$)[^/\\]+)?")
"""A name, or org/name. All else is a path."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One model of the router's list. `settings` are its process's arguments, as far as they tell something."""

    id: str
    """As the router is asked for it: in a preset that may be a path."""
    pool: str
    """As it is told: never a path."""
    status: str
    settings: LaunchView | Unknown
    context: Reading[int]
    trained: Reading[int]
    failed: bool
    process: int
    """Tells one process of a model from the next: it gets a port of its own."""
    origin: Origin


@dataclass(frozen=True, slots=True)
class Seen:
    """One model, looked at."""

    pool: Pool
    drift: tuple[Drift, ...] = ()
    faults: tuple[Fault, ...] = ()
    progress: tuple[float, ...] | None = None


async def observe_router(ask: Ask, recall: Recall, facts: Props) -> Observation:
    listed = entries(await ask.get(routes.MODELS))
    if isinstance(listed, Unknown):
        return Observation(State.READY, "a router whose models are not known", version=facts.version, faults=faults_of(("/models", listed)))
    for gone in recall.models.keys() - {(entry.id, entry.process) for entry in listed if entry.status in ("loaded", "sleeping")}:
        del recall.models[gone]
    seen = [await _look(ask, recall, entry) for entry in listed if entry.status in ("loaded", "sleeping", "loading")]
    failed = tuple(Fault("/models", Reason.INVALID, f"model {entry.pool} failed to load or crashed: see the router's log") for entry in listed if entry.failed)
    return Observation(
        State.READY,
        "a router",
        version=facts.version,
        identity=facts.identity,
        pools=tuple(s.pool for s in seen),
        progress={s.pool.id: s.progress for s in seen if s.progress is not None},
        drift=tuple(d for s in seen for d in s.drift),
        faults=(*failed, *(f for s in seen for f in s.faults)),
    )


def entries(reply: Reply | Unknown) -> list[Entry] | Unknown:
    """The router's models; one that is not spelled as such is passed over."""
    cause = refusal(reply, Unknown(Reason.NOT_REPORTED, "this router does not list its models"))
    if cause is not None or isinstance(reply, Unknown):
        return cause or causes.NO_MODEL
    body = as_object(reply)
    data = body.get("data") if body is not None else None
    if not isinstance(data, list):
        return Unknown(Reason.INVALID, "/models answered with something that is no list of models")
    found = [_entry(row, reply.origin) for row in data if isinstance(row, dict)]
    models = [entry for entry in found if entry is not None]
    if len({entry.id for entry in models}) < len(models):
        return Unknown(Reason.INVALID, "/models lists one model twice")
    told = pool_ids(entry.id for entry in models)
    return [replace(entry, pool=told[entry.id]) for entry in models]


def pool_ids(ids: Iterable[str]) -> dict[str, str]:
    """What each of the router's ids is told as: itself, or the base name of a path, with a number where two would be alike."""
    told: dict[str, str] = {}
    taken: set[str] = set()
    alike: Counter[str] = Counter()
    for name in sorted(ids, key=lambda name: (_NAME.fullmatch(name) is None, name)):
        plain = choice = name if _NAME.fullmatch(name) else base_name(name) or "model"
        while choice in taken:
            alike[plain] += 1
            choice = f"{plain}-{alike[plain] + 1}"
        taken.add(choice)
        told[name] = choice
    return told


def _entry(row: Mapping[str, Any], origin: Origin) -> Entry | None:
    name, status, meta = row.get("id"), row.get("status"), row.get("meta")
    if isinstance(text(name, origin, "a model's id"), Unknown) or not isinstance(status, dict) or not isinstance(status.get("value"), str):
        return None
    figures: Mapping[str, Any] = meta if isinstance(meta, dict) else {}
    return Entry(
        id=str(name),
        pool="",
        status=status["value"],
        settings=router_settings(status.get("args"), origin),
        context=positive(figures.get("n_ctx"), origin, "n_ctx of a model"),
        trained=positive(figures.get("n_ctx_train"), origin, "n_ctx_train of a model"),
        failed=status.get("failed") is True,
        process=hash(str(status.get("args"))),
        origin=origin,
    )


async def _look(ask: Ask, recall: Recall, entry: Entry) -> Seen:
    name: Reading[str] = text(base_name(entry.id), entry.origin, "a model's id")
    if entry.status == "loading":
        return Seen(pool.dark(causes.LOADING, name, entry.pool))
    if entry.status == "sleeping":
        return _asleep(recall, entry, _listed_props(entry, name))
    facts = replace(read_props(await ask.get(routes.MODEL_PROPS, model=entry.id)), model=name)
    if isinstance(facts.sleeping, Known) and facts.sleeping.value:  # it fell asleep after the list was made
        return _asleep(recall, entry, facts)
    return await _awake(ask, recall, entry, facts)


async def _awake(ask: Ask, recall: Recall, entry: Entry, facts: Props) -> Seen:
    memory = recall.of(entry.id, entry.process, facts.identity)
    # Only the build number of this very poll proves anything: of a router's models every build shows `architecture`, unlike a server of one model.
    permits = Permits(facts, never_sleeps(entry.settings, facts.slots), facts.safe_metrics, ask.may_wake, ask.may_scrape)
    page = await read_numbers(ask, permits, recall.scanner, routes.MODEL_METRICS, model=entry.id)
    table = await read_slots(ask, permits, page.processing, facts.slots, routes.MODEL_SLOTS, model=entry.id)
    sources = Sources(facts, page, table, causes.ROUTER_LOG, entry.settings, causes.NO_SETTING, {}, entry.trained)
    built, drift = pool.build(sources, memory, entry.pool)
    faults = faults_of((f"/props of {entry.pool}", facts.slots), (f"/metrics of {entry.pool}", page.processing), (f"/slots of {entry.pool}", table))
    return Seen(built, drift, faults, pool.progress(sources, built))


def _asleep(recall: Recall, entry: Entry, facts: Props) -> Seen:
    """What holds while a model sleeps: its slots, its context, the shape of its cache."""
    sources = Sources(facts, no_numbers(causes.SLEEPING), causes.SLEEPING, causes.ROUTER_LOG, entry.settings, causes.NO_SETTING, {}, entry.trained)
    built, drift = pool.build(sources, recall.of(entry.id, entry.process), entry.pool)
    return Seen(built, drift)


def _listed_props(entry: Entry, name: Reading[str]) -> Props:
    """For a model that sleeps the router's list is enough: nothing is asked of it."""
    parallel = None if isinstance(entry.settings, Unknown) else setting(entry.settings, PARALLEL)
    slots: Reading[int] = parallel if isinstance(parallel, Known) and parallel.value > 0 else causes.SLEEPING
    return Props(slots, entry.context, name, NO_VERSION, Known(True, entry.origin))
