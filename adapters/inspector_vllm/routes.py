"""The routes that may be asked of a vLLM server. All of them only read; none touches the engine process, so that none waits behind a prefill."""

from __future__ import annotations

from inspector.contract import Cadence, Route
from inspector_vllm.names import WANTED

SLOWLY = Cadence(60.0)

HEALTH = Route("/health")
VERSION = Route("/version", every=SLOWLY)
MODELS = Route("/v1/models", every=SLOWLY)
METRICS = Route("/metrics")
METRICS_MOUNTED = Route("/metrics/")
"""Where /metrics answers with a redirect, as it does in the first versions."""
METRICS_FILTERED = Route("/metrics/", required=tuple(("name[]", name) for name in WANTED))
"""The same page without what nobody here asks for, if the server honours it; only the path with the slash does."""

ROUTES = (HEALTH, VERSION, MODELS, METRICS, METRICS_MOUNTED, METRICS_FILTERED)
