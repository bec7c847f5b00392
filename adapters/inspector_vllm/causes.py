"""Why a value of a vLLM server is unknown, and what the operator can do about it."""

from __future__ import annotations

from inspector.reading import Reason, Unknown

DEAD = "the engine has died: /health answers 503 and /metrics only repeats its last values"
FOREIGN = "neither /health nor /metrics answers as vLLM does; another server or a gateway may listen there"

UNAUTHORIZED = Unknown(Reason.UNAUTHORIZED, "the server wants an API key: set api_key_file for this target")
ASLEEP = Unknown(Reason.SLEEPING, "the engine is paused or asleep; its gauges stand still until it wakes")

STATS_DISABLED = Unknown(Reason.ENDPOINT_DISABLED, "the server keeps no statistics: start vLLM without --disable-log-stats")
METRICS_NEVER = Unknown(Reason.NO_SOURCE, "`metrics: never` is set for this target")
METRICS_MISSING = Unknown(Reason.NOT_REPORTED, "this server has no /metrics; a gateway in front may hide it")
METRICS_CUT = Unknown(Reason.INVALID, "/metrics answered with a page that is empty or cut off")

NO_LOG = Unknown(Reason.NO_SOURCE, "the log does not state it")
NO_SETTING = Unknown(Reason.NO_SOURCE, "no launch setting states it")
NOT_STATED = Unknown(Reason.NO_SOURCE, "the operator states nothing")
NO_MODEL = Unknown(Reason.NOT_REPORTED, "the server does not name its model")
NO_MODEL_LENGTH = Unknown(Reason.NOT_REPORTED, "/v1/models does not state max_model_len")
NO_SLOTS = Unknown(
    Reason.NO_SOURCE,
    "vLLM tells max_num_seqs only in its log and launch settings: give `logs`, run the inspector on the server's host, or state `facts: {slots: …}`",
)

NO_BLOCKS = Unknown(Reason.NOT_REPORTED, "the server does not show its KV cache's size: give `logs`, or state `facts: {kv_capacity_tokens: …}`")
NO_BLOCK_SIZE = Unknown(Reason.NOT_REPORTED, "the server does not show its block size")
UNEQUAL_ENGINES = Unknown(Reason.AMBIGUOUS, "the server adds up the blocks of all its engines, and they do not have the same number each")
SEVERAL_ROWS = Unknown(Reason.AMBIGUOUS, "the server shows several cache configurations for one engine; an earlier process may have left one behind")

HYBRID = (
    "the KV cache has several groups (sliding windows, state layers or context parallelism): how many tokens its blocks hold depends on the requests; "
    "bounds are those of the longest and of the shortest"
)
GROUPS_UNKNOWN = "this version does not tell whether all blocks hold tokens alike: give `logs`, or state `facts: {kv_capacity_tokens: …}`"

UNEVEN_USE = Unknown(Reason.INVALID, "the usage is no whole number of the blocks that the server shows")
ROUNDED_USE = Unknown(Reason.NOT_REPORTED, "the log gives the usage in rounded percent")
CROWDED = Unknown(Reason.AMBIGUOUS, "there are fewer KV cache blocks than requests that may run: some would be preempted if all ran at once", bounds=(0, None))
OLD_UNIT = "this version may count blocks instead of tokens: use vLLM 0.9.2 or newer"
SEVERAL_MODELS = "the engine has a row for each of several models, and they may overlap"
LATE = "not counted on /metrics; the log names at least so many"
