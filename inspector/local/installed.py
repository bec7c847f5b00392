"""The version of a Python package that a process's interpreter has installed: from the name of its metadata folder. Blocking, a few milliseconds."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from inspector.local.files import environ_of, seen_from_here
from inspector.local.process import Process
from inspector.reading import Kind, Known, Origin, Reading, Reason, Unknown

VERSION = re.compile(r"[0-9][A-Za-z0-9.+!_]{0,60}")
FOLDERS = ("lib/python3*/site-packages", "lib/python3*/dist-packages", "lib/python3/dist-packages", "local/lib/python3*/dist-packages")


def installed_version(process: Process, package: str, now: float) -> Reading[str]:
    """The version of `package` (its distribution's name) beside the interpreter or script of the process."""
    stem = re.sub(r"[-_.]+", "_", package).lower()
    versions: set[str] = set()
    for folder in _program_folders(process):
        prefix = seen_from_here(process, folder)
        if isinstance(prefix, Unknown):
            return prefix
        try:
            versions |= set(_versions(prefix.parent, stem))
        except OSError:
            continue
        if versions:
            break
    if len(versions) > 1:
        return Unknown(Reason.AMBIGUOUS, f"several versions of {package} are installed for this process; state `facts: {{version: …}}`")
    if not versions:
        return Unknown(Reason.NO_SOURCE, f"no installed {package} is found beside the process's interpreter; state `facts: {{version: …}}`")
    return Known(versions.pop(), Origin(Kind.SYSTEM, f"installed {package}", now))


def _program_folders(process: Process) -> Iterator[str]:
    """Folders of the interpreter and of the script, the nearest guess first. Links are not followed: an environment's interpreter is one."""
    for argument in process.argv[:2]:
        folder, slash, _ = argument.rpartition("/")
        if slash:
            yield folder or "/"
    if process.argv and "/" not in process.argv[0]:
        yield from (folder for folder in environ_of(process).get("PATH", "").split(":") if folder.startswith("/"))


def _versions(prefix: Path, stem: str) -> Iterator[str]:
    for folder in FOLDERS:
        for found in prefix.glob(f"{folder}/*.dist-info"):
            name, _, version = found.name.removesuffix(".dist-info").partition("-")
            if name.replace(".", "_").lower() == stem and VERSION.fullmatch(version):
                yield version
