"""How many sessions against how many tokens: the frontier of what a server would hold, from a model's file. Pure, over an adapter's `Plans`.

What a context setting means differs between engines: all slots' tokens, one request's, or nothing. So it is searched for: the layout that the adapter
gives for a setting tells what each session then has, which grows with the setting, as do the bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from inspector.budget import Shape, capacity
from inspector.contract import ModelFile, Plans, PlanSettings
from inspector.layout import Layout
from inspector.reading import Reason, Unknown

LONGEST = 2**24
"""Tokens of a session, where the model's file tells no context length."""
MOST_SESSIONS = 4096
ROUND = 256
"""Tokens: people write context settings in multiples of it."""

NO_WEIGHTS = Unknown(Reason.NO_SOURCE, "the size of the model's weights is not known; state it with --weights")


@dataclass(frozen=True, slots=True)
class Point:
    """So many sessions of so many tokens each. `setting`: the engine's context setting for it, None where it has none that matters; `kv_bytes`: what the
    engine sets aside, None where its cache grows with its sessions; `limited_by`: what keeps the tokens from being more."""

    sessions: int
    tokens: int
    setting: int | None
    kv_bytes: int | None
    limited_by: str


@dataclass(frozen=True, slots=True)
class Planner:
    """One model under one engine. `settings` says what is fixed: memory for weights and cache together, cache types, whether slots share.

    `ceiling`: tokens that a session may have at most, the length that the model was made for."""

    plans: Plans
    model: ModelFile
    settings: PlanSettings
    ceiling: int = LONGEST

    def largest_context(self, sessions: int) -> Point | Unknown:
        """The most tokens that each of so many sessions can have; 0 tokens where so many do not fit at all."""
        most = self._most_setting(sessions)
        if isinstance(most, Unknown):
            return most
        if most == 0:
            return Point(sessions, 0, None, None, "memory")
        each = self._tokens_each(most, sessions)
        if isinstance(each, Unknown):
            return each
        return self._point(sessions, each, most)

    def most_sessions(self, tokens: int) -> int | Unknown:
        """How many sessions of so many tokens each fit."""
        if tokens > self.ceiling:
            return 0
        one = self.largest_context(1)
        if isinstance(one, Unknown):
            return one

        def fits(sessions: int) -> bool:
            point = self.largest_context(sessions)
            return isinstance(point, Point) and point.tokens >= tokens

        return last(fits, 1, MOST_SESSIONS)

    def needed(self, sessions: int, tokens: int) -> Point | Unknown:
        """What so many sessions of so many tokens take, whatever memory there is."""
        free = replace(self, settings=replace(self.settings, memory_bytes=None))
        setting = free._smallest_setting(sessions, tokens)
        if isinstance(setting, Unknown):
            shape = self.plans.cache_shape(self.model, self.settings)
            return shape if isinstance(shape, Unknown) else Point(sessions, tokens, None, sessions * shape.of(tokens), "")
        return Point(sessions, tokens, setting, free._kv_bytes(1 if setting is None else setting, sessions), "")

    def table(self, counts: Iterable[int]) -> list[Point | Unknown]:
        """The largest context for each number of sessions."""
        return [self.largest_context(count) for count in counts]

    def _point(self, sessions: int, each: int, most: int) -> Point:
        setting = self._smallest_setting(sessions, each, most) if each else None
        setting = None if isinstance(setting, Unknown) else setting
        return Point(sessions, each, setting, self._kv_bytes(setting or most, sessions), self._limit(sessions, each, most))

    def _limit(self, sessions: int, each: int, most: int) -> str:
        """What keeps so many sessions from having more tokens each; slots where the engine runs fewer at once, whatever their length."""
        layout = self._layout(most, sessions)
        if not isinstance(layout, Unknown) and layout.slots is not None and layout.slots < sessions:
            return "slots"
        return "context" if each >= self.ceiling else "memory"

    def _at(self, setting: int, sessions: int) -> PlanSettings:
        return replace(self.settings, context_tokens=setting, slots=sessions)

    def _layout(self, setting: int, sessions: int) -> Layout | Unknown:
        return self.plans.plan_layout(self.model, self._at(setting, sessions))

    def _kv_bytes(self, setting: int, sessions: int) -> int | None:
        found = self.plans.cache_bytes(self.model, self._at(setting, sessions))
        return None if isinstance(found, Unknown) else found

    def _most_setting(self, sessions: int) -> int | Unknown:
        """The largest context setting that the memory allows."""
        highest = sessions * self.ceiling
        if self.settings.memory_bytes is None:
            return highest
        first = self.plans.cache_bytes(self.model, self._at(1, sessions))
        if isinstance(first, Unknown):
            return highest if first.reason is Reason.NOT_OFFERED else first  # One that grows is bound by its layout.
        if self.model.weights_bytes is None:
            return NO_WEIGHTS
        room = self.settings.memory_bytes - self.model.weights_bytes

        def fits(setting: int) -> bool:
            needed = self._kv_bytes(setting, sessions)
            return needed is not None and needed <= room

        return last(fits, 1, highest)

    def _tokens_each(self, setting: int, sessions: int) -> int | Unknown:
        layout = self._layout(setting, sessions)
        if isinstance(layout, Unknown):
            return layout
        if capacity(layout, Shape(1, 0)) is None:
            return Unknown(Reason.NO_SOURCE, "the engine's layout for these settings has no size")
        return last(lambda tokens: _holds(layout, sessions, tokens), 1, self.ceiling)

    def _smallest_setting(self, sessions: int, tokens: int, highest: int | None = None) -> int | Unknown | None:
        """The smallest context setting that gives each of the sessions so many tokens; None where any does."""
        highest = highest or sessions * self.ceiling
        top, bottom = self._layout(highest, sessions), self._layout(1, sessions)
        if isinstance(top, Unknown):
            return top
        if not isinstance(bottom, Unknown) and _holds(bottom, sessions, tokens):
            return None

        def too_small(setting: int) -> bool:
            layout = self._layout(setting, sessions)
            return isinstance(layout, Unknown) or not _holds(layout, sessions, tokens)

        return self._round(last(too_small, 1, highest) + 1, sessions, tokens)

    def _round(self, setting: int, sessions: int, tokens: int) -> int:
        """A rounder setting where it costs nothing. One that is the session's own tokens says what it means already."""
        rounder = -(-setting // ROUND) * ROUND
        costs = self._kv_bytes(rounder, sessions) != self._kv_bytes(setting, sessions)
        return setting if costs or setting == tokens else rounder


def last(holds: Callable[[int], bool], low: int, high: int) -> int:
    """The last number of a range for which something holds that holds up to some number and not beyond; `low` - 1 where it never does."""
    if holds(high):
        return high
    good, bad = low - 1, high
    while bad - good > 1:
        middle = (good + bad) // 2
        if holds(middle):
            good = middle
        else:
            bad = middle
    return good


def _holds(layout: Layout, sessions: int, tokens: int) -> bool:
    fit = capacity(layout, Shape(tokens, 0))
    return fit is not None and fit.sessions >= sessions
