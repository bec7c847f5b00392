"""What llama.cpp's own /metrics says. A family that a build does not have is `not_reported`; nothing stands in for it."""

from __future__ import annotations

from dataclasses import dataclass

from inspector.contract import Reply
from inspector.exposition import Scanner
from inspector.reading import Known, Reading, Unknown, count, ratio

FAMILIES = {
    "processing": "llamacpp:requests_processing",
    "deferred": "llamacpp:requests_deferred",
    "prompt": "llamacpp:prompt_tokens_total",
    "cached": "llamacpp:prompt_tokens_cached_total",  # since August 2026
    "generated": "llamacpp:tokens_predicted_total",
    "decodes": "llamacpp:n_decode_total",
    "longest": "llamacpp:n_tokens_max",
    "kv_tokens": "llamacpp:kv_cache_tokens",  # until May 2025, cached tokens included
}
KV_RATIO = "llamacpp:kv_cache_usage_ratio"  # until May 2025, cached tokens included


@dataclass(frozen=True, slots=True)
class Numbers:
    """One page of /metrics, counts and one share."""

    processing: Reading[int]
    deferred: Reading[int]
    prompt: Reading[int]
    cached: Reading[int]
    generated: Reading[int]
    decodes: Reading[int]
    longest: Reading[int]
    kv_tokens: Reading[int]
    kv_ratio: Reading[float]

    @property
    def counters(self) -> dict[str, float]:
        """Those that never fall while the process lives; sleeping and waking keeps them (seen on b10068, b10434 and b11549)."""
        never_fall = {"prompt": self.prompt, "generated": self.generated, "decodes": self.decodes, "longest": self.longest}
        return {FAMILIES[name]: float(reading.value) for name, reading in never_fall.items() if isinstance(reading, Known)}


def scanner() -> Scanner:
    return Scanner([*FAMILIES.values(), KV_RATIO])


def numbers(reply: Reply, scan: Scanner) -> Numbers:
    page = scan.scan(reply.body)

    def whole(name: str) -> Reading[int]:
        reading = page.one(FAMILIES[name], reply.origin)
        return reading if isinstance(reading, Unknown) else count(reading.value, reply.origin, FAMILIES[name])

    share = page.one(KV_RATIO, reply.origin)
    kv_ratio = share if isinstance(share, Unknown) else ratio(share.value, reply.origin, KV_RATIO)
    return Numbers(**{name: whole(name) for name in FAMILIES}, kv_ratio=kv_ratio)


def no_numbers(cause: Unknown) -> Numbers:
    return Numbers(cause, cause, cause, cause, cause, cause, cause, cause, cause)
