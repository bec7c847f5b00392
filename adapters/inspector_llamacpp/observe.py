"""One poll of a llama.cpp server: what is asked, in which order, and what state that means.

/health and /props never wait and never wake. /metrics and /slots come after them, and only if `permits` allows.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from inspector.contract import Ask, Observation, Reply, Route
from inspector.exposition import Scanner
from inspector.model import Fault, State
from inspector.reading import Known, Reading, Reason, Unknown, first_known
from inspector_llamacpp import causes, pool, routes
from inspector_llamacpp.flags import never_sleeps
from inspector_llamacpp.numbers import Numbers, no_numbers, numbers, scanner
from inspector_llamacpp.payloads import Health, ListedModel, Props, as_object, health, is_loading, is_props, listed_model, no_props, props, refusal
from inspector_llamacpp.permits import Permits
from inspector_llamacpp.pool import ModelMemory, Sources
from inspector_llamacpp.slots import SlotTable, slot_table


@dataclass(slots=True)
class Recall:
    """Memory of one generation of one target, for each model: by name and process in a router."""

    scanner: Scanner = field(default_factory=scanner)
    models: dict[tuple[str, int], ModelMemory] = field(default_factory=dict)

    def of(self, model: str = "", process: int = 0, identity: str = "") -> ModelMemory:
        """The memory of a model. Another `identity` is another process, within this very poll: what proved the former one harmless proves nothing of it."""
        memory = self.models.setdefault((model, process), ModelMemory())
        if identity and identity != memory.identity:
            memory = self.models[model, process] = ModelMemory(identity, former_list=memory.listed_at)
        return memory


async def read_numbers(ask: Ask, permits: Permits, scan: Scanner, route: Route, **query: str) -> Numbers:
    """/metrics, or why it was not read."""
    cause = permits.against_metrics()
    if cause is not None:
        return no_numbers(cause)
    reply = await ask.get(route, **query)
    cause = refusal(reply, causes.METRICS_DISABLED)
    return numbers(reply, scan) if cause is None and isinstance(reply, Reply) else no_numbers(cause or causes.METRICS_DISABLED)


async def read_slots(ask: Ask, permits: Permits, processing: Reading[int], slots: Reading[int], route: Route, **query: str) -> Reading[SlotTable]:
    """/slots, or why it was not read."""
    cause = permits.against_slots(processing)
    if cause is not None:
        return cause
    reply = await ask.get(route, **query)
    cause = refusal(reply, causes.SLOTS_DISABLED)
    return slot_table(reply, slots) if cause is None and isinstance(reply, Reply) else cause or causes.SLOTS_DISABLED


def read_props(reply: Reply | Unknown) -> Props:
    """/props, or unknowns with the reason why there is none."""
    cause = refusal(reply, Unknown(Reason.NOT_REPORTED, "this server has no /props"))
    if cause is not None or isinstance(reply, Unknown):
        return no_props(cause or causes.SLEEP_UNKNOWN)
    body = as_object(reply)
    if body is None or not is_props(body):
        return no_props(Unknown(Reason.INVALID, "/props answered with something that is not llama.cpp's"))
    return props(body, reply.origin)


def faults_of(*readings: tuple[str, Reading[object]]) -> tuple[Fault, ...]:
    """What went wrong with a route, as opposed to what is merely off or not allowed."""
    wrong = (Reason.INVALID, Reason.TIMEOUT, Reason.UNREACHABLE, Reason.UNAUTHORIZED, Reason.NOT_REPORTED)
    faults = {r: Fault(source, r.reason, r.detail) for source, r in reversed(readings) if isinstance(r, Unknown) and r.reason in wrong}
    return tuple(reversed(faults.values()))  # what follows from a missing /props is told once


async def observe_single(ask: Ask, recall: Recall, facts: Props, busy_by_health: Reading[int]) -> Observation:
    """A server of one model."""
    asleep = isinstance(facts.sleeping, Known) and facts.sleeping.value
    memory = recall.of(identity=facts.identity)
    trained: Reading[int] = causes.SLEEPING
    if asleep:
        sources = _sources(ask, facts, no_numbers(causes.SLEEPING), causes.SLEEPING)
    else:
        listed = await _listed(ask, memory)
        trained = listed.trained
        facts = replace(facts, model=first_known(facts.model, listed.model))
        permits = Permits(facts, never_sleeps(ask.launch, facts.slots), facts.safe_metrics or memory.safe_metrics, ask.may_wake, ask.may_scrape)
        page = await read_numbers(ask, permits, recall.scanner, routes.METRICS)
        table = await read_slots(ask, permits, page.processing, facts.slots, routes.SLOTS)
        sources = _sources(ask, facts, page, table)
    sources = replace(sources, trained=trained, busy_by_health=causes.SLEEPING if asleep else busy_by_health)
    the_pool, drift = pool.build(sources, memory)
    moving = None if asleep else pool.progress(sources, the_pool)
    return Observation(
        state=State.SLEEPING if asleep else State.READY,
        version=facts.version,
        pools=(the_pool,),
        identity=facts.identity,
        counters=sources.numbers.counters,
        progress={} if moving is None else {the_pool.id: moving},
        drift=drift,
        faults=() if asleep else faults_of(("/props", facts.slots), ("/metrics", sources.numbers.processing), ("/slots", sources.table)),
    )


async def _listed(ask: Ask, memory: ModelMemory) -> ListedModel:
    """/v1/models, which proves something only of the process that made it: the reply may have been kept from a former one."""
    reply = await ask.get(routes.V1_MODELS)
    listed = listed_model(reply)
    if isinstance(reply, Reply):
        memory.listed_at = reply.at
        memory.safe_metrics = memory.safe_metrics or (listed.safe_metrics and reply.at != memory.former_list)
    return listed


def _sources(ask: Ask, facts: Props, page: Numbers, table: Reading[SlotTable]) -> Sources:
    log_view = causes.NO_LOG if isinstance(ask.log, Unknown) and ask.log.detail.startswith(causes.NOT_FOLLOWED) else ask.log
    return Sources(facts, page, table, log_view, ask.launch, ask.launch_file, ask.stated)


async def first_answers(ask: Ask) -> Observation | tuple[Props, Reading[int]]:
    """/health and /props: the whole observation where they decide it, else what /props says, and the working slots that /health of 2024 counts."""
    reply = await ask.get(routes.HEALTH)
    if isinstance(reply, Unknown) and reply.reason in (Reason.UNREACHABLE, Reason.TIMEOUT):
        return Observation(State.UNREACHABLE, reply.detail, faults=(Fault("/health", reply.reason, reply.detail),))
    said, busy = health(reply)
    if said is Health.LOADING:
        return _loading()
    if said is Health.DENIED:
        return _unauthorized()
    answer = await ask.get(routes.PROPS)
    if isinstance(answer, Reply) and is_loading(answer):
        return _loading()
    if isinstance(answer, Reply) and answer.status in (401, 403):
        return _unauthorized()
    facts = read_props(answer)
    if said is Health.FOREIGN and not _proven(answer):
        detail = "neither /health nor /props answers as llama.cpp does; another server or a gateway may listen there"
        return Observation(State.NOT_RECOGNIZED, detail, faults=faults_of(("/props", facts.slots)))
    return facts, busy


def _proven(answer: Reply | Unknown) -> bool:
    return isinstance(answer, Reply) and answer.status == 200 and is_props(as_object(answer))


def _loading() -> Observation:
    return Observation(State.LOADING, causes.LOADING.detail, pools=(pool.dark(causes.LOADING, causes.LOADING),))


def _unauthorized() -> Observation:
    return Observation(State.UNAUTHORIZED, causes.UNAUTHORIZED.detail, faults=(Fault("/props", causes.UNAUTHORIZED.reason, causes.UNAUTHORIZED.detail),))
