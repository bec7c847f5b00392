"""Launch settings: an engine's flags as a table, and what one source says of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from inspector.reading import Kind, Origin, Reading, Reason, Unknown


class FlagKind(StrEnum):
    INTEGER = "integer"
    NUMBER = "number"
    SIZE = "size"
    WORD = "word"
    SWITCH = "switch"
    GIVEN = "given"
    """Only whether it was given may be known: a path, a key, a name."""
    NAME = "name"
    """A model's path or repository id, of which the last part may be known."""
    DECIMAL_SIZE = "decimal_size"
    """Bytes, with M, G, MB or GB in either case for powers of 1000, as mlx-lm reads them."""


@dataclass(frozen=True, slots=True)
class Flag:
    """One launch setting: its spellings on the command line, those that switch it off, its environment names, and for words the values that may be shown."""

    name: str
    kind: FlagKind
    spellings: tuple[str, ...]
    off: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    env_off: tuple[str, ...] = ()
    words: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class FlagTable:
    """An engine's launch settings. `commands` are base names by which its server is recognized in an argv (a program or `python -m` module);
    `unique_prefixes`: the engine's parser accepts shortened long flags; `dashes`: it reads `_` in flag names as `-`; `weights`: names of the flags whose
    values are a model's files or folder, which the core measures and never shows; `images`: how the names of container images begin whose entry point
    is the server, without registry and organization; `positional`: name of the flag that a first argument without a dash stands for, and overrules."""

    commands: frozenset[str]
    flags: tuple[Flag, ...]
    unique_prefixes: bool = False
    dashes: bool = False
    weights: tuple[str, ...] = ("model",)
    images: tuple[str, ...] = ()
    positional: str = ""


@dataclass(frozen=True, slots=True)
class LaunchView:
    """Launch settings of one source. `settings` holds those that are set: Known, or Unknown where the text does not settle the value.
    `missing` names what could not be read (an environment file, an unresolved variable): then a setting that is not there is unknown, not absent."""

    path: str
    live: bool
    settings: Mapping[str, Reading[Any]]
    at: float
    missing: str = ""

    def get(self, name: str) -> Reading[Any] | None:
        """The setting; None when it is surely not set, so that the engine's default holds."""
        if name in self.settings:
            return self.settings[name]
        if self.missing:
            return Unknown(Reason.NO_SOURCE, f"{self.path}: {self.missing}")
        return None

    @property
    def origin(self) -> Origin:
        return Origin(Kind.LAUNCH, self.path, self.at)
