"""Breaks one promise after another in a copy of the tree and sees whether the tests notice.

    python tests/mutants/run.py [--jobs N] [NAME…]

Each `*.patch` beside this file breaks one promise; its first lines name the promise and the tests that must fail. Exit code 0: all were killed;
1: at least one survived; 2: the run itself is wrong (a patch no longer applies, a test fails without any patch, pytest could not run).
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import Queue

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent

LONGEST = 120.0
"""Seconds for one run of pytest. A mutant that makes a test hang is no kill: the test has to bound it."""

FAILED = re.compile(r"^FAILED (\S+?\.py)::(.+?)(?: - .*)?$", re.MULTILINE)

CHANGED = re.compile(r"^\+\+\+ b/(\S+\.py)$", re.MULTILINE)

WHERE = """
import importlib.metadata, inspector, sys
print(inspector.__file__)
for point in importlib.metadata.entry_points(group="inspector.adapters"):
    point.load()
    print(sys.modules[point.module].__file__)
"""


class HarnessError(Exception):
    """The run says nothing about the tests."""


@dataclass(frozen=True)
class Mutant:
    """A patch, the promise that it breaks, and the arguments of pytest that must notice."""

    path: Path
    promise: str
    tests: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.path.stem


@dataclass(frozen=True)
class Outcome:
    """`killer` is the first test that failed, None when all passed."""

    mutant: Mutant
    killer: str | None
    seconds: float


def mutant(path: Path) -> Mutant:
    header = dict(re.findall(r"^# (promise|tests): (.+)$", path.read_text(), re.MULTILINE))
    if header.keys() != {"promise", "tests"}:
        raise HarnessError(f"{path.name}: begin it with the lines `# promise: …` and `# tests: …`")
    return Mutant(path, header["promise"].strip(), tuple(header["tests"].split()))


def chosen(names: Sequence[str]) -> list[Mutant]:
    """The mutants of these names (or numbers), all when none is named."""
    every = [mutant(path) for path in sorted(HERE.glob("*.patch"))]
    unknown = [name for name in names if not any(_is_named(m, name) for m in every)]
    if unknown:
        raise HarnessError(f"no such mutant: {', '.join(unknown)}")
    return [m for m in every if not names or any(_is_named(m, name) for name in names)]


def _is_named(found: Mutant, name: str) -> bool:
    return found.name == name.removesuffix(".patch") or found.name.split("-")[0] == name


class Copy:
    """A copy of the working tree in which patches are applied and taken back."""

    def __init__(self, root: Path) -> None:
        self.root = root
        # As in the working tree now, committed or not; what Git ignores stays behind, compiled files above all.
        listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True)
        for name in filter(None, listed.stdout.decode().split("\0")):
            if (ROOT / name).is_file():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, root / name)
        self._see_that_it_is_imported()

    @property
    def environment(self) -> dict[str, str]:
        """The copy comes before the editable install. No bytecode: its time stamps are too coarse for files that change twice in a second."""
        # What a Git hook sets names the original; and a repository around the copy would make Git skip the patch.
        ours = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        path = f"{self.root}{os.pathsep}{self.root / 'adapters'}"
        return ours | {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", "GIT_CEILING_DIRECTORIES": str(self.root.parent)}

    def _see_that_it_is_imported(self) -> None:
        done = subprocess.run([sys.executable, "-P", "-c", WHERE], cwd=self.root, env=self.environment, check=False, capture_output=True, text=True)
        if done.returncode:
            raise HarnessError(f"the copy cannot be imported:\n{done.stderr}")
        strange = [path for path in done.stdout.splitlines() if not Path(path).resolve().is_relative_to(self.root)]
        if strange:
            raise HarnessError(f"not imported from the copy: {', '.join(strange)}")

    @contextmanager
    def broken_by(self, found: Mutant) -> Iterator[None]:
        self._apply(found)
        try:
            yield
        finally:
            self._apply(found, "--reverse")

    def see_that_it_applies(self, found: Mutant) -> None:
        """A patch that lands beside its place may leave what is no Python: no test would notice anything then."""
        with self.broken_by(found):
            for name in CHANGED.findall(found.path.read_text()):
                try:
                    ast.parse((self.root / name).read_text())
                except SyntaxError as error:
                    raise HarnessError(f"{found.name} leaves {name} broken ({error}); make it anew from the code as it is now") from None

    def _apply(self, found: Mutant, *options: str) -> None:
        # One line of context is enough: a patch outlives changes of its neighbours.
        command = ["git", "apply", "-C1", *options, str(found.path)]
        done = subprocess.run(command, cwd=self.root, env=self.environment, check=False, capture_output=True, text=True)
        if done.returncode:
            raise HarnessError(f"{found.name} no longer applies; make it anew from the code as it is now:\n{done.stderr}")

    def test(self, tests: Sequence[str], *options: str) -> tuple[int, str]:
        """pytest's exit code and what it wrote."""
        command = [sys.executable, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--hypothesis-seed=0", "--tb=short", *options, *tests]
        with subprocess.Popen(
            command, cwd=self.root, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
        ) as process:
            try:
                output, _ = process.communicate(timeout=LONGEST)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                raise HarnessError(f"{' '.join(tests)} ran for more than {LONGEST:g} s: a test must bound what it waits for") from None
        return process.returncode, output


def see_all_green(copy: Copy, tests: Sequence[str]) -> None:
    """Without a patch every named test passes; otherwise a failure would prove nothing."""
    code, output = copy.test(tests)
    if code:
        raise HarnessError(f"these tests fail without any patch (pytest exits {code}):\n{output}")


def judge(copy: Copy, found: Mutant) -> Outcome:
    began = time.monotonic()
    with copy.broken_by(found):
        code, output = copy.test(found.tests, "-x")
    seconds = time.monotonic() - began
    if code == 0:
        return Outcome(found, None, seconds)
    failed = FAILED.search(output)
    if code != 1 or failed is None:
        raise HarnessError(f"{found.name}: pytest exits {code} without a failed test, which is no kill:\n{output}")
    return Outcome(found, f"{Path(failed[1]).stem}::{failed[2]}", seconds)


def tell(outcome: Outcome) -> None:
    name, took = outcome.mutant.name, f"({outcome.seconds:.1f} s)"
    if outcome.killer is not None:
        print(f"killed {name} by {outcome.killer} {took}", flush=True)
    else:
        print(f"SURVIVED {name}: {outcome.mutant.promise}; not noticed by {' '.join(outcome.mutant.tests)} {took}", flush=True)


def shares(tests: Sequence[str], jobs: int) -> list[list[str]]:
    """The tests by their files, dealt out to the jobs."""
    files: dict[str, list[str]] = {}
    for test in tests:
        files.setdefault(test.partition("::")[0], []).append(test)
    # pytest runs a test once for each time that it is named: the whole file stands for its tests.
    named = [[file] if file in wanted else wanted for file, wanted in files.items()]
    dealt = [[test for wanted in named[job::jobs] for test in wanted] for job in range(jobs)]
    return [share for share in dealt if share]


def run(mutants: Sequence[Mutant], jobs: int) -> int:
    """The number of survivors."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, ThreadPoolExecutor(jobs) as pool:
        copies: Queue[Copy] = Queue()
        for copy in pool.map(Copy, [Path(folder).resolve() / str(job) for job in range(jobs)]):
            copies.put(copy)

        @contextmanager
        def one() -> Iterator[Copy]:
            copy = copies.get()
            try:
                yield copy
            finally:
                copies.put(copy)

        def green(tests: Sequence[str]) -> None:
            with one() as copy:
                see_all_green(copy, tests)

        def judged(found: Mutant) -> Outcome:
            with one() as copy:
                outcome = judge(copy, found)
            tell(outcome)
            return outcome

        try:
            with one() as copy:
                for found in mutants:
                    copy.see_that_it_applies(found)
            list(pool.map(green, shares(list(dict.fromkeys(test for m in mutants for test in m.tests)), jobs)))
            outcomes = list(pool.map(judged, mutants))
        except HarnessError:
            pool.shutdown(cancel_futures=True)
            raise
    survived = sum(outcome.killer is None for outcome in outcomes)
    print(f"{len(outcomes) - survived} killed, {survived} survived")
    return survived


def main() -> int:
    parser = argparse.ArgumentParser(description="Breaks promises in a copy of the tree and sees whether the tests notice.")
    parser.add_argument("names", nargs="*", help="mutants by name or number; all when none is named")
    parser.add_argument("--jobs", type=int, default=2, help="copies that are tested at the same time")
    options = parser.parse_args()
    try:
        return 1 if run(chosen(options.names), max(1, options.jobs)) else 0
    except HarnessError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
