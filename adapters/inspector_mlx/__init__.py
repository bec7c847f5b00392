"""The adapter for MLX LM's `mlx_lm.server`, every version since 0.22. It has no metrics: launch settings, process, log and memory tell."""

from __future__ import annotations

from collections.abc import Mapping

from inspector.contract import Ask, CacheShape, FlagTable, LogPattern, ModelFile, Observation, PlanSettings, Reply, Route
from inspector.layout import Layout
from inspector.reading import Unknown
from inspector_mlx import flags, log, plan, routes
from inspector_mlx.observe import OFFERED, observe
from inspector_mlx.payloads import Health, health, is_model_list, is_python_server


class Mlx:
    """See `inspector.contract.Adapter`."""

    name = "mlx"
    title = "MLX LM mlx_lm.server"
    interval = 15.0
    """The server logs every request."""
    package = "mlx-lm"
    routes: tuple[Route, ...] = routes.ROUTES
    flags: FlagTable = flags.FLAGS
    log_patterns: tuple[LogPattern, ...] = log.PATTERNS

    def offers(self, version: str | None) -> frozenset[str]:  # noqa: ARG002 (the same for every version)
        return OFFERED

    def start(self) -> None:
        """Nothing is kept: the core keeps slow replies."""

    def recognize(self, replies: Mapping[str, Reply]) -> bool:
        """Python's own HTTP server, with this /health and a list of models that names no owner."""
        said, models = replies.get("/health"), replies.get("/v1/models")
        if said is None or models is None or not is_python_server(said):
            return False
        return health(said) in (Health.ALIVE, Health.DEAD) and is_model_list(models)

    async def observe(self, ask: Ask, recall: None) -> Observation:  # noqa: ARG002
        return await observe(ask)

    def cache_shape(self, model: ModelFile, settings: PlanSettings) -> CacheShape | Unknown:
        return plan.cache_shape(model, settings)

    def cache_bytes(self, model: ModelFile, settings: PlanSettings) -> int | Unknown:
        return plan.cache_bytes(model, settings)

    def plan_layout(self, model: ModelFile, settings: PlanSettings) -> Layout | Unknown:
        return plan.plan_layout(model, settings)


ADAPTER = Mlx()
