"""Planning from a model's file: what an adapter can tell before any server runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from inspector.layout import Layout
from inspector.reading import Unknown


@dataclass(frozen=True, slots=True)
class ModelFile:
    """What a model's own file says of it: `kind` "gguf" (metadata keys as in the file) or "config" (a Hugging Face config.json). Only plain data."""

    kind: str
    architecture: str
    values: Mapping[str, Any]
    weights_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class PlanSettings:
    """How a server would be started. None: as the engine does it by default, where that is known. Sizes in bytes, contexts in tokens."""

    context_tokens: int | None = None
    slots: int | None = None
    unified: bool | None = None
    cache_type_k: str | None = None
    cache_type_v: str | None = None
    memory_bytes: int | None = None
    more: Mapping[str, int] = field(default_factory=dict)
    """Settings of one engine, by its flag's name: `ubatch_size`, `block_size`, `prefill_step_size`."""


@dataclass(frozen=True, slots=True)
class CacheShape:
    """Bytes of one session's KV cache: `token_bytes` for each token in layers that keep all, `window_bytes` for each token in layers that keep the last
    `window_tokens` of them, and `session_bytes` whatever its length."""

    token_bytes: int
    window_bytes: int = 0
    window_tokens: int = 0
    session_bytes: int = 0

    def of(self, tokens: int) -> int:
        """Bytes that a session of so many tokens holds."""
        return self.token_bytes * tokens + self.window_bytes * min(tokens, self.window_tokens) + self.session_bytes


@runtime_checkable
class Plans(Protocol):
    """Tells from a model's file what its KV cache takes. An architecture that was not proved against the engine is Unknown, by name."""

    def cache_shape(self, model: ModelFile, settings: PlanSettings) -> CacheShape | Unknown: ...

    def cache_bytes(self, model: ModelFile, settings: PlanSettings) -> int | Unknown:
        """What the engine sets aside for the KV cache when it starts with these settings; Unknown where it grows with its sessions."""

    def plan_layout(self, model: ModelFile, settings: PlanSettings) -> Layout | Unknown:
        """The layout that a server with these settings would have."""
