"""Reading /metrics: the small filtered page where the server proves to honour the filter, else the whole one.

The whole page of a generation's first poll tells which series there are. The filtered page is believed as long as it has all of them and nothing that was not
asked for; else the whole page is read, and the filter is tried again later. Now and then the whole page is read anyway.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from inspector.contract import Ask, Reply
from inspector.exposition import Scanner
from inspector.reading import Reason, Unknown
from inspector_vllm import causes, routes
from inspector_vllm.names import WANTED
from inspector_vllm.numbers import Metrics, metrics_of
from inspector_vllm.payloads import refusal

RECHECK = 60
"""Polls after which the whole page is read once more, or the filter is tried once more."""

UNASKED = b"_bucket{"
"""Histograms are most of the whole page and not asked for."""


@dataclass(slots=True)
class PageMemory:
    """Of one generation. `families`: what the last whole page had; `filtered_left` and `whole_left`: polls for which the one or the other page is read."""

    scanner: Scanner = field(default_factory=lambda: Scanner(WANTED))
    families: frozenset[tuple[str, str]] = frozenset()
    filtered_left: int = 0
    whole_left: int = 0


async def read_metrics(ask: Ask, memory: PageMemory) -> Metrics | Unknown:
    """The page, or why there is none."""
    if not ask.may_scrape:
        return causes.METRICS_NEVER
    if memory.families and memory.filtered_left > 0:
        reply = await ask.get(routes.METRICS_FILTERED)
        if isinstance(reply, Unknown) and reply.reason in (Reason.UNREACHABLE, Reason.TIMEOUT):
            return reply
        metrics = _parsed(reply, memory)
        if isinstance(metrics, Metrics) and isinstance(reply, Reply) and metrics.families >= memory.families and UNASKED not in reply.body:
            memory.filtered_left -= 1
            return metrics
        memory.filtered_left, memory.whole_left = 0, RECHECK
    return await _read_whole(ask, memory)


async def _read_whole(ask: Ask, memory: PageMemory) -> Metrics | Unknown:
    reply = await ask.get(routes.METRICS)
    if isinstance(reply, Reply) and reply.status in (301, 302, 307, 308):
        reply = await ask.get(routes.METRICS_MOUNTED)
    metrics = _parsed(reply, memory)
    memory.families = metrics.families if isinstance(metrics, Metrics) and metrics.has_statistics else frozenset()
    memory.whole_left = max(0, memory.whole_left - 1)
    memory.filtered_left = RECHECK if memory.whole_left == 0 else 0
    return metrics


def _parsed(reply: Reply | Unknown, memory: PageMemory) -> Metrics | Unknown:
    cause = refusal(reply, causes.METRICS_MISSING)
    if cause is not None or isinstance(reply, Unknown):
        return cause or causes.METRICS_MISSING
    if not reply.body.endswith(b"\n") or b"\x00" in reply.body:
        return causes.METRICS_CUT
    return metrics_of(memory.scanner.scan(reply.body), reply.origin, has_statistics=b"\nvllm:" in b"\n" + reply.body)
