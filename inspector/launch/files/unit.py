"""systemd services and quadlets, with their drop-ins and environment files -> the command."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from inspector.launch.files.command import UNRESOLVED, Command, Growth, UnreadableError
from inspector.launch.files.environment_file import Dialect, environment
from inspector.launch.files.files import Files
from inspector.launch.files.unit_text import Unit, assignments, expanded, words

PREFIX = re.compile(r"[-@:+!|]*")
UNIT_FOLDERS = tuple(Path(folder, "systemd/system") for folder in ("/etc", "/run", "/usr/local/lib", "/usr/lib", "/lib"))
"""Where the system manager looks for units and drop-ins, the strongest first."""


def service_commands(text: str, path: Path, files: Files) -> Iterator[Command]:
    """The commands of a service unit. Raises UnreadableError."""
    unit = _unit(text, path, files)
    lines = unit.all("Service", "ExecStart")
    if not lines:
        raise UnreadableError("has no ExecStart in a [Service] section", "name the unit that starts the server")
    environ, missing = _service_environment(unit, files)
    growth = Growth()
    for line in lines:
        prefix = PREFIX.match(line)
        marks = prefix[0] if prefix is not None else ""
        argv = words(line[len(marks) :])
        if "@" in marks:
            del argv[1:2]  # The name that the program is told.
        yield Command(tuple(argv if ":" in marks else expanded(argv, environ, growth)), environ, missing=missing)


def quadlet_commands(text: str, path: Path, files: Files) -> Iterator[Command]:
    """The command of a quadlet's container. Raises UnreadableError."""
    unit = _unit(text, path, files)
    image, entry = unit.last("Container", "Image"), unit.last("Container", "Entrypoint")
    if image is None:
        raise UnreadableError("has no Image in its [Container] section", "name the quadlet that starts the server")
    around, missing = _service_environment(unit, files)
    arguments = expanded(words(unit.last("Container", "Exec") or ""), around, Growth())
    environ, more = _container_environment(unit, path, files)
    name = unit.last("Container", "ContainerName")
    argv = (*([] if entry is None else words(entry)), *arguments)
    yield Command(argv, environ, frozenset({name} if name else ()), image if entry is None else None, (*missing, *more))


def _unit(text: str, path: Path, files: Files) -> Unit:
    unit = Unit()
    unit.add(text)
    for extra in _drop_ins(path, files):
        unit.add(files.text(extra))
    return unit


def _drop_ins(path: Path, files: Files) -> list[Path]:
    """Drop-ins beside a unit; for one of the system's, those of all its folders. Of two with one name the stronger folder's counts."""
    folders = list(UNIT_FOLDERS) if path.parent in UNIT_FOLDERS else [path.parent]
    names = dict.fromkeys((re.sub(r"@[^.]*\.", "@.", path.name), path.name))
    found: dict[str, Path] = {}
    for name in names:
        for folder in reversed(folders):
            found |= {extra.name: extra for extra in files.listed(folder / f"{name}.d", ".conf")}
    return [found[name] for name in sorted(found)]


def _service_environment(unit: Unit, files: Files) -> tuple[dict[str, str], tuple[str, ...]]:
    """The variables of a [Service], and which environment files were not read: what these may set over is unresolved then."""
    environ = assignments(unit.all("Service", "Environment"))
    environ |= dict.fromkeys((name for value in unit.all("Service", "PassEnvironment") for name in words(value)), UNRESOLVED)
    missing: list[str] = []
    for value in unit.all("Service", "EnvironmentFile"):
        # A file that may be absent is not known to have been so when the server started.
        text = _environment_text(Path(value.removeprefix("-")), files)
        if text is None:
            missing.append(f"the environment file {Path(value).name} was not read")
            environ = dict.fromkeys(environ, UNRESOLVED)
        else:
            environ |= environment(text, Dialect.SYSTEMD)
    for name in (name.partition("=")[0] for value in unit.all("Service", "UnsetEnvironment") for name in words(value)):
        environ.pop(name, None)
    return environ, tuple(missing)


def _container_environment(unit: Unit, path: Path, files: Files) -> tuple[dict[str, str], tuple[str, ...]]:
    """The variables of a [Container]: `Environment` counts over files."""
    environ: dict[str, str] = {}
    missing: list[str] = []
    for value in unit.all("Container", "EnvironmentFile"):
        text = _environment_text(path.parent / value, files)
        if text is None:
            missing.append(f"the environment file {Path(value).name} was not read")
            environ = dict.fromkeys(environ, UNRESOLVED)
        else:
            environ |= environment(text, Dialect.PLAIN)
    if any("-e" in value for value in unit.all("Container", "PodmanArgs")) or unit.all("Container", "EnvironmentHost"):
        missing.append("variables of PodmanArgs or of the host are not read")
    return environ | assignments(unit.all("Container", "Environment")), tuple(missing)


def _environment_text(path: Path, files: Files) -> str | None:
    return None if "%" in str(path) or not path.is_absolute() else files.optional(path)
