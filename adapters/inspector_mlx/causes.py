"""Why a value of an mlx_lm server is unknown, and what the operator can do about it."""

from __future__ import annotations

from inspector.reading import Reason, Unknown

UNAUTHORIZED = Unknown(Reason.UNAUTHORIZED, "something in front of the server wants a key: set api_key_file for this target")
FOREIGN = "/health does not answer as mlx_lm.server does; another server or a gateway may listen there"
DEAD = "the generation thread died: every request fails until mlx_lm.server is started again; its log tells why"
ONLY_HTTP = "HTTP answers; this version does not tell whether its generation thread lives (0.32.0 and newer do)"
MAYBE_ONLY_HTTP = "HTTP answers; whether that means more is not known, because the version is not: only 0.32.0 and newer tell that their generation thread died"

NO_LAUNCH = Unknown(Reason.NO_SOURCE, "only the launch settings tell: run the inspector on the server's host, set `launch`, or state `facts`")
NOT_STATED = Unknown(Reason.NO_SOURCE, "the operator states nothing")
NO_VERSION = Unknown(Reason.NOT_REPORTED, "the server does not state its version: run the inspector on its host, as its user, or state `facts: {version: …}`")
YOUNG_FLAG = Unknown(Reason.NO_SOURCE, "the default depends on the version of mlx-lm, which is not known: state `facts: {version: …}`, or give the flag")
NOT_ALL_BATCH = "models of this name are served one request at a time if their type is llama4 or deepseek_v41: run the inspector on the server's host"

NO_MODEL = Unknown(Reason.NOT_REPORTED, "/v1/models lists what lies in the server's model cache, not what is loaded")
MODELS_EMPTY = Unknown(Reason.NOT_REPORTED, "/v1/models answered 200 with nothing: the server's model cache folder is missing")
MODEL_PER_REQUEST = Unknown(Reason.NOT_REPORTED, "started without --model: each request names the model that is loaded for it")

NOT_FOLLOWED = "no log is followed"
"""How the host begins where no log is configured; what it says of one that cannot be read is passed on as it is."""
NO_LOG = Unknown(Reason.NO_SOURCE, "only the log tells: set `logs` for this target, and leave --log-level at INFO or DEBUG")
NO_LINE = Unknown(Reason.NOT_REPORTED, "the log has no such line of this server yet: one is written when a request starts, by 0.31.0 and newer")
OLD_LINE = Unknown(Reason.STALE, "the log tells the retained KV cache only when a request starts, and none did lately")
NO_SOCKETS = Unknown(Reason.NO_SOURCE, "only its connections tell: run the inspector on the server's host")
