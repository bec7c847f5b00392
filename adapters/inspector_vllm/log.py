"""Lines of vLLM's log, in the shapes of every version, and what they say of the running process.

Prompts are logged too, in old versions by default: a line counts only if its message begins as vLLM's own does, right behind the first stamp. Old versions
print API keys among the arguments: each pattern captures one figure or a base name, nothing else.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from inspector.contract import LogLine, LogPattern, LogView
from inspector.reading import Known, Reading, Reason, Unknown, number, positive, ratio, text
from inspector_vllm import causes
from inspector_vllm.numbers import ONE_ENGINE, Numbers, no_numbers

_PROCESS = r"^(?:\(EngineCore(?:_(?:DP)?(?P<engine>\d{1,6}))?(?: rank=\d+)? pid=\d+\)\s+)?"
_STAMP = r"(?>(?:.*?\b(?:DEBUG|INFO|WARNING|ERROR) \d\d-\d\d \d\d:\d\d:\d\d (?:\[[^\]]+\]|\S+\])\s+)?)"
"""All up to the first stamp; no stamp at all where the log is JSON. (Atomic: a stamp inside of a prompt is no second chance.)"""
_BEGIN = "^" + _STAMP
_SIZE = r"[A-Z]+(?: \+ host)? KV cache size: (?P<tokens>[\d,]{1,24}) tokens"
_CONCURRENCY = r"Maximum concurrency for (?P<context>[\d,]{1,24}) tokens per request: (?P<times>\d[\d.]{0,20})x"
_VERSION = r"(?P<version>\d[\w.+-]*)"

PERIOD = 15.0
"""Seconds for which a periodic line tells the present: vLLM writes one every 5 or 10 s, and none while it is idle."""


def _pattern(name: str, needle: str, regex: str, *, begins: bool = False, key: str = "") -> LogPattern:
    return LogPattern(name, needle, re.compile(regex), begins=begins, key=key)


def _argument(name: str, value: str) -> LogPattern:
    """One argument: `args: Namespace(name=value, …)` until 0.8.5, `non-default args: {'name': value, …}` since."""
    return _pattern(f"argument_{name}", "args: ", rf"{_BEGIN}(?:non-default )?args: .*?(?:'{name}': |\b{name}=){value}")


PATTERNS = (
    _pattern("begin", "vLLM API server version", rf"{_BEGIN}vLLM API server version {_VERSION}", begins=True),
    _pattern("begin_plain", "vLLM server version", rf"{_BEGIN}vLLM server version {_VERSION}", begins=True),
    _pattern("begin_banner", "  version ", rf"{_BEGIN}[ ▄█▀]+  version {_VERSION}\s*$", begins=True),
    _argument("max_num_seqs", r"(?P<value>\d{1,18})\b"),
    _argument("max_model_len", r"(?P<value>\d{1,18})\b"),
    _argument("block_size", r"(?P<value>\d{1,18})\b"),
    _argument("served_model_name", r"\[?'(?:[^']*[/\\])?(?P<value>[^'/\\]+)'"),
    _argument("model", r"'(?:[^']*[/\\])?(?P<value>[^'/\\]+)[/\\]?'"),
    _pattern("blocks", " blocks: ", rf"{_PROCESS}{_STAMP}# \w+ blocks: (?P<blocks>\d{{1,18}})(?:, # CPU blocks: (?P<host>\d{{1,18}}))?\s*$", key="engine"),
    _pattern("size", "KV cache size: ", rf"{_PROCESS}{_STAMP}{_SIZE}", key="engine"),
    _pattern("concurrency", "Maximum concurrency for", rf"{_PROCESS}{_STAMP}(?:{_SIZE}, )?{_CONCURRENCY}", key="engine"),
    _pattern("fitted_length", "max_model_len: reduced from", rf"{_BEGIN}Auto-fit max_model_len: reduced from [\d,]+ to (?P<context>[\d,]{{1,24}})"),
    _pattern("length", "Using max model len", rf"{_BEGIN}Using max model len (?P<context>\d{{1,18}})"),
    _pattern(
        "engine_length", "LLM engine (v", rf"{_BEGIN}Initializing an? (?:V\d )?LLM engine \(v[^)]*\) with config: .*?\bmax_seq_len=(?P<context>\d{{1,18}})"
    ),
    _pattern(
        "periodic",
        "Avg prompt throughput: ",
        rf"{_BEGIN}(?:Engine (?P<engine>\d{{3,6}}): )?Avg prompt throughput: [\d.]+ tokens/s, Avg generation throughput: [\d.]+ tokens/s, "
        r"Running: (?P<running>\d{1,18}) reqs?(?:, Swapped: \d+ reqs)?, (?:Waiting|Pending): (?P<waiting>\d{1,18}) reqs(?:, Deferred: \d+ reqs)?"
        r"(?:, KV fetch: [^,]+, [^,]+, [^,]+)?(?:, Preemptions: \d+)?, \w+ KV cache usage: (?P<usage>\d[\d.]{0,8})%",
        key="engine",
    ),
    _pattern(
        "preempted",
        "is preempted by",
        rf"{_BEGIN}Sequence group \S+ is preempted by .*\btotal_num_cumulative_preemption=(?P<total>\d{{1,18}})",
    ),
)


def whole(log: LogView | Unknown, line: LogLine | None, name: str) -> Reading[int]:
    """A whole number above zero out of a line, commas between its thousands taken off."""
    if isinstance(log, Unknown):
        return log
    digits = (line.groups.get(name, "") if line is not None else "").replace(",", "")
    if line is None or not digits:
        return causes.NO_LOG
    return positive(int(digits), log.origin(line), f"{name} in the log") if len(digits) <= 18 else Unknown(Reason.INVALID, f"{name} in the log is out of range")


def argument(log: LogView | Unknown, name: str) -> Reading[int]:
    """An argument that the server printed at its start; one at its default is not printed since 0.9."""
    return whole(log, None if isinstance(log, Unknown) else log.newest(f"argument_{name}"), "value")


def context(log: LogView | Unknown) -> Reading[int]:
    """The longest request: what the engine settled on, then what it was asked for."""
    if isinstance(log, Unknown):
        return log
    for name in ("fitted_length", "concurrency", "length", "engine_length"):
        for line in log.rows(name).values():
            return whole(log, line, "context")
    return argument(log, "max_model_len")


def model(log: LogView | Unknown) -> Reading[str]:
    if isinstance(log, Unknown):
        return log
    line = log.newest("argument_served_model_name") or log.newest("argument_model")
    return causes.NO_LOG if line is None else text(line.groups.get("value"), log.origin(line), "the model's name in the log")


def version(log: LogView | Unknown) -> Reading[str]:
    if isinstance(log, Unknown):
        return log
    line = log.newest("begin") or log.newest("begin_plain") or log.newest("begin_banner")
    return causes.NO_LOG if line is None else text(line.groups.get("version"), log.origin(line), "the version in the log", longest=64)


@dataclass(frozen=True, slots=True)
class KvLog:
    """What the log's start says of one engine's KV cache. `size_tokens` is as printed, V1's null block included."""

    blocks: Reading[int]
    size_tokens: Reading[int]
    context: Reading[int]
    concurrency: Reading[float]
    is_v0: bool = False


def kv_log(log: LogView | Unknown, engine: str) -> KvLog:
    if isinstance(log, Unknown):
        return KvLog(log, log, log, log)
    blocks, size, times = (_row(log, name, engine) for name in ("blocks", "size", "concurrency"))
    host = blocks is not None and "host" in blocks.groups
    return KvLog(whole(log, blocks, "blocks"), whole(log, size, "tokens"), whole(log, times, "context"), _times(log, times), is_v0=host)


def engines(log: LogView | Unknown) -> tuple[str, ...]:
    """The engines that the log names, for a server whose /metrics names none."""
    if isinstance(log, Unknown):
        return ()
    keys = {str(int(key or ONE_ENGINE)) for name in ("size", "blocks", "periodic") for key in log.rows(name)}
    return tuple(sorted(keys, key=int))


def periodic(log: LogView | Unknown, engine: str, now: float, cause: Unknown) -> Numbers:
    """The last periodic line, if it is of the present; `cause` is why /metrics was not to be had."""
    line = None if isinstance(log, Unknown) else _row(log, "periodic", engine)
    if line is None or isinstance(log, Unknown) or not now - line.at <= PERIOD:
        return no_numbers(cause)
    origin = log.origin(line)
    share = _float(line.groups["usage"])
    usage = Unknown(Reason.INVALID, "the usage in the log is not a number") if share is None else ratio(share / 100, origin, "usage in the log")
    running, waiting = (Known(int(line.groups[name]), origin) for name in ("running", "waiting"))
    return replace(no_numbers(cause), running=running, waiting=waiting, usage=usage, rounded_usage=True)


def preemptions(log: LogView | Unknown) -> Unknown | None:
    """V0 warns of the first preemption and of every fiftieth after: a lower bound."""
    line = None if isinstance(log, Unknown) else log.newest("preempted")
    return None if line is None else Unknown(Reason.AMBIGUOUS, causes.LATE, bounds=(int(line.groups["total"]), None))


def _row(log: LogView, name: str, engine: str) -> LogLine | None:
    """A row of the engine; a log that does not part engines speaks of the only one."""
    rows = {str(int(key or ONE_ENGINE)): line for key, line in log.rows(name).items()}
    return rows.get(engine)


def _times(log: LogView, line: LogLine | None) -> Reading[float]:
    if line is None:
        return causes.NO_LOG
    value = _float(line.groups.get("times", ""))
    if value is None or value == 0:
        return Unknown(Reason.INVALID, "the concurrency in the log is not a number")
    return number(value, log.origin(line), "concurrency in the log")


def _float(word: str) -> float | None:
    try:
        return float(word)
    except ValueError:
        return None
