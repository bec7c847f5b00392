"""The routes that may be asked of an mlx_lm server. It logs each request, so there are few; no GET loads, unloads or touches a model."""

from __future__ import annotations

from inspector.contract import Cadence, Route

HEALTH = Route("/health")
MODELS = Route("/v1/models", every=Cadence(300.0))
"""Each call walks the model cache on the server's disk."""

ROUTES = (HEALTH, MODELS)
