"""One pool out of all that was learned about one model in one poll."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from inspector.contract import LaunchView, LogView
from inspector.model import Drift, Pool
from inspector.reading import Known, Reading, Unknown, derive, first_known
from inspector_llamacpp import causes, evidence, layouts, log
from inspector_llamacpp.evidence import Evidence, Settled
from inspector_llamacpp.numbers import Numbers
from inspector_llamacpp.payloads import Props
from inspector_llamacpp.slots import SlotTable, slots_context
from inspector_llamacpp.usage import use, was_not_read


@dataclass(slots=True)
class ModelMemory:
    """What is remembered of one process of a model: what /props says that it is, whether /v1/models proved its /metrics harmless, when that list which was
    seen last was made (Unix seconds), the one that had been seen before this process was, and the most tokens ever held at once."""

    identity: str = ""
    safe_metrics: bool = False
    listed_at: float | None = None
    former_list: float | None = None
    seen_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Sources:
    """All sources about one model in one poll."""

    props: Props
    numbers: Numbers
    table: Reading[SlotTable]
    log: LogView | Unknown
    launch: LaunchView | Unknown
    launch_file: LaunchView | Unknown
    stated: Mapping[str, Known[Any]]
    trained: Reading[int] = causes.NO_SETTING
    busy_by_health: Reading[int] = causes.NO_SETTING


def settled(sources: Sources, pool_id: str) -> Settled:
    """Slots, context and the cache's shape, from all sources in their order of trust."""
    http = Evidence(
        "http",
        first_known(sources.props.slots, _row_count(sources.table)),
        first_known(sources.props.context, slots_context(sources.table)),
        _split_era(sources),
    )
    operator = evidence.of_operator(sources.stated)
    best = [http] if isinstance(sources.log, Unknown) else [http, evidence.of_log(sources.log)]
    so_far = evidence.settle([*best, operator], pool_id)
    launched = [
        evidence.of_launch(view, so_far.slots, so_far.context, sources.trained)
        for view in (sources.launch, sources.launch_file)
        if isinstance(view, LaunchView)
    ]
    live = [e for e in launched if e.source == "launch"]
    files = [e for e in launched if e.source != "launch"]
    return evidence.settle([*best, *live, operator, *files], pool_id)


def build(sources: Sources, memory: ModelMemory, pool_id: str = "0") -> tuple[Pool, tuple[Drift, ...]]:
    known = settled(sources, pool_id)
    memory.seen_tokens = max(memory.seen_tokens, layouts.seen_together(sources.table))
    possible = layouts.layouts(known, memory.seen_tokens)
    capacity = layouts.capacity(known, possible)
    numbers = sources.numbers
    used = use(sources.table, numbers, known.slots, counts_tokens=sources.props.counts_tokens)
    busy = first_known(used.busy, sources.busy_by_health)
    log_view = sources.log if isinstance(sources.log, Unknown) or "log" in known.believed else causes.OTHER_LOG
    kv_bytes, token_bytes = _bytes(log_view)
    pool = Pool(
        id=pool_id,
        model=sources.props.model,
        slots=known.slots,
        slots_busy=busy,
        requests_running=_running(numbers.processing, busy),
        requests_waiting=numbers.deferred,
        context_limit_tokens=known.context,
        context_guaranteed_tokens=layouts.guarantee(known, possible),
        kv_capacity_tokens=capacity,
        kv_used_tokens=used.used,
        kv_reclaimable_tokens=used.reclaimable,
        kv_usage_ratio=used.ratio if _has_gauge(numbers) else layouts.usage_ratio(used.used, possible, capacity),
        kv_bytes_per_token=token_bytes,
        kv_capacity_bytes=kv_bytes,
        kv_unified=layouts.unified(known),
        kv_exhaustions_total=_exhaustions(log_view),
        prefix_cache_hits_total=numbers.cached,
        prefix_cache_queries_total=derive(lambda cached, prompt: cached + prompt, numbers.cached, numbers.prompt),
        prompt_tokens_total=numbers.prompt,
        generation_tokens_total=numbers.generated,
        slots_detail=used.slots,
        layouts=possible,
    )
    return pool, (*known.drift, *evidence.cache_type_drift(sources.launch, sources.launch_file, pool_id))


def dark(cause: Unknown, model: Reading[str], pool_id: str = "0") -> Pool:
    """A pool of which nothing but its name is known."""
    fields: dict[str, Any] = dict.fromkeys(OFFERED, cause)
    return Pool(**(fields | {"id": pool_id, "model": model}))


def progress(sources: Sources, pool: Pool) -> tuple[float, ...] | None:
    """The series that move while the engine works, where /metrics was read in this poll; tokens in use move during a prefill too."""
    series = (sources.numbers.decodes, sources.numbers.longest, pool.kv_used_tokens)
    if isinstance(sources.numbers.decodes, Unknown):
        return None
    return tuple(float(s.value) for s in series if isinstance(s, Known))


OFFERED = frozenset(
    {
        "model",
        "slots",
        "slots_busy",
        "requests_running",
        "requests_waiting",
        "context_limit_tokens",
        "context_guaranteed_tokens",
        "kv_capacity_tokens",
        "kv_used_tokens",
        "kv_reclaimable_tokens",
        "kv_usage_ratio",
        "kv_bytes_per_token",
        "kv_capacity_bytes",
        "kv_unified",
        "kv_exhaustions_total",
        "prefix_cache_hits_total",
        "prefix_cache_queries_total",
        "prompt_tokens_total",
        "generation_tokens_total",
    }
)
"""Not offered: preemptions (llama.cpp kills requests instead) and requests in flight (it parts running from waiting)."""


def _row_count(table: Reading[SlotTable]) -> Reading[int]:
    return table if isinstance(table, Unknown) else Known(len(table.value.rows), table.origin)


def _split_era(sources: Sources) -> Reading[bool]:
    """Two marks of builds from before slots could share their cache."""
    ratio = sources.numbers.kv_ratio
    if isinstance(ratio, Known):
        return Known(False, ratio.origin)
    if isinstance(sources.table, Known) and sources.table.value.split_era:
        return Known(False, sources.table.origin)
    return causes.LAYOUT


def _running(processing: Reading[int], busy: Reading[int]) -> Reading[int]:
    """`requests_processing` counts the slots that work; where /metrics is not to be had, /slots counts them."""
    return busy if isinstance(processing, Unknown) and was_not_read(processing) and isinstance(busy, Known) else processing


def _has_gauge(numbers: Numbers) -> bool:
    return isinstance(numbers.kv_ratio, Known)


def _bytes(view: LogView | Unknown) -> tuple[Reading[int], Reading[float]]:
    """Bytes of the whole cache and of one token; where no log can be used, why it cannot."""
    if not isinstance(view, Unknown):
        return log.kv_bytes(view)
    cause = causes.NO_LOG_OF_BYTES if view is causes.NO_LOG else view
    return cause, cause


def _exhaustions(view: LogView | Unknown) -> Reading[int]:
    return view if isinstance(view, Unknown) else log.exhaustions(view)
