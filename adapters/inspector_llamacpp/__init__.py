"""The adapter for llama.cpp's `llama-server`, of one model or as a router, every build since 2024."""

from __future__ import annotations

from collections.abc import Mapping

from inspector.contract import Ask, CacheShape, FlagTable, LogPattern, ModelFile, Observation, PlanSettings, Reply, Route
from inspector.layout import Layout
from inspector.reading import Unknown
from inspector_llamacpp import flags, log, plan, routes
from inspector_llamacpp.observe import Recall, first_answers, observe_single
from inspector_llamacpp.payloads import as_object, is_props
from inspector_llamacpp.pool import OFFERED
from inspector_llamacpp.router import observe_router


class LlamaCpp:
    """See `inspector.contract.Adapter`."""

    name = "llamacpp"
    title = "llama.cpp llama-server"
    interval = 5.0
    routes: tuple[Route, ...] = routes.ROUTES
    flags: FlagTable = flags.FLAGS
    log_patterns: tuple[LogPattern, ...] = log.PATTERNS

    def offers(self, version: str | None) -> frozenset[str]:  # noqa: ARG002 (the same for every build)
        return OFFERED

    def start(self) -> Recall:
        return Recall()

    def recognize(self, replies: Mapping[str, Reply]) -> bool:
        """By the `Server` header, the shape of /props, or the owner in /v1/models; a gateway may hide any of them."""
        health, props, models = replies.get("/health"), replies.get("/props"), replies.get("/v1/models")
        if health is not None and health.headers.get("server", "").strip().lower() == "llama.cpp":
            return True
        if props is not None and props.status == 200 and _is_whole_props(as_object(props)):
            return True
        return models is not None and models.status == 200 and _owner(as_object(models)) == "llamacpp"

    async def observe(self, ask: Ask, recall: Recall) -> Observation:
        answers = await first_answers(ask)
        if isinstance(answers, Observation):
            return answers
        facts, busy_by_health = answers
        return await observe_router(ask, recall, facts) if facts.is_router else await observe_single(ask, recall, facts, busy_by_health)

    def cache_shape(self, model: ModelFile, settings: PlanSettings) -> CacheShape | Unknown:
        return plan.cache_shape(model, settings)

    def cache_bytes(self, model: ModelFile, settings: PlanSettings) -> int | Unknown:
        return plan.cache_bytes(model, settings)

    def plan_layout(self, model: ModelFile, settings: PlanSettings) -> Layout | Unknown:
        return plan.plan_layout(model, settings)


def _is_whole_props(body: Mapping[str, object] | None) -> bool:
    return body is not None and is_props(body) and (body.get("role") == "router" or {"default_generation_settings", "total_slots"} <= body.keys())


def _owner(body: Mapping[str, object] | None) -> object:
    data = body.get("data") if body is not None else None
    first = data[0] if isinstance(data, list) and data else None
    return first.get("owned_by") if isinstance(first, dict) else None


ADAPTER = LlamaCpp()
