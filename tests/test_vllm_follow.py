"""A log that a real vLLM 0.32.0 wrote, followed while it grows: in pieces, rotated, truncated, cut off by a kill, begun anew by the next process."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fakes import FakeClock, FakeSources
from inspector.collector import TargetCollector, Watched
from inspector.contract import LogPattern, LogView
from inspector.follow import FileSource, Follower
from inspector.model import Pool, Snapshot
from inspector.reading import Known, Reason, Unknown
from inspector_vllm import ADAPTER, log
from test_vllm_cases import CASES, ask_of

pytestmark = pytest.mark.anyio

LOGS = Path(__file__).parent / "fixtures" / "vllm" / "0.32.0"
LARGE = (LOGS / "log-start.txt").read_bytes()
"""Of a process with 16,384 blocks; it began at 14:45."""
SMALL = (LOGS / "log-24-blocks.txt").read_bytes()
"""Of the process after it, with 24 blocks; it began at 14:51, logged three periodic lines, and its /metrics are those of case 0.32.0-busy."""
LARGE_TOKENS, SMALL_TOKENS, SLOTS = 2_097_152, 3_072, 4
PERIODIC_LINES = SMALL.count(b"Avg prompt throughput: ")

ARGUMENTS, SIZE, RATES = (SMALL.index(text) for text in (b"non-default args: ", b"CPU KV cache size: ", b"Avg prompt throughput: "))
MIDDLES = {
    "between two lines": SMALL.index(b"\n", ARGUMENTS) + 1,
    "within the line of the arguments": ARGUMENTS + 30,
    "within the line of the size": SIZE + 21,
    "within a periodic line": RATES + 40,
}
"""Places where the file changes hands. A line that is cut there is whole only where the writer's two pieces are read one after the other."""

BORN = 1796050292.61
"""process_start_time_seconds of the later process."""
LAST_LINE_OF_LARGE = BORN - 300


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


async def seen(follower: Follower) -> LogView:
    await follower.catch_up()
    view = follower.view(born=None, after=None)
    assert isinstance(view, LogView), view
    return view


def size_of(view: LogView) -> int | None:
    reading = log.kv_log(view, "0").size_tokens
    return reading.value if isinstance(reading, Known) else None


def slots_of(view: LogView) -> int | None:
    reading = log.argument(view, "max_num_seqs")
    return reading.value if isinstance(reading, Known) else None


def assert_all_of_small(view: LogView) -> None:
    """Each line of the later process was read once."""
    assert (size_of(view), slots_of(view)) == (SMALL_TOKENS, SLOTS)
    assert view.total("periodic").value == PERIODIC_LINES == 3
    assert view.total("size").value == view.total("begin_banner").value == 1


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "vllm.log"


@pytest.mark.parametrize("piece", [97, 1000, 8192])
async def test_a_log_read_as_it_grows_tells_each_line_once(path: Path, piece: int) -> None:
    async with Follower(FileSource(path), log.PATTERNS) as follower:
        for start in range(0, len(SMALL), piece):
            append(path, SMALL[start : start + piece])
            view = await seen(follower)
            written = SMALL[: start + piece].rpartition(b"\n")[0]
            assert view.total("periodic").value == written.count(b"Avg prompt throughput: ")
            assert (size_of(view) is None) == (b"CPU KV cache size: " not in written)
    assert_all_of_small(view)
    assert follower.starts == 1


def renamed(path: Path) -> None:
    path.rename(path.with_name("vllm.log.1"))


def copied_and_truncated(path: Path) -> None:
    path.with_name("vllm.log.1").write_bytes(path.read_bytes())
    os.truncate(path, 0)


@pytest.mark.parametrize("rotate", [renamed, copied_and_truncated])
@pytest.mark.parametrize("read_between", [True, False])
async def test_a_rotation_in_the_middle_loses_no_line(path: Path, rotate: Callable[[Path], None], read_between: bool) -> None:
    """What was read before stays, for it is the same process; `read_between`: whether the empty file is seen."""
    middle = MIDDLES["between two lines"]
    async with Follower(FileSource(path), log.PATTERNS) as follower:
        append(path, SMALL[:middle])
        assert slots_of(await seen(follower)) == SLOTS
        rotate(path)
        if read_between:
            await seen(follower)
        append(path, SMALL[middle:])
        assert_all_of_small(await seen(follower))
        append(path, SMALL[RATES - 90 :][: SMALL[RATES:].index(b"\n") + 91])
        assert (await seen(follower)).total("periodic").value == PERIODIC_LINES + 1


async def test_a_writer_that_still_has_the_renamed_file_is_read_to_its_end(path: Path) -> None:
    middle = MIDDLES["within the line of the size"]
    async with Follower(FileSource(path), log.PATTERNS) as follower:
        append(path, SMALL[:middle])
        await seen(follower)
        renamed(path)
        append(path.with_name("vllm.log.1"), SMALL[middle:])
        assert_all_of_small(await seen(follower))


@pytest.mark.parametrize("middle", MIDDLES)
async def test_after_a_kill_the_next_process_replaces_all_that_the_former_said(path: Path, middle: str) -> None:
    """The former is killed in the middle of writing; at no moment are the new process's facts mixed with the former's."""
    async with Follower(FileSource(path), log.PATTERNS) as follower:
        append(path, SMALL[: MIDDLES[middle]])
        before = await seen(follower)
        assert size_of(before) in (None, SMALL_TOKENS)
        banner = LARGE.index(b"\n", LARGE.index(b"  version 0.32.0")) + 1
        append(path, LARGE[:banner])
        restarted = await seen(follower)
        assert (size_of(restarted), slots_of(restarted), restarted.total("periodic").value) == (None, None, 0)
        append(path, LARGE[banner:])
        view = await seen(follower)
    assert (size_of(view), slots_of(view), follower.starts) == (LARGE_TOKENS, SLOTS, 2)


async def test_a_restart_into_a_new_file_replaces_the_former_s_size(path: Path) -> None:
    async with Follower(FileSource(path), log.PATTERNS) as follower:
        append(path, LARGE)
        assert size_of(await seen(follower)) == LARGE_TOKENS
        renamed(path)
        append(path, SMALL)
        assert_all_of_small(await seen(follower))


# --- Through the collector, with the metrics of the process that wrote it ------------------------------------------------------------


class Logged(FakeSources):
    """The sources of a target whose log is followed."""

    path: Path

    def follower(self, patterns: tuple[LogPattern, ...]) -> Follower:  # type: ignore[override]
        return Follower(FileSource(self.path), patterns, clock=self.clock)


def collector(path: Path, case: str, clock: FakeClock) -> tuple[TargetCollector, dict[str, Any]]:
    """A collector over a captured server, and the bodies that it serves."""
    bodies = bodies_of(case)
    sources = Logged(clock, lambda route: bodies["/metrics" if route.path == "/metrics/" else route.path])
    sources.path = path
    return TargetCollector(Watched("chat", ADAPTER), sources, {"vllm": ADAPTER}, clock=clock), bodies


def bodies_of(case: str) -> dict[str, Any]:
    return {path: reply[1] for path, reply in ask_of(CASES / case).replies.items()}  # type: ignore[index]


def pool(snapshot: Snapshot) -> Pool:
    (only,) = snapshot.pools
    return only


def test_the_captured_process_was_born_when_the_tests_say() -> None:
    assert re.search(rb"(?m)^process_start_time_seconds (.*)$", bodies_of("0.32.0-busy")["/metrics"])[1] == b"1.79605029261e+09"  # type: ignore[index]


async def test_the_log_of_a_former_process_is_not_believed(path: Path) -> None:
    """The file ends before the running process was born; not even the first poll takes its figures, nor calls them drift."""
    append(path, LARGE)
    os.utime(path, (LAST_LINE_OF_LARGE, LAST_LINE_OF_LARGE))
    clock = FakeClock(BORN + 120)
    polls, _ = collector(path, "0.32.0-busy", clock)
    for _ in range(3):
        snapshot = await polls.poll()
        assert isinstance(pool(snapshot).slots, Unknown)
        assert snapshot.drift == ()
        assert pool(snapshot).kv_capacity_tokens.value == SMALL_TOKENS - 128  # type: ignore[union-attr]
        clock.advance(5)
    append(path, SMALL)
    os.utime(path, (clock.now, clock.now))
    snapshot = await polls.poll()
    assert pool(snapshot).slots.value == SLOTS  # type: ignore[union-attr]
    assert snapshot.drift == ()
    await polls.aclose()


async def test_a_server_that_comes_back_is_not_told_by_the_lines_of_the_killed_one(path: Path) -> None:
    """The log stays behind: the new process is there by its start, and has not written a line that was read."""
    append(path, LARGE)
    os.utime(path, (LAST_LINE_OF_LARGE, LAST_LINE_OF_LARGE))
    clock = FakeClock(LAST_LINE_OF_LARGE)
    polls, bodies = collector(path, "0.32.0-busy", clock)
    bodies |= bodies_of("0.32.0-busy") | {"/metrics": (LOGS / "metrics-idle.txt").read_bytes()}
    first = await polls.poll()
    assert pool(first).slots.value == SLOTS  # type: ignore[union-attr]
    assert pool(first).kv_capacity_tokens.value == LARGE_TOKENS - 128  # type: ignore[union-attr]
    assert first.drift == ()

    clock.now = BORN + 60
    bodies |= bodies_of("0.32.0-busy")
    second = await polls.poll()
    assert second.generation == first.generation + 1
    assert isinstance(pool(second).slots, Unknown)
    assert pool(second).slots.reason is Reason.NO_SOURCE  # type: ignore[union-attr]
    assert second.drift == ()

    append(path, SMALL)
    os.utime(path, (clock.now, clock.now))
    third = await polls.poll()
    assert pool(third).slots.value == SLOTS  # type: ignore[union-attr]
    assert pool(third).kv_capacity_tokens.value == SMALL_TOKENS - 128  # type: ignore[union-attr]
    assert third.drift == ()
    await polls.aclose()
