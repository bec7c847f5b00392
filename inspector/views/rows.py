"""Single fields and headrooms as text, and unknowns gathered by what is to be done about them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeGuard

from inspector import wording
from inspector.headroom import Headroom
from inspector.judge import Level
from inspector.layout import Span
from inspector.reading import NOT_OFFERED, Known, Reading, Reason, Unknown

RESOURCES = {"kv": "KV cache", "slots": "Slots", "context": "Context of the fullest session", "memory": "Memory of the server, of its ceiling"}


@dataclass(frozen=True, slots=True)
class Row:
    """One field: `text` is the value or `unknown (reason)`; `remedy` what to do about an unknown; `where` source and age."""

    name: str
    help: str
    text: str
    known: bool
    remedy: str
    where: str


@dataclass(frozen=True, slots=True)
class Gauge:
    """Headroom of one resource. `free` is the guaranteed share (None: unknown), `possible` the most that it may be; `level` the verdict on it."""

    name: str
    text: str
    tokens: str
    free: float | None
    remedy: str
    resource: str = ""
    possible: float | None = None
    level: Level = Level.OK


@dataclass(frozen=True, slots=True)
class UnknownGroup:
    """Unknown fields with one remedy. `lines`: (`unknown (reason)` and bounds, names of the fields)."""

    remedy: str
    lines: Sequence[tuple[str, Sequence[str]]]


@dataclass(frozen=True, slots=True)
class Named:
    """Something unknown, a reading or what is computed from some; `pool` only where there are several, `slot` where it is a slot's."""

    name: str
    value: Unknown
    pool: str = ""
    slot: int | None = None


def row(name: str, help_text: str, reading: Reading[object], now: float) -> Row:
    """`now` is Unix seconds."""
    text = wording.told(name, reading)
    if isinstance(reading, Known):
        return Row(name, help_text, text, True, "", f"{reading.origin}, {wording.age(now - reading.origin.at)}")
    return Row(name, help_text, text, False, reading.detail, "")


def gauge(headroom: Headroom, level: Level = Level.OK) -> Gauge:
    ratio, tokens = headroom.ratio, headroom.tokens
    return Gauge(
        name=RESOURCES[headroom.resource],
        text=told_cause(headroom.resource, ratio) if isinstance(ratio, Unknown) else wording.span(ratio, as_share=True),
        tokens=f"{wording.span(tokens)} tokens" if isinstance(tokens, Span) else "",
        free=ratio.guaranteed if isinstance(ratio, Span) else None,
        remedy="" if isinstance(ratio, Span) else remedy(ratio),
        resource=headroom.resource,
        possible=ratio.possible if isinstance(ratio, Span) else None,
        level=level,
    )


def unknown_groups(named: Iterable[Named]) -> list[UnknownGroup]:
    """Unknowns by remedy, in the order in which remedies come up; what several slots or pools lack is named once."""
    groups: dict[str, dict[str, dict[str, list[Named]]]] = {}
    for one in named:
        names = groups.setdefault(remedy(one.value), {}).setdefault(told_cause(one.name, one.value), {})
        names.setdefault(one.name, []).append(one)
    return [UnknownGroup(what, [(told, _placed(names)) for told, names in lines.items()]) for what, lines in groups.items()]


def _placed(names: Mapping[str, Sequence[Named]]) -> list[str]:
    """Names with the place that they share: `busy, used_tokens of slots 0 to 3`."""
    by_place: dict[str, list[str]] = {}
    for name, several in names.items():
        by_place.setdefault(_places(several), []).append(name)
    return [", ".join(of) + (f" of {place}" if place else "") for place, of in by_place.items()]


def _places(several: Sequence[Named]) -> str:
    slots: dict[str, list[int]] = {}
    for one in several:
        slots.setdefault(one.pool, []).extend([] if one.slot is None else [one.slot])
    places = [" of ".join(word for word in (ranges("slot", ids), f"pool {pool}" if pool else "") if word) for pool, ids in slots.items()]
    return ", ".join(place for place in places if place)


def ranges(noun: str, numbers: Sequence[int]) -> str:
    """`slot 2`, `slots 0 to 3, 7`."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    told = ", ".join(f"{low}" if low == high else f"{low} to {high}" for low, high in runs)
    return f"{noun}{'s' if len(numbers) > 1 else ''} {told}" if told else ""


def is_unknown(value: object) -> TypeGuard[Unknown]:
    """Whether it is an unknown that is worth a word: what the engine does not offer is none."""
    return isinstance(value, Unknown) and value != NOT_OFFERED


def told_cause(name: str, unknown: Unknown) -> str:
    """`unknown (reason)` and bounds; of what is computed from another unknown, that one's reason."""
    return wording.told(name, replace(unknown, reason=_root(unknown)[1]))


def remedy(unknown: Unknown) -> str:
    """What to do about an unknown. One that is computed from another has that one's remedy."""
    return _root(unknown)[0]


def _root(unknown: Unknown) -> tuple[str, Reason]:
    """(remedy, reason) of the first cause, which a computed unknown tells at its end."""
    cause, _, reason = unknown.detail.removesuffix(")").rpartition(" (")
    if unknown.reason is Reason.DERIVED_FROM_UNKNOWN and cause and reason in set(Reason):
        return cause, Reason(reason)
    return unknown.detail, unknown.reason
