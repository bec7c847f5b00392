"""One poll of a vLLM server: what is asked, in which order, and what state that means.

/health comes first: while an engine dies, /metrics repeats its last values for some seconds and only /health tells.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from inspector.contract import Ask, Observation, Reply, Route
from inspector.model import Drift, Fault, Pool, State
from inspector.reading import Known, Reading, Reason, Unknown, first_known, text
from inspector_vllm import causes, log, routes
from inspector_vllm.cache_info import cache_info, no_cache_info
from inspector_vllm.flags import served_name
from inspector_vllm.numbers import ONE_ENGINE, Metrics, Numbers
from inspector_vllm.payloads import Listed, base_name, listed, version
from inspector_vllm.pool import build, is_asleep
from inspector_vllm.scrape import PageMemory, read_metrics
from inspector_vllm.sources import Static, static

WORTH_TELLING = (Reason.INVALID, Reason.TIMEOUT, Reason.UNREACHABLE, Reason.UNAUTHORIZED)


@dataclass(slots=True)
class Recall:
    """Memory of one generation of one target. `refused`: slow routes that were refused, so that they are not asked again at every poll."""

    page: PageMemory = field(default_factory=PageMemory)
    refused: dict[str, Reply] = field(default_factory=dict)


async def observe(ask: Ask, recall: Recall) -> Observation:
    health = await ask.get(routes.HEALTH)
    ended = _without_engine(health)
    if ended is not None:
        return ended
    metrics = await read_metrics(ask, recall.page)
    stated_version = await _ask_slowly(ask, recall, routes.VERSION)
    models = await _ask_slowly(ask, recall, routes.MODELS)
    names = listed(models)
    if not _is_vllm(health, metrics, names):
        return Observation(State.NOT_RECOGNIZED, causes.FOREIGN)
    return _observation(ask, metrics, version(stated_version), names)


async def _ask_slowly(ask: Ask, recall: Recall, route: Route) -> Reply | Unknown:
    """The core keeps good replies for their time; refusals are kept here."""
    kept = recall.refused.get(route.path)
    if kept is not None and ask.now - kept.at < (route.every.seconds or ask.now):
        return kept
    reply = await ask.get(route)
    recall.refused.pop(route.path, None)
    if isinstance(reply, Reply) and reply.status != 200:
        recall.refused[route.path] = reply
    return reply


def _without_engine(health: Reply | Unknown) -> Observation | None:
    """What /health alone settles."""
    if isinstance(health, Unknown):
        if health.reason is Reason.INVALID:
            return Observation(State.NOT_RECOGNIZED, health.detail, faults=(Fault("/health", health.reason, health.detail),))
        return Observation(State.UNREACHABLE, health.detail, faults=(Fault("/health", health.reason, health.detail),))
    if health.status in (401, 403):
        return Observation(State.UNAUTHORIZED, causes.UNAUTHORIZED.detail, faults=(Fault("/health", causes.UNAUTHORIZED.reason, causes.UNAUTHORIZED.detail),))
    if health.status == 503:
        return Observation(State.UNREACHABLE, causes.DEAD, faults=(Fault("/health", Reason.UNREACHABLE, causes.DEAD),))
    if health.status >= 500:
        detail = f"/health answers {health.status}"
        return Observation(State.UNREACHABLE, detail, faults=(Fault("/health", Reason.UNREACHABLE, detail),))
    return None


def _is_vllm(health: Reply | Unknown, metrics: Metrics | Unknown, names: Listed) -> bool:
    """By its series or its models' owner; else by its /health, which is empty, unless another owns the models."""
    if (isinstance(metrics, Metrics) and metrics.has_statistics) or names.owner == "vllm":
        return True
    return names.owner is None and isinstance(health, Reply) and health.status == 200 and not health.body


def _observation(ask: Ask, metrics: Metrics | Unknown, stated_version: Reading[str], names: Listed) -> Observation:
    statistics = metrics if isinstance(metrics, Unknown) or metrics.has_statistics else causes.STATS_DISABLED
    engines = statistics.engines if isinstance(statistics, Metrics) else ()
    engines = engines or log.engines(ask.log) or (ONE_ENGINE,)
    facts = static(ask, names, engines[0])
    numbers = {engine: _numbers(ask, statistics, engine) for engine in engines}
    built = [_pool(ask, statistics, engine, numbers[engine], names, facts) for engine in engines]
    asleep = [engine for engine in engines if is_asleep(numbers[engine])]
    all_asleep = len(asleep) == len(engines)
    moving = {engine: numbers[engine].progress for engine in engines if engine not in asleep}
    return Observation(
        state=State.SLEEPING if all_asleep else State.READY,
        detail=causes.ASLEEP.detail if all_asleep else "",
        version=first_known(stated_version, log.version(ask.log)),
        pools=tuple(pool for pool, _ in built),
        born=metrics.born if isinstance(metrics, Metrics) else None,
        counters=_counters(statistics, engines),
        progress={engine: series for engine, series in moving.items() if series is not None},
        drift=(*facts.drift, *_version_drift(stated_version, log.version(ask.log), engines[0]), *(drift for _, drifts in built for drift in drifts)),
        faults=_faults(("/metrics", statistics), ("/v1/models", names.context), ("/version", stated_version)),
    )


def _numbers(ask: Ask, statistics: Metrics | Unknown, engine: str) -> Numbers:
    """/metrics; where it is not to be had, the log's periodic line."""
    numbers = statistics.numbers(engine) if isinstance(statistics, Metrics) else log.periodic(ask.log, engine, ask.now, statistics)
    at_least = log.preemptions(ask.log)
    return numbers if at_least is None or isinstance(numbers.preemptions, Known) else replace(numbers, preemptions=at_least)


def _pool(ask: Ask, statistics: Metrics | Unknown, engine: str, numbers: Numbers, names: Listed, facts: Static) -> tuple[Pool, tuple[Drift, ...]]:
    info = cache_info(statistics, engine) if isinstance(statistics, Metrics) else no_cache_info(statistics)
    model = first_known(names.model, _labelled_model(statistics), log.model(ask.log), served_name(ask.launch), served_name(ask.launch_file))
    return build(engine, model, numbers, info, log.kv_log(ask.log, engine), facts)


def _labelled_model(statistics: Metrics | Unknown) -> Reading[str]:
    """The name on the series, for a server whose /v1/models is guarded."""
    name = statistics.model if isinstance(statistics, Metrics) else None
    return text(base_name(name), statistics.origin, "model_name on /metrics") if name and isinstance(statistics, Metrics) else causes.NO_MODEL


def _counters(statistics: Metrics | Unknown, engines: tuple[str, ...]) -> dict[str, float]:
    found: dict[str, float] = {}
    for engine in engines if isinstance(statistics, Metrics) else ():
        found |= statistics.counters(engine) if isinstance(statistics, Metrics) else {}
    return found


def _version_drift(http: Reading[str], logged: Reading[str], pool_id: str) -> tuple[Drift, ...]:
    """A log of another version is another server's."""
    if isinstance(http, Unknown) or isinstance(logged, Unknown) or http.value == logged.value:
        return ()
    return (Drift(pool_id, "version", "http", "log", f"{http.origin} says {http.value}, {logged.origin} says {logged.value}"),)


def _faults(*readings: tuple[str, object]) -> tuple[Fault, ...]:
    """What went wrong with a route, as opposed to what is merely off."""
    return tuple(Fault(source, r.reason, r.detail) for source, r in readings if isinstance(r, Unknown) and r.reason in WORTH_TELLING)
