"""What docs/metrics.md tells of each metric and each label: from the table of metrics, the adapters, and the two tables here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from inspector.alerts import catalogue
from inspector.alerts.status import AlertState
from inspector.headroom import RESOURCES
from inspector.metrics import FAILED_STATES, METRICS, NOT_EXPORTED, SLOT_METRICS, Metric, OwnStatus, own_families
from inspector.model import MEMORY_FIELDS, POOL_FIELDS, State
from inspector.notify import Deliveries
from inspector.registry import load_adapters

ALWAYS = ("target", "engine")
"""Labels of everything that is told of a target."""


@dataclass(frozen=True, slots=True)
class Documented:
    """A metric as it is scraped. `engines` are the names of the adapters that can offer it: all where that does not depend on the engine, none
    where it is not about a server."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...]
    engines: tuple[str, ...]


GROUPS: Mapping[str, Sequence[str]] = {
    "target": (
        "inspector_target_",
        "inspector_poll",
    ),
    "known": ("inspector_field_known", "inspector_drift"),
    "requests": ("inspector_pool_info", "inspector_slots", "inspector_requests_", "inspector_context_", "inspector_model_context_"),
    "kv": ("inspector_kv_", "inspector_preemptions_", "inspector_prefix_cache_"),
    "tokens": ("inspector_prompt_tokens_", "inspector_generation_tokens_"),
    "headroom": ("inspector_headroom_",),
    "sessions": ("inspector_session_",),
    "memory": ("inspector_memory_",),
    "alerts": ("inspector_alert_",),
    "slot": ("inspector_slot_",),
    "own": ("inspector_build_", "inspector_task_", "inspector_config_", "inspector_notification"),
}
"""How the names of each group begin."""

UNITS: Mapping[str, str] = {
    "_timestamp_seconds": "Unix time",
    "_seconds": "seconds",
    "_bytes": "bytes",
    "_bytes_per_token": "bytes",
    "_tokens": "tokens",
    "_tokens_total": "tokens",
    "prefix_cache_hits_total": "tokens",
    "prefix_cache_queries_total": "tokens",
    "_ratio": "share",
    "_info": "always 1",
    "_slots": "slots",
    "_slots_busy": "slots",
    "_requests_running": "requests",
    "_requests_waiting": "requests",
    "_requests_in_flight": "requests",
    "_preemptions_total": "requests",
    "_kv_exhaustions_total": "requests",
    "_session_capacity": "sessions",
    "_session_headroom": "sessions",
    "_polls_total": "polls",
    "_poll_failures_total": "polls",
    "_task_failures_total": "times",
    "_notifications_total": "alerts",
    "_notification_failures_total": "requests",
    "_notifications_dropped_total": "alerts",
    "_notifications_waiting": "alerts",
    "_drift": "always 1",
    "_session_limit": "always 1",
    "_target_up": "0 or 1",
    "_target_state": "0 or 1",
    "_field_known": "0 or 1",
    "_alert_state": "0 or 1",
    "_slot_busy": "0 or 1",
    "_reload_successful": "0 or 1",
}
"""The unit by how a name ends; of several endings the longest counts."""

SEVERITIES = (catalogue.WARNING, catalogue.CRITICAL)
BOUNDS = ("guaranteed", "possible")
ALERT_RESOURCES = tuple(dict.fromkeys([*(kind.resource for kind in catalogue.KINDS if kind.resource), "state"]))
FIELDS = (*POOL_FIELDS, *(f"memory_{name}" for name in MEMORY_FIELDS))

Values = tuple[str, ...] | str
"""The values of a label where they are a closed list, else a sentence."""

LABELS: Sequence[tuple[str, str, Values]] = (
    ("target", "", "Name of the target in the configuration; on the command line host and port"),
    ("engine", "", "Name of the adapter, as `inspector adapters` lists it; empty until the server was recognized"),
    ("pool", "", '`"0"`, where an engine has one pool; the number of a vLLM engine core; the name of a router\'s model; empty where it is not about a pool'),
    ("state", "inspector_target_state", tuple(str(state) for state in State)),
    ("reason", "inspector_poll_failures_total", tuple(str(state) for state in FAILED_STATES)),
    ("field", "inspector_field_known", FIELDS),
    ("field", "inspector_drift", "The same, or a launch setting such as `ctx_size`"),
    ("resource", "inspector_headroom_ratio", RESOURCES),
    ("resource", "inspector_headroom_tokens", ("kv", "context")),
    ("resource", "inspector_session_limit", ("kv", "slots", "context")),
    ("resource", "inspector_alert_state", ALERT_RESOURCES),
    ("bound", "", BOUNDS),
    ("session", "", "Name of a session shape of the configuration; in `inspector_alert_state` empty where it is not about one"),
    ("alert", "", tuple(kind.name for kind in catalogue.KINDS)),
    ("severity", "", SEVERITIES),
    ("state", "inspector_alert_state", tuple(str(state) for state in AlertState)),
    ("model", "", "Base name of the model, never a path"),
    ("adapter", "", "The same as `engine`"),
    ("version", "", "Version of the server, or of the inspector in `inspector_build_info`; empty while it is not known"),
    ("python", "", "Version of Python"),
    ("slot", "", "Number of the slot"),
)
"""(label, the one metric that this is about or "", values)."""


def families() -> tuple[Documented, ...]:
    """Every metric that the inspector can ever show."""
    offers = {name: adapter.offers(None) for name, adapter in load_adapters().adapters.items()}
    of_targets = [_documented(metric, offers) for metric in METRICS + SLOT_METRICS]
    own = own_families(OwnStatus(reloaded=True, reloaded_at=1.0, deliveries=Deliveries()))
    of_itself = [Documented(sample.name, family.type, family.documentation, tuple(sample.labels), ()) for family in own for sample in family.samples]
    return (*of_targets, *of_itself)


def _documented(metric: Metric, offers: Mapping[str, frozenset[str]]) -> Documented:
    name = metric.name.removeprefix("inspector_")
    # Memory is read by the core, whatever the engine. A single slot is shown by the engines that tell which of them are busy.
    needed = "slots_busy" if metric in SLOT_METRICS else name if name in POOL_FIELDS else None
    engines = tuple(engine for engine, offered in offers.items() if needed is None or needed in offered)
    return Documented(metric.name, metric.kind, metric.help, (*ALWAYS, *metric.labels), engines)


def unit(name: str) -> str:
    """The unit of a metric. Raises ValueError where no ending tells it."""
    endings = sorted((ending for ending in UNITS if name.endswith(ending)), key=len)
    if not endings:
        raise ValueError(f"{name}: its unit is not known, add its ending to UNITS in docs/metric_reference.py")
    return UNITS[endings[-1]]


def values_of(label: str, metric: str) -> Values:
    """What a label of a metric can be. Raises ValueError for a label that is not described."""
    for about in (metric, ""):
        for name, only, values in LABELS:
            if (name, only) == (label, about):
                return values
    raise ValueError(f"{metric}{{{label}}} is not described: add it to LABELS in docs/metric_reference.py")


def table(group: str) -> Iterator[str]:
    """The metrics of a group, a line each."""
    everywhere = tuple(load_adapters().adapters)
    members = [metric for metric in families() if group_of(metric.name) == group]
    yield "| metric | type, unit | labels | engines | meaning |"
    yield "|---|---|---|---|---|"
    for metric in members:
        own = ", ".join(f"`{label}`" for label in metric.labels if label not in ALWAYS)
        engines = "all" if metric.engines == everywhere else ", ".join(metric.engines) or "–"
        yield f"| `{metric.name}` | {metric.kind}, {unit(metric.name)} | {own or '–'} | {engines} | {metric.help} |"


def group_of(metric: str) -> str:
    """The group that a metric is described in. Raises ValueError for none or several."""
    found = [group for group, beginnings in GROUPS.items() if metric.startswith(tuple(beginnings))]
    if len(found) != 1:
        raise ValueError(f"{metric} belongs to {found or 'no group'}: see GROUPS in docs/metric_reference.py")
    return found[0]


def labels() -> Iterator[str]:
    """Every label and what it can be."""
    yield "| label | of | values |"
    yield "|---|---|---|"
    for label, only, values in LABELS:
        told = values if isinstance(values, str) else ", ".join(f"`{value}`" for value in values)
        yield f"| `{label}` | {f'`{only}`' if only else 'all that have it'} | {told} |"


def not_exported() -> Iterator[str]:
    """The fields of the model that have no metric."""
    yield "Without a metric of their own: " + ", ".join(f"`{name}`" for name in sorted(NOT_EXPORTED)) + "."
