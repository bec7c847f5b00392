"""A Dockerfile carried out without Docker: its own commands, in a folder that stands for the root of each stage's file system.

Only what our Dockerfile uses is understood; anything else raises, so that a test says so. Absolute paths of the image are laid below the folder by rewriting
them. Each stage is built at one and the same place, as in an image, because an environment of Python is not to be moved.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

OURS = re.compile(r"(?<![\w./$}])/(?=(?:opt|source)\b)")
"""The start of a path that belongs to the image, not to the system below it."""


@dataclass(frozen=True)
class Instruction:
    word: str
    rest: str


@dataclass
class Stage:
    """What a stage leaves behind; `root` is where its files are after the next one has begun."""

    root: Path
    environment: dict[str, str]
    folder: str = "/"
    user: str = "0:0"
    labels: dict[str, str] = field(default_factory=dict)
    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    healthcheck: list[str] = field(default_factory=list)


def instructions(text: str) -> list[Instruction]:
    """The instructions in order; comments are left out, and continued lines joined."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines)).splitlines()
    return [Instruction(*line.split(None, 1)) for line in joined]


def in_context(context: Path, ignore: str) -> frozenset[str]:
    """The files that reach the builder, as paths in the context: the last pattern of .dockerignore that matches a file, or a folder above it, decides."""
    patterns = [line.strip() for line in ignore.splitlines() if line.strip() and not line.startswith("#")]
    rules = [(not pattern.startswith("!"), _pattern(pattern.removeprefix("!").strip("/"))) for pattern in patterns]
    found = set()
    for folder, folders, files in os.walk(context):
        here = Path(folder).relative_to(context)
        if here == Path():
            folders[:] = [name for name in folders if not name.startswith(".")]  # Environments and caches: large, and never copied by name.
        for name in files:
            path = (here / name).as_posix()
            parts = PurePosixPath(path).parts
            above = ["/".join(parts[:end]) for end in range(1, len(parts) + 1)]
            if not next((left_out for left_out, rule in reversed(rules) if any(map(rule.fullmatch, above))), False):
                found.add(path)
    return frozenset(found)


def _pattern(pattern: str) -> re.Pattern[str]:
    parts = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return re.compile("".join(parts.get(part, re.escape(part)) for part in re.split(r"(\*\*/|\*\*|\*|\?)", pattern)))


class Builder:
    """Builds a Dockerfile's stages one after the other. `base` is the environment of the images below, with a `python` on its PATH."""

    def __init__(self, dockerfile: str, context: Path, ignore: str, folder: Path, base: Mapping[str, str]) -> None:
        self._instructions = instructions(dockerfile)
        self._context, self._files = context, in_context(context, ignore)
        self._folder, self._base = folder, base
        self._root = folder / "root"
        self._stages: dict[str, Stage] = {}
        self._stage: Stage | None = None

    def build(self) -> Stage:
        """The last stage. Raises CalledProcessError for a command that fails, and FileNotFoundError for a file that is not to be had."""
        for instruction in self._instructions:
            getattr(self, f"_{instruction.word.lower()}")(instruction.rest)
        return self._current

    def laid(self, text: str) -> str:
        """A text with the image's paths as they are here."""
        return OURS.sub(lambda _: f"{self._root}/", text)

    @property
    def _current(self) -> Stage:
        assert self._stage is not None, "nothing but ARG stands before FROM"
        return self._stage

    def _from(self, rest: str) -> None:
        image, *name = rest.split(" AS ")
        assert re.fullmatch(r"python:\$\{PYTHON\}-slim", image)
        if self._stage is not None:
            self._stage.root = self._folder / f"stage-{len(self._stages)}"
            self._root.rename(self._stage.root)
        self._root.mkdir()
        self._stage = Stage(self._root, dict(self._base))
        self._stages[name[0] if name else "last"] = self._stage

    def _arg(self, rest: str) -> None:
        name, equals, value = rest.partition("=")
        assert equals, f"ARG {name} has no default"
        if self._stage is not None:
            self._stage.environment[name] = value

    def _env(self, rest: str) -> None:
        environment = self._current.environment
        for word in shlex.split(rest):
            name, _, value = word.partition("=")
            environment[name] = self.laid(re.sub(r"\$(\w+)", lambda match: environment[match[1]], value))

    def _label(self, rest: str) -> None:
        for word in shlex.split(rest):
            name, _, value = word.partition("=")
            self._current.labels[name] = re.sub(r"\$\{(\w+)\}", lambda match: self._current.environment[match[1]], value)

    def _workdir(self, rest: str) -> None:
        self._current.folder = rest
        self._here(rest).mkdir(parents=True, exist_ok=True)

    def _user(self, rest: str) -> None:
        self._current.user = rest

    def _expose(self, rest: str) -> None:
        assert rest.isdigit()

    def _run(self, rest: str) -> None:
        shell = ["/bin/sh", "-c", self.laid(rest)]
        subprocess.run(shell, cwd=self._here("."), env=self._current.environment, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def _copy(self, rest: str) -> None:
        *sources, target = rest.split()
        if sources[0].startswith("--from="):
            stage = self._stages[sources.pop(0).removeprefix("--from=")]
            for source in sources:
                shutil.copytree(stage.root / source.lstrip("/"), self._here(target), symlinks=True)
        else:
            for source in sources:
                self._copy_from_context(source, target)

    def _copy_from_context(self, source: str, target: str) -> None:
        files = [path for path in self._files if path == source or path.startswith(f"{source}/")]
        if not files:
            raise FileNotFoundError(f"COPY {source}: not in the context, or left out by .dockerignore")
        for path in files:
            place = self._here(target) / (PurePosixPath(path).name if path == source else PurePosixPath(path).relative_to(source))
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(self._context / path, place)

    def _here(self, path: str) -> Path:
        return self._root / str(PurePosixPath(self._current.folder, path)).lstrip("/")

    def _healthcheck(self, rest: str) -> None:
        self._current.healthcheck = words(rest.partition("CMD ")[2])

    def _entrypoint(self, rest: str) -> None:
        self._current.entrypoint = words(rest)

    def _cmd(self, rest: str) -> None:
        self._current.command = words(rest)


def words(text: str) -> Sequence[str]:
    """The exec form, which takes no shell."""
    parsed = json.loads(text)
    assert isinstance(parsed, list)
    assert all(isinstance(word, str) for word in parsed)
    return parsed
