"""One poll of an mlx_lm server: what is asked, and what state that means. There are no metrics: most facts come from beside the server."""

from __future__ import annotations

from inspector.contract import Ask, Observation, Reply
from inspector.model import Fault, Pool, State
from inspector.reading import Reading, Reason, Unknown
from inspector_mlx import causes, flags, log, routes, settled
from inspector_mlx.flags import Era
from inspector_mlx.payloads import Health, health, listed_model
from inspector_mlx.version import HEALTH_TELLS

OFFERED = frozenset({"model", "slots", "requests_in_flight", "model_context_tokens", "kv_reclaimable_bytes"})
"""Not offered: a context limit (none is enforced; the model's own length is shown instead), a KV capacity (there is no pool), KV in use and token counts (never
told), requests running and waiting (not told apart), preemptions (nothing preempts)."""


async def observe(ask: Ask) -> Observation:
    answer = await ask.get(routes.HEALTH)
    if isinstance(answer, Unknown):
        state = State.NOT_RECOGNIZED if answer.reason is Reason.INVALID else State.UNREACHABLE
        return Observation(state, answer.detail, faults=(Fault("/health", answer.reason, answer.detail),))
    ended = _without_engine(answer, health(answer))
    if ended is not None:
        return ended
    if log.is_dead(ask.log):
        return Observation(State.UNREACHABLE, causes.DEAD, faults=(Fault("log", Reason.UNREACHABLE, causes.DEAD),))
    return await _serving(ask)


def _without_engine(answer: Reply, said: Health) -> Observation | None:
    """What /health alone settles."""
    match said:
        case Health.DENIED:
            return Observation(State.UNAUTHORIZED, causes.UNAUTHORIZED.detail, faults=(_fault(Reason.UNAUTHORIZED, causes.UNAUTHORIZED.detail),))
        case Health.FOREIGN:
            return Observation(State.NOT_RECOGNIZED, causes.FOREIGN, faults=(_fault(Reason.INVALID, causes.FOREIGN),))
        case Health.DEAD:
            return Observation(State.UNREACHABLE, causes.DEAD, faults=(_fault(Reason.UNREACHABLE, causes.DEAD),))
        case Health.FAILING:
            detail = f"/health answers {answer.status}"
            return Observation(State.UNREACHABLE, detail, faults=(_fault(Reason.UNREACHABLE, detail),))
        case _:
            return None


def _fault(reason: Reason, detail: str) -> Fault:
    return Fault("/health", reason, detail)


async def _serving(ask: Ask) -> Observation:
    version, version_drift = settled.version(ask)
    era = settled.era(ask, version)
    listed = await _listed(ask)
    slots, slots_drift = settled.slots(ask, era)
    model, model_drift = settled.model(ask, listed)
    pool = Pool(
        model=model,
        slots=slots,
        requests_in_flight=_in_flight(ask),
        model_context_tokens=ask.process if isinstance(ask.process, Unknown) else ask.process.model_context,
        kv_reclaimable_bytes=log.retained_bytes(ask.log, ask.now),
    )
    wrong = isinstance(listed, Unknown) and listed.reason in (Reason.INVALID, Reason.TIMEOUT, Reason.UNREACHABLE, Reason.UNAUTHORIZED)
    return Observation(
        State.READY,
        _what_health_means(era),
        version=version,
        pools=(pool,),
        drift=(*version_drift, *slots_drift, *model_drift),
        faults=(Fault("/v1/models", listed.reason, listed.detail),) if wrong and isinstance(listed, Unknown) else (),
    )


async def _listed(ask: Ask) -> Reading[str]:
    """/v1/models costs the server a walk over its model cache: it is asked only where the running process's own settings do not name the model."""
    if not isinstance(ask.launch, Unknown) and not isinstance(ask.launch.get(flags.MODEL.name), Unknown):
        return causes.NO_MODEL
    return listed_model(await ask.get(routes.MODELS))


def _in_flight(ask: Ask) -> Reading[int]:
    """One request is one connection, which ends with it."""
    if isinstance(ask.process, Unknown):
        return causes.NO_SOCKETS if ask.process.reason is Reason.NO_SOURCE else ask.process
    return ask.process.connections


def _what_health_means(era: Era) -> str:
    """What a good /health leaves open."""
    tells = era.has(HEALTH_TELLS)
    return "" if tells else causes.MAYBE_ONLY_HTTP if tells is None else causes.ONLY_HTTP
