"""mlx_lm.server's launch settings: all of its flags, because its parser takes shortened ones; since when they exist, and their defaults.

No default ever changed while its flag existed (0.22.0 to 0.32.2).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from inspector.contract import Flag, FlagKind, FlagTable, LaunchView
from inspector.reading import Kind, Known, Origin, Reading, Reason, Unknown, positive
from inspector_mlx import causes
from inspector_mlx.version import CONCURRENCY_FLAGS, Release

_LEVELS = frozenset({"DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"})


def _flag(name: str, kind: FlagKind, words: frozenset[str] = frozenset()) -> Flag:
    return Flag(name, kind, ("--" + name.replace("_", "-"),), words=words)


MODEL = _flag("model", FlagKind.NAME)
DRAFT_MODEL = _flag("draft_model", FlagKind.NAME)
DECODE = _flag("decode_concurrency", FlagKind.INTEGER)
PROMPT = _flag("prompt_concurrency", FlagKind.INTEGER)
KV_BITS = _flag("kv_bits", FlagKind.INTEGER)

FLAGS = FlagTable(
    commands=frozenset({"mlx_lm.server", "mlx_lm server"}),
    flags=(
        MODEL,
        DRAFT_MODEL,
        DECODE,
        PROMPT,
        KV_BITS,
        _flag("kv_group_size", FlagKind.INTEGER),
        _flag("quantized_kv_start", FlagKind.INTEGER),
        _flag("prefill_step_size", FlagKind.INTEGER),
        _flag("prompt_cache_size", FlagKind.INTEGER),
        _flag("prompt_cache_bytes", FlagKind.DECIMAL_SIZE),
        _flag("cache_limit_gb", FlagKind.INTEGER),
        _flag("max_tokens", FlagKind.INTEGER),
        _flag("num_draft_tokens", FlagKind.INTEGER),
        _flag("pipeline", FlagKind.SWITCH),
        _flag("log_level", FlagKind.WORD, _LEVELS),
        _flag("port", FlagKind.INTEGER),
        _flag("adapter_path", FlagKind.GIVEN),
        # Not read; here so that a shortened flag is not taken for one of those above.
        *(_flag(name, FlagKind.GIVEN) for name in ("host", "allowed_origins", "chat_template", "temp", "top_p", "top_k", "min_p", "chat_template_args")),
        _flag("trust_remote_code", FlagKind.SWITCH),
        _flag("use_default_chat_template", FlagKind.SWITCH),
    ),
    unique_prefixes=True,
    weights=("model", "draft_model", "adapter_path"),
)

SINCE: Mapping[str, Release] = {
    "decode_concurrency": CONCURRENCY_FLAGS,
    "prompt_concurrency": CONCURRENCY_FLAGS,
    "pipeline": CONCURRENCY_FLAGS,
    "prefill_step_size": (0, 31, 0),
    "prompt_cache_size": (0, 31, 0),
    "prompt_cache_bytes": (0, 31, 0),
    "allowed_origins": (0, 31, 2),
    "kv_bits": (0, 32, 0),
    "kv_group_size": (0, 32, 0),
    "quantized_kv_start": (0, 32, 0),
}
"""The first release that has a flag. A server that runs with one is at least that new."""


@dataclass(frozen=True, slots=True)
class Era:
    """What is known of the version: itself, or the oldest one that the evidence allows (None: none)."""

    release: Release | None
    at_least: Release | None

    def has(self, since: Release) -> bool | None:
        """Whether this version is `since` or newer; None where that is open."""
        if self.release is not None:
            return self.release >= since
        return True if self.at_least is not None and self.at_least >= since else None


def proven_by(view: LaunchView | Unknown) -> Iterator[Release]:
    """Releases that introduced the flags that were given."""
    if not isinstance(view, Unknown):
        yield from (SINCE[name] for name in view.settings if name in SINCE)


def concurrency(view: LaunchView, flag: Flag, default: int, era: Era) -> Reading[int]:
    """One of the two concurrency flags: as set, or its default where the version is known to have it."""
    given = view.get(flag.name)
    if isinstance(given, Unknown):
        return given
    if given is not None:
        return positive(given.value, given.origin, f"{flag.name} in the launch settings")
    if era.has(CONCURRENCY_FLAGS) is None:
        return causes.YOUNG_FLAG
    return Known(default, Origin(Kind.LAUNCH, f"{view.path}, default of {flag.name}", view.at))


def is_given(view: LaunchView, flag: Flag) -> bool | Unknown:
    given = view.get(flag.name)
    if isinstance(given, Unknown) and given.reason is Reason.INVALID:
        return True  # Given, with a value that is not shown.
    return given if isinstance(given, Unknown) else given is not None
