"""Slots and model out of what each source says, in order of trust, and where they disagree. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from inspector.contract import Ask, LaunchView
from inspector.model import Drift
from inspector.reading import Kind, Known, Origin, Reading, Reason, Unknown, first_known, positive, text
from inspector_mlx import causes, flags, log
from inspector_mlx.flags import Era
from inspector_mlx.version import BATCHING, CONCURRENCY_FLAGS, at_least, release

T = TypeVar("T")

POOL = "0"

DECODE_DEFAULT = 32
PROMPT_DEFAULT = 8

SERIAL_TYPES = frozenset({"llama4", "deepseek_v41", "deepseek_v41_text"})
"""Models whose KV caches cannot be put together into a batch."""

SERIAL_NAMES = ("llama-4", "llama4", "deepseek-v4.1", "deepseek-v41")
"""What their names hold, for where only a name is known."""


def era(ask: Ask, version: Reading[str]) -> Era:
    """What is known of the version. A launch file may be of another server than the one that runs, so it proves nothing beyond itself."""
    return Era(release(version), at_least([*flags.proven_by(ask.launch), *log.proven_by(ask.log)]))


def slots(ask: Ask, known: Era) -> tuple[Reading[int], tuple[Drift, ...]]:
    """Requests that are decoded together."""
    return _agree(
        "slots",
        [
            ("launch", _view_slots(ask.launch, known, _model_type(ask))),
            ("operator", _stated_number(ask.stated, "slots")),
            ("launch file", _view_slots(ask.launch_file, known)),
        ],
    )


def model(ask: Ask, listed: Reading[str]) -> tuple[Reading[str], tuple[Drift, ...]]:
    stated = ask.stated.get("model")
    return _agree(
        "model",
        [
            ("http", listed),
            ("launch", _view_model(ask.launch)),
            ("operator", causes.NOT_STATED if stated is None else _base_name(stated)),
            ("launch file", _view_model(ask.launch_file)),
        ],
    )


def version(ask: Ask) -> tuple[Reading[str], tuple[Drift, ...]]:
    """The installed package's, else the operator's."""
    stated = ask.stated.get("version")
    return _agree(
        "version",
        [
            ("process", ask.process if isinstance(ask.process, Unknown) else ask.process.package_version),
            ("operator", causes.NO_VERSION if stated is None else text(stated.value, stated.origin, "version in the configuration")),
        ],
    )


def _model_type(ask: Ask) -> str | None:
    """The loaded model's type, None where it is not known."""
    return None if isinstance(ask.process, Unknown) or isinstance(ask.process.model_type, Unknown) else ask.process.model_type.value


def _view_slots(view: LaunchView | Unknown, known: Era, model_type: str | None = None) -> Reading[int]:
    if isinstance(view, Unknown):
        return view
    known = Era(known.release, at_least(r for r in (known.at_least, *flags.proven_by(view)) if r is not None))
    serial = [flags.is_given(view, flag) for flag in (flags.DRAFT_MODEL, flags.KV_BITS)]
    if model_type in SERIAL_TYPES or any(given is True for given in serial):
        return Known(1, view.origin)
    for given in serial:
        if isinstance(given, Unknown):
            return given
    batch = _batch(view, known)
    if model_type is None and isinstance(batch, Known) and batch.value > 1 and _may_be_serial(view):
        return Unknown(Reason.AMBIGUOUS, causes.NOT_ALL_BATCH, bounds=(1, batch.value))
    return batch


def _may_be_serial(view: LaunchView) -> bool:
    name = view.get(flags.MODEL.name)
    return isinstance(name, Known) and any(word in name.value.lower() for word in SERIAL_NAMES)


def _batch(view: LaunchView, known: Era) -> Reading[int]:
    """The larger of the two concurrencies, whatever the smaller says."""
    if known.has(BATCHING) is False:
        return Known(1, Origin(Kind.LAUNCH, f"{view.path}, a version without batching", view.at))
    if known.has(CONCURRENCY_FLAGS) is False:
        return Known(DECODE_DEFAULT, Origin(Kind.LAUNCH, f"{view.path}, fixed in this version", view.at))
    decode = flags.concurrency(view, flags.DECODE, DECODE_DEFAULT, known)
    prompt = flags.concurrency(view, flags.PROMPT, PROMPT_DEFAULT, known)
    if isinstance(decode, Unknown):
        return decode
    return prompt if isinstance(prompt, Unknown) or prompt.value > decode.value else decode


def _view_model(view: LaunchView | Unknown) -> Reading[str]:
    if isinstance(view, Unknown):
        return view
    given = view.get(flags.MODEL.name)
    return causes.MODEL_PER_REQUEST if given is None else given


def _stated_number(stated: Mapping[str, Known[Any]], name: str) -> Reading[int]:
    known = stated.get(name)
    return causes.NOT_STATED if known is None else positive(known.value, known.origin, f"{name} in the configuration")


def _base_name(stated: Known[Any]) -> Reading[str]:
    """A name or path that the operator states, down to its last part."""
    last = stated.value.rstrip("/").rpartition("/")[2] if isinstance(stated.value, str) else stated.value
    return text(last, stated.origin, "model in the configuration")


def _agree(field: str, answers: Sequence[tuple[str, Reading[T]]]) -> tuple[Reading[T], tuple[Drift, ...]]:
    """The first known answer, and every other one that differs."""
    used = first_known(*(reading for _, reading in answers))
    if isinstance(used, Unknown):
        return used, ()
    by = next(source for source, reading in answers if reading is used)
    others = [(source, reading) for source, reading in answers if isinstance(reading, Known) and reading.value != used.value]
    return used, tuple(Drift(POOL, field, by, source, f"{used.origin} says {used.value}, {r.origin} says {r.value}") for source, r in others)
