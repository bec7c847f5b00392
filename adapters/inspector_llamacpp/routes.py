"""The routes that may be asked of a llama.cpp server. A router gets the ones with `autoload=false`, so that looking at a model never loads it."""

from __future__ import annotations

from inspector.contract import Cadence, Deadline, Route

_NO_LOAD = (("autoload", "false"),)
_MODEL = frozenset({"model"})

HEALTH = Route("/health")
PROPS = Route("/props")
V1_MODELS = Route("/v1/models", every=Cadence(60.0))
METRICS = Route("/metrics", deadline=Deadline.MAY_BLOCK)
SLOTS = Route("/slots", deadline=Deadline.MAY_BLOCK)

MODELS = Route("/models")
MODEL_PROPS = Route("/props", required=_NO_LOAD, allowed=_MODEL)
MODEL_METRICS = Route("/metrics", required=_NO_LOAD, allowed=_MODEL, deadline=Deadline.MAY_BLOCK)
MODEL_SLOTS = Route("/slots", required=_NO_LOAD, allowed=_MODEL, deadline=Deadline.MAY_BLOCK)

ROUTES = (HEALTH, PROPS, V1_MODELS, METRICS, SLOTS, MODELS, MODEL_PROPS, MODEL_METRICS, MODEL_SLOTS)
