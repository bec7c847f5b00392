"""Plans as JSON: one shape for each of the three forms of `inspector plan`. A figure that is not known is null, with its reason beside it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from inspector import wording
from inspector.board import Entry
from inspector.budget import Budget, Shape, budget
from inspector.contract import CacheShape, FlagTable
from inspector.layout import Span
from inspector.model import Pool
from inspector.planning.catalog import TITLE, Catalog, Published
from inspector.planning.frontier import Planner, Point
from inspector.planning.what_if import changes
from inspector.reading import Known, Reading, Unknown

SCHEMA = 1

RESTS_ON = ("slots", "slots_busy", "context_limit_tokens", "kv_capacity_tokens", "kv_used_tokens", "kv_unified")
"""What a budget is made of."""


def live(entries: Iterable[tuple[Entry, Mapping[str, Shape], FlagTable | None]]) -> dict[str, Any]:
    """The budget of each session shape in each pool of each target, and what one more flag would change."""
    return {"schema": SCHEMA, "plan": "live", "targets": [_target(entry, shapes, flags) for entry, shapes, flags in entries]}


def _target(entry: Entry, shapes: Mapping[str, Shape], flags: FlagTable | None) -> dict[str, Any]:
    snapshot = entry.snapshot
    if snapshot is None:
        return {"target": entry.info.name, "engine": entry.info.engine, "state": None, "state_detail": "not polled", "pools": []}
    return {
        "target": entry.info.name,
        "engine": snapshot.engine,
        "state": str(snapshot.state),
        "state_detail": snapshot.state_detail,
        "pools": [_pool(pool, shapes, flags) for pool in snapshot.pools],
    }


def _pool(pool: Pool, shapes: Mapping[str, Shape], flags: FlagTable | None) -> dict[str, Any]:
    return {
        "pool": pool.id,
        "layouts": [wording.layout(layout) for layout in pool.layouts],
        "rests_on": {name: _source(pool.reading(name)) for name in RESTS_ON},
        "sessions": {name: _session(pool, shape, flags) for name, shape in shapes.items()},
    }


def _source(reading: Reading[Any]) -> str:
    return str(reading.origin) if isinstance(reading, Known) else f"unknown ({reading.reason}): {reading.detail}"


def _session(pool: Pool, shape: Shape, flags: FlagTable | None) -> dict[str, Any]:
    made: Budget = budget(pool, shape)
    others = changes(pool, shape, flags) if flags is not None else []
    return {
        **_shape(shape),
        "capacity": _span(made.capacity),
        "headroom": _span(made.headroom),
        "limited_by": made.limited_by,
        "changes": [{"with": other.words, "capacity": _span(other.capacity), "rests_on": other.rests_on} for other in others],
    }


def _shape(shape: Shape) -> dict[str, Any]:
    return {"prompt_tokens": shape.prompt, "output_tokens": shape.output}


def _span(span: Span[int] | Unknown) -> dict[str, Any]:
    if isinstance(span, Unknown):
        return {"guaranteed": None, "possible": None, **_why(span)}
    return {"guaranteed": span.guaranteed, "possible": span.possible}


def _why(unknown: Unknown) -> dict[str, Any]:
    return {"reason": str(unknown.reason), "detail": unknown.detail}


def files(planner: Planner, engine: str, points: Sequence[Point | Unknown], *, sessions: int | None, tokens: int | None, trained: int | None) -> dict[str, Any]:
    """The plan of a model's file. `sessions` and `tokens` are what was asked for, `points` the table."""
    shape = planner.plans.cache_shape(planner.model, planner.settings)
    told: dict[str, Any] = {
        "schema": SCHEMA,
        "plan": "files",
        "engine": engine,
        "architecture": planner.model.architecture,
        "model_context_tokens": trained,
        "weights_bytes": planner.model.weights_bytes,
        "memory_bytes": planner.settings.memory_bytes,
        "cache": _cache(shape),
    }
    if sessions is not None and planner.settings.memory_bytes is not None:
        told["largest_context"] = _point(planner.largest_context(sessions))
    if tokens is not None and planner.settings.memory_bytes is not None:
        told["most_sessions"] = {"context_tokens": tokens, **_count(planner.most_sessions(tokens))}
    if tokens is not None:
        told["needed"] = _point(planner.needed(1 if sessions is None else sessions, tokens))
    return {**told, "table": [_point(point) for point in points]}


def _cache(shape: CacheShape | Unknown) -> dict[str, Any]:
    names = ("token_bytes", "window_bytes", "window_tokens", "session_bytes")
    if isinstance(shape, Unknown):
        return {**dict.fromkeys(names), **_why(shape)}
    return {name: getattr(shape, name) for name in names}


def _count(found: int | Unknown) -> dict[str, Any]:
    return {"sessions": None, **_why(found)} if isinstance(found, Unknown) else {"sessions": found}


def _point(point: Point | Unknown) -> dict[str, Any]:
    if isinstance(point, Unknown):
        return {"sessions": None, "context_tokens": None, **_why(point)}
    return {
        "sessions": point.sessions,
        "context_tokens": point.tokens,
        "context_setting": point.setting,
        "kv_bytes": point.kv_bytes,
        "limited_by": point.limited_by or None,
    }


def catalog(found: Catalog, shapes: Mapping[str, Shape]) -> dict[str, Any]:
    """What a catalog publishes, beside the session shapes."""
    models = [_published(model, shapes) for model in found.models]
    return {"schema": SCHEMA, "plan": "catalog", "basis": TITLE, "models": models, "unreadable_entries": found.unreadable}


def _published(model: Published, shapes: Mapping[str, Shape]) -> dict[str, Any]:
    fields = {"id": model.id, "revision": model.revision, "quant": model.quant, "requiredMemGB": model.required_memory_gb, "maxContext": model.max_context}
    told: dict[str, Any] = {name: reading.value if isinstance(reading, Known) else None for name, reading in fields.items()}
    unknown = {name: _why(reading) for name, reading in fields.items() if isinstance(reading, Unknown)}
    within = {name: {**_shape(shape), "within_max_context": model.allows(shape)} for name, shape in shapes.items()}
    return {**told, "unknown": unknown, "sessions": within}


def has_unknown(report: Mapping[str, Any]) -> bool:
    """Whether something that was asked for is not known."""
    match report["plan"]:
        case "live":
            pools = [pool for target in report["targets"] for pool in target["pools"]]
            answers = [session[bound] for pool in pools for session in pool["sessions"].values() for bound in ("capacity", "headroom")]
            return not all(target["pools"] for target in report["targets"]) or any(answer["guaranteed"] is None for answer in answers)
        case "files":
            asked = [report[name] for name in ("largest_context", "most_sessions", "needed") if name in report]
            return report["cache"]["token_bytes"] is None or any(answer["sessions"] is None for answer in (*asked, *report["table"]))
        case _:
            return False
