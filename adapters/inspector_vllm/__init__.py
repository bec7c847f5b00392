"""The adapter for vLLM's OpenAI-compatible server: V0 and V1, every version since 0.4."""

from __future__ import annotations

from collections.abc import Mapping

from inspector.contract import Ask, CacheShape, FlagTable, LogPattern, ModelFile, Observation, PlanSettings, Reply, Route
from inspector.layout import Layout
from inspector.reading import Unknown
from inspector_vllm import flags, log, plan, routes
from inspector_vllm.observe import Recall, observe
from inspector_vllm.payloads import as_object, listed, version
from inspector_vllm.pool import OFFERED


class Vllm:
    """See `inspector.contract.Adapter`."""

    name = "vllm"
    title = "vLLM OpenAI-compatible server"
    interval = 5.0
    routes: tuple[Route, ...] = routes.ROUTES
    flags: FlagTable = flags.FLAGS
    log_patterns: tuple[LogPattern, ...] = log.PATTERNS

    def offers(self, version: str | None) -> frozenset[str]:  # noqa: ARG002 (a counter that a version lacks is unknown, not impossible)
        return OFFERED

    def start(self) -> Recall:
        return Recall()

    def recognize(self, replies: Mapping[str, Reply]) -> bool:
        """By the owner in /v1/models; where a key guards that route, by the odd way in which vLLM guards it and leaves /version open."""
        models = replies.get("/v1/models")
        if models is None:
            return False
        if models.status == 200:
            return listed(models).owner == "vllm"
        told = replies.get("/version")
        guarded = models.status == 401 and as_object(models) == {"error": "Unauthorized"}
        return guarded and told is not None and told.status == 200 and not isinstance(version(told), Unknown)

    async def observe(self, ask: Ask, recall: Recall) -> Observation:
        return await observe(ask, recall)

    def cache_shape(self, model: ModelFile, settings: PlanSettings) -> CacheShape | Unknown:
        return plan.cache_shape(model, settings)

    def cache_bytes(self, model: ModelFile, settings: PlanSettings) -> int | Unknown:
        return plan.cache_bytes(model, settings)

    def plan_layout(self, model: ModelFile, settings: PlanSettings) -> Layout | Unknown:
        return plan.plan_layout(model, settings)


ADAPTER = Vllm()
