"""Why a value of a llama.cpp server is unknown, and what the operator can do about it."""

from __future__ import annotations

from inspector.reading import Reason, Unknown

LOADING = Unknown(Reason.LOADING, "the model is being loaded")
SLEEPING = Unknown(Reason.SLEEPING, "the model sleeps; its KV cache was given up")
UNAUTHORIZED = Unknown(Reason.UNAUTHORIZED, "the server wants an API key: set api_key_file for this target")

METRICS_DISABLED = Unknown(Reason.ENDPOINT_DISABLED, "start llama-server with --metrics")
METRICS_NEVER = Unknown(Reason.NO_SOURCE, "`metrics: never` is set for this target")
METRICS_WOULD_WAKE = Unknown(
    Reason.WOULD_WAKE,
    "reading /metrics may keep this build awake or wake it: use build b10566 or newer, start it without --sleep-idle-seconds, or set may_wake: true",
)
SLOTS_DISABLED = Unknown(Reason.ENDPOINT_DISABLED, "start llama-server without --no-slots (builds of October 2024 to August 2025: with --slots)")
SLOTS_WOULD_WAKE = Unknown(
    Reason.WOULD_WAKE,
    "reading /slots may keep an idle model awake or wake it: start llama-server without --sleep-idle-seconds (readable at once on this host), "
    "or set may_wake: true",
)
SLEEP_UNKNOWN = Unknown(Reason.WOULD_WAKE, "/props does not say whether the model sleeps, so nothing more is asked; set may_wake: true to ask all the same")

IN_PREFILL = Unknown(Reason.NOT_REPORTED, "the server does not tell how much of a prompt is still to come")
NO_LIMIT = Unknown(Reason.NOT_REPORTED, "the request has no output limit: it may grow to the slot's context")
NO_TOKEN_COUNT = Unknown(Reason.NOT_REPORTED, "this build's /slots has no token counts: use build b9538 or newer")
UNTOUCHED = Unknown(Reason.NOT_REPORTED, "no slot has served a request yet, so the build does not show whether it counts tokens")

LAYOUT = Unknown(
    Reason.AMBIGUOUS,
    "HTTP does not tell whether the slots share their KV cache: give `logs`, run the inspector on the server's host, or state `facts: {kv_unified: …}`",
)
POOL_SIZE = Unknown(
    Reason.AMBIGUOUS,
    "the size of the shared KV cache is not stated: give `logs`, run the inspector on the server's host, or state `facts: {kv_capacity_tokens: …}`",
)
AUTO_OR_SPLIT = Unknown(Reason.AMBIGUOUS, "--no-kv-unified without -np is read differently by different builds: give `logs`, or set -np")
AUTO_SLOTS = Unknown(Reason.AMBIGUOUS, "without -np the build decides whether slots share their KV cache")

NOT_FOLLOWED = "no log is followed"
"""How the host begins where no log is configured; what it says of one that cannot be read is passed on as it is."""
NO_LOG = Unknown(Reason.NO_SOURCE, "only the log tells: set `logs` for this target")
NO_LOG_OF_BYTES = Unknown(
    Reason.NO_SOURCE, "only the log tells: set `logs` for this target, and start llama-server with -lv 4 (builds before b9538 need no -lv)"
)
NO_BYTES = Unknown(Reason.NO_SOURCE, "the followed log does not state it: start llama-server with -lv 4, and let the inspector read the log from that start on")
OTHER_LOG = Unknown(Reason.NO_SOURCE, "the followed log belongs to another server")
ROUTER_LOG = Unknown(Reason.NO_SOURCE, "a router's log does not part its models")
NO_SETTING = Unknown(Reason.NO_SOURCE, "no launch setting states it")
NOT_STATED = Unknown(Reason.NO_SOURCE, "the operator states nothing")
NO_MODEL = Unknown(Reason.NOT_REPORTED, "the server does not name its model")
