"""What the readers of launch files share: commands, text that could not be settled, refusals, and a bound on growth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from inspector.reading import Reason

UNRESOLVED = "${}"
"""Stands in argv and environment for text that the file alone does not settle. It looks like a variable to `settings`, and to a shell inside a command."""

MAYBE_WORDS = "${?}"
"""Likewise, for text that may become several words, or none."""

MOST_TEXT = 1024 * 1024
"""Characters that the variables of one file may grow to as they are put in."""


class UnreadableError(Exception):
    """A launch file that cannot be used: why, and what to do. Neither repeats the file's text."""

    def __init__(self, message: str, remedy: str, reason: Reason = Reason.INVALID) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Command:
    """One command that a file starts. Its words hold keys and paths, so they are in no repr.

    `names`: what the file calls it. `image`: the container image whose own entry point gets `argv` as arguments; None where argv begins with the program.
    `missing`: what was not read, though it bears on the command.
    """

    argv: tuple[str, ...] = field(repr=False)
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)
    names: frozenset[str] = frozenset()
    image: str | None = field(default=None, repr=False)
    missing: tuple[str, ...] = ()


class Growth:
    """Counts the text that variables are turned into: a few lines that double each other would fill our memory."""

    def __init__(self) -> None:
        self._left = MOST_TEXT

    def spend(self, text: str) -> str:
        """The text itself. Raises UnreadableError when there was too much of it."""
        self._left -= len(text)
        if self._left < 0:
            raise UnreadableError("grows too large once its variables are put in", "name the file that starts the server, or give `launch: {argv: […]}`")
        return text


def unclosed(what: str) -> UnreadableError:
    return UnreadableError(f"has {what} that is not closed", "look for a missing quote or bracket")
