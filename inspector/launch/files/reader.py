"""A launch file -> the settings of one server. Whatever is wrong with the file is data, never an exception."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from inspector.contract import FlagTable, LaunchView
from inspector.launch.arguments import settings
from inspector.launch.files.command import UNRESOLVED, Command, UnreadableError
from inspector.launch.files.files import Files
from inspector.launch.files.kinds import commands_in
from inspector.launch.files.server import servers
from inspector.reading import Reason, Unknown

OTHERWISE = "or give the command line with `launch: {argv: […]}`"
OTHER_VALUE = "?"
OWN_ENTRY_POINT = "what the image's own entry point adds is not known"


class LaunchFileReader:
    """One target's launch file, read again only when it, a drop-in or an environment file has changed. May block for some milliseconds."""

    def __init__(self, path: Path, pick: str | None = None, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._pick = pick
        self._clock = clock
        self._table: FlagTable | None = None
        self._files = Files()
        self._view: LaunchView | Unknown | None = None

    def view(self, table: FlagTable) -> LaunchView | Unknown:
        """The settings of the file's server of this engine."""
        if self._view is None or self._table is not table or self._files.changed():
            self._table, self._files = table, Files()
            self._view = read_launch_file(self._path, self._pick, table, at=self._clock(), files=self._files)
        return self._view


def read_launch_file(path: Path, pick: str | None, table: FlagTable, *, at: float, files: Files | None = None) -> LaunchView | Unknown:
    """The settings of the engine's server that a file starts. `pick` names a service, container or model; `at` is Unix seconds.

    Unknown: `no_source` without such a server, `ambiguous` with several, `invalid` for a file that is broken."""
    try:
        command = _chosen(commands_in(path, files or Files()), pick, table)
    except UnreadableError as error:
        return Unknown(error.reason, f"{path.name}: {error.message}; {error.remedy}")
    names = {name for flag in table.flags for name in (*flag.env, *flag.env_off)}
    environ = {name: value for name, value in command.environ.items() if name in names}
    view = settings(_without_other_values(command.argv, table), environ, table, path=path.name, live=False, at=at)
    return replace(view, missing="; ".join(dict.fromkeys(part for part in (view.missing, *command.missing) if part)))


def _without_other_values(argv: Sequence[str], table: FlagTable) -> list[str]:
    """An argv in which one unresolved word behind an option that is not in the table is that option's value, and no flag: often a key."""
    spellings = [text for flag in table.flags for text in (*flag.spellings, *flag.off)]
    kept = list(argv[:1])
    for before, word in pairwise(argv):
        option = word if word.startswith("-") else before
        belongs = UNRESOLVED in word and option.startswith("-") and ("=" in option) is (option is word) and not _may_be(option, spellings, table)
        kept.append(OTHER_VALUE if belongs else word)
    return kept


def _may_be(option: str, spellings: Sequence[str], table: FlagTable) -> bool:
    option = option.partition("=")[0]
    option = option.replace("_", "-") if table.dashes and option.startswith("--") else option
    return any(text.startswith(option) if table.unique_prefixes else text == option for text in spellings)


def _chosen(commands: Iterator[Command], pick: str | None, table: FlagTable) -> Command:
    """The one server of the engine. Raises UnreadableError."""
    picked = _Picked(pick)
    found: list[Command] = []
    for server in (server for command in commands if picked.takes(command) for server in servers(command, table)):
        if server not in found:
            found.append(server)
        if len(found) > 1:
            break
    if len(found) == 1:
        return found[0]
    if found:
        choose = "name another with `pick`" if pick is not None else "name one with `pick`"
        raise UnreadableError("starts several servers of this engine", f"{choose}, {OTHERWISE}", Reason.AMBIGUOUS)
    if pick is not None and picked.last is None:
        raise UnreadableError("has nothing of the name that `pick` gives", "name a service, container, program or model of the file", Reason.NO_SOURCE)
    if picked.last is not None and picked.last.image is not None and picked.last.argv[:1] and picked.last.argv[0].startswith("-"):
        # The operator says what runs in this image; it may add to its arguments.
        return replace(picked.last, missing=(*picked.last.missing, OWN_ENTRY_POINT))
    raise UnreadableError("does not start this engine's server by a command that is known", f"name the script or file that does, {OTHERWISE}", Reason.NO_SOURCE)


class _Picked:
    """Passes the commands that `pick` names, all without one; `last` is the last that it named."""

    def __init__(self, pick: str | None) -> None:
        self._pick = pick
        self.last: Command | None = None

    def takes(self, command: Command) -> bool:
        if self._pick is None:
            return True
        if self._pick not in command.names:
            return False
        self.last = command
        return True
