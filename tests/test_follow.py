"""Following logs: whatever happens to the file, each line counts once, and only lines of the running process are believed."""

import json
import os
import random
import re
import socket
import stat
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inspector.contract import LogPattern, LogView
from inspector.follow import FileSource, Follower, JournalSource
from inspector.follow import journal as log_journal
from inspector.follow.file import FileReader
from inspector.follow.follower import reader_of
from inspector.follow.lines import LONGEST_LINE, probe, stamp_of, unwrap
from inspector.reading import Reason, Unknown

pytestmark = pytest.mark.anyio

START = LogPattern("start", "n_slots = ", re.compile(r"n_slots = (?P<slots>\d+)(?:, n_ctx_slot = (?P<context>\d+))?"), begins=True)
EXCEEDED = LogPattern("exceeded", "Context size has been exceeded", re.compile(r"Context size has been exceeded\."))
RELEASE = LogPattern("release", "stop processing", re.compile(r"id\s+(?P<slot>\d+) .*n_tokens = (?P<tokens>\d+)"), key="slot")
PATTERNS = (START, EXCEEDED, RELEASE)

STARTED = "0.00.912.100 I srv  load_model: initializing, n_slots = 4, n_ctx_slot = 131072, kv_unified = 'true'\n"
KILLED = "5.12.020.000 E srv        decode: Context size has been exceeded. off = 0, n_batch = 1, ret = 1\n"
RETRY = "5.12.009.000 W srv        decode: failed to find free space in the KV cache, retrying with smaller batch size, off = 0, n_batch = 4, ret = 1\n"


def released(slot: int, tokens: int) -> str:
    return f"5.12.030.000 I slot      release: id  {slot} | task 90 | stop processing: n_tokens = {tokens}, truncated = 0\n"


def append(path: Path, text: str | bytes) -> None:
    with path.open("ab") as file:
        file.write(text if isinstance(text, bytes) else text.encode())


async def seen(follower: Follower, *, born: float | None = None, after: float | None = None) -> LogView | Unknown:
    await follower.catch_up()
    return follower.view(born=born, after=after)


async def read(path: Path, patterns: tuple[LogPattern, ...] = PATTERNS) -> LogView:
    async with Follower(FileSource(path), patterns) as follower:
        view = await seen(follower)
    assert isinstance(view, LogView), view
    return view


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "server.log"


class Clock:
    def __init__(self, now: float = 1_796_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


# --- Facts of a file ----------------------------------------------------------------------------------------------------------------


async def test_groups_counts_and_rows_of_a_real_log(log):
    append(log, STARTED + RETRY * 10 + KILLED + released(0, 32700) + released(3, 32703) + released(0, 100))
    view = await read(log)
    assert view.path == "server.log"
    assert view.newest("start").groups == {"slots": "4", "context": "131072"}
    assert view.total("exceeded").value == 1, "retries are no kills"
    assert {slot: line.groups["tokens"] for slot, line in view.rows("release").items()} == {"0": "100", "3": "32703"}
    assert view.total("release").value == 3


async def test_only_named_groups_leave_the_follower(log):
    append(log, STARTED.replace("\n", " --api-key SECRET /srv/PATH\n") + KILLED)
    view = await read(log)
    assert "SECRET" not in repr(view)
    assert "PATH" not in repr(view)


async def test_a_group_that_took_no_part_is_not_there_and_a_long_one_is_cut(log):
    long = LogPattern("long", "name=", re.compile(r"name=(?P<name>\S+)(?P<more> more)?"))
    append(log, "name=" + "x" * 5000 + "\n")
    line = (await read(log, (long,))).newest("long")
    assert line.groups == {"name": "x" * 200}


async def test_rows_of_one_pattern_are_bounded(log):
    append(log, "".join(released(slot, 1) for slot in range(1000)))
    view = await read(log)
    assert len(view.rows("release")) == 256
    assert "999" in view.rows("release")
    assert view.total("release").value == 1000


async def test_a_new_start_drops_what_the_former_process_wrote(log):
    append(log, STARTED + KILLED * 3 + released(0, 5))
    async with Follower(FileSource(log), PATTERNS) as follower:
        assert (await seen(follower)).total("exceeded").value == 3
        append(log, STARTED.replace("n_slots = 4", "n_slots = 2"))
        view = await seen(follower)
        assert (view.newest("start").groups["slots"], view.total("exceeded").value, view.rows("release")) == ("2", 0, {})


async def test_a_view_does_not_change_after_it_was_given(log):
    append(log, STARTED + KILLED)
    async with Follower(FileSource(log), PATTERNS) as follower:
        first = await seen(follower)
        append(log, KILLED + released(1, 9))
        await follower.catch_up()
        assert (first.total("exceeded").value, first.rows("release")) == (1, {})


async def test_an_empty_file_is_a_log_without_lines(log):
    log.touch()
    view = await read(log)
    assert view.lines == {}
    assert view.total("exceeded").value == 0


# --- Bytes --------------------------------------------------------------------------------------------------------------------------


async def test_a_cut_at_every_byte_gives_the_same_view(tmp_path):
    data = (STARTED + KILLED + released(2, 77) + "é\r\n" + KILLED).encode()
    whole = tmp_path / "whole.log"
    append(whole, data)
    expected = await read(whole)
    for cut in range(len(data) + 1):
        path = tmp_path / f"{cut}.log"
        append(path, data[:cut])
        async with Follower(FileSource(path), PATTERNS) as follower:
            await follower.catch_up()
            append(path, data[cut:])
            view = await seen(follower)
        assert view.counts == expected.counts, cut
        assert view.newest("release").groups if view.rows("release") == {} else view.rows("release")["2"].groups == {"slot": "2", "tokens": "77"}


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 65, 1000])
async def test_the_size_of_the_chunks_does_not_matter(log, monkeypatch, size):
    monkeypatch.setattr("inspector.follow.file.CHUNK", size)
    append(log, STARTED + KILLED + "x" * 300 + "\n" + KILLED)
    assert (await read(log)).counts == {"start": 1, "exceeded": 2}


async def test_a_line_counts_when_it_ends_and_once(log):
    async with Follower(FileSource(log), PATTERNS) as follower:
        append(log, STARTED + KILLED.rstrip("\n"))
        assert (await seen(follower)).total("exceeded").value == 0
        assert (await seen(follower)).total("exceeded").value == 0
        append(log, "\n")
        assert (await seen(follower)).total("exceeded").value == 1
        assert (await seen(follower)).total("exceeded").value == 1


async def test_a_long_line_is_cut_and_the_next_one_is_whole(log):
    append(log, "y" * (LONGEST_LINE * 3) + KILLED + KILLED)
    assert (await read(log)).total("exceeded").value == 1
    short = log.with_name("short.log")
    append(short, KILLED.rstrip() + "y" * (LONGEST_LINE * 3) + "\n" + KILLED)
    assert (await read(short)).total("exceeded").value == 2


async def test_garbage_between_lines_is_survived(log):
    garbage = random.Random(7).randbytes(200_000).replace(b"\n", b"\xff")
    append(log, STARTED.encode() + garbage + b"\n" + b"\xff\xfe\0\0" + KILLED.encode() + b"\xc3\x28" + KILLED.encode())
    assert (await read(log)).counts == {"start": 1, "exceeded": 2}


async def test_zeros_before_a_line_do_not_count_as_its_length(log):
    """What a truncated file shows, on a file system that cannot tell holes, where its writer kept its old offset."""
    append(log, bytes(LONGEST_LINE * 3) + KILLED.encode())
    assert (await read(log)).total("exceeded").value == 1


async def test_nothing_is_read_twice(log):
    bytes_read = 0

    def counting(file: int, size: int, offset: int) -> bytes:
        nonlocal bytes_read
        data = os.pread(file, size, offset)
        bytes_read += len(data)
        return data

    source = FileSource(log)
    follower = Follower(source, PATTERNS, reader=FileReader(source, lambda data: True, pread=counting))
    append(log, STARTED + RETRY * 3000)
    async with follower:
        for _ in range(20):
            append(log, KILLED)
            view = await seen(follower)
    assert view.total("exceeded").value == 20
    assert bytes_read == log.stat().st_size


async def test_the_loop_turns_while_a_long_log_is_read(log):
    append(log, RETRY * 20_000)
    turns = 0

    async def turn() -> None:
        nonlocal turns
        while True:
            await anyio.sleep(0)
            turns += 1

    async with Follower(FileSource(log), PATTERNS) as follower, anyio.create_task_group() as tasks:
        tasks.start_soon(turn)
        await follower.catch_up()
        tasks.cancel_scope.cancel()
    assert turns >= log.stat().st_size // (64 * 1024)


async def test_a_cancelled_read_loses_nothing_and_shows_nothing_half_read(log):
    append(log, STARTED + (RETRY * 100 + KILLED) * 200)
    async with Follower(FileSource(log), PATTERNS) as follower:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await follower.catch_up()
        assert follower.view(born=None, after=None).reason is Reason.NO_SOURCE
        for delay in (0.0, 0.001, 0.002):
            with anyio.move_on_after(delay):
                await follower.catch_up()
        assert (await seen(follower)).total("exceeded").value == 200
        append(log, KILLED)
        with anyio.CancelScope() as scope:
            scope.cancel()
            await follower.catch_up()
        assert isinstance(follower.view(born=None, after=None), Unknown), "what was read before is not shown as what is there now"


# --- Files that move ----------------------------------------------------------------------------------------------------------------


async def test_a_file_that_comes_later(log):
    async with Follower(FileSource(log), PATTERNS) as follower:
        missing = await seen(follower)
        assert (missing.reason, str(log.parent) in missing.detail) == (Reason.NO_SOURCE, False)
        assert "server.log" in missing.detail
        append(log, STARTED + KILLED)
        assert (await seen(follower)).total("exceeded").value == 1


async def test_rotation_finishes_the_old_file_before_the_new_one(log):
    append(log, STARTED)
    async with Follower(FileSource(log), PATTERNS) as follower:
        await follower.catch_up()
        append(log, KILLED)
        log.rename(log.with_name("server.log.1"))
        append(log, KILLED)
        assert (await seen(follower)).counts == {"start": 1, "exceeded": 2}


async def test_a_writer_that_stays_with_the_renamed_file_is_followed(log):
    """logrotate's `create` makes an empty new file; a server with redirected output keeps writing to the old one."""
    append(log, STARTED)
    async with Follower(FileSource(log), PATTERNS) as follower:
        await follower.catch_up()
        old = log.rename(log.with_name("server.log.1"))
        log.touch()
        append(old, KILLED)
        assert (await seen(follower)).total("exceeded").value == 1
        append(old, KILLED)
        append(log, KILLED)
        assert (await seen(follower)).total("exceeded").value == 3


async def test_a_deleted_file_is_read_on_until_another_has_its_name(log):
    with log.open("ab", buffering=0) as writer:
        writer.write(STARTED.encode())
        async with Follower(FileSource(log), PATTERNS) as follower:
            await follower.catch_up()
            log.unlink()
            writer.write(KILLED.encode())
            assert (await seen(follower)).total("exceeded").value == 1
            append(log, KILLED)
            assert (await seen(follower)).total("exceeded").value == 2


async def test_a_line_whose_end_is_gone_tells_nothing(log):
    """`n_tokens = 327` may be the half of 32703, and its rest must not be sought in another file."""
    append(log, STARTED + released(1, 32703).partition("03,")[0])
    async with Follower(FileSource(log), PATTERNS) as follower:
        await follower.catch_up()
        log.rename(log.with_name("server.log.1"))
        append(log, KILLED + released(2, 32703).partition("03,")[0])
        assert (await seen(follower)).counts == {"start": 1, "exceeded": 1}
        os.truncate(log, 0)
        append(log, KILLED)
        assert (await seen(follower)).counts == {"start": 1, "exceeded": 2}


@pytest.mark.parametrize("after", [KILLED, KILLED * 2, KILLED * 50], ids=["shorter", "same size", "longer"])
async def test_a_truncated_file_is_read_from_its_start(log, after):
    append(log, STARTED.ljust(len(KILLED) * 2 - 1, " ").replace("\n", " ") + "\n")
    async with Follower(FileSource(log), PATTERNS) as follower:
        await follower.catch_up()
        os.truncate(log, 0)
        append(log, after)
        view = await seen(follower)
        assert view.total("exceeded").value == after.count("\n")
        assert view.newest("start") is not None, "the same process goes on in a truncated file"


async def test_a_file_rewritten_with_the_same_beginning_is_noticed(log):
    head = "build: 6000 (abcdef) with gcc\n" * 20
    append(log, head + STARTED + "task 1\n" * 3)
    async with Follower(FileSource(log), PATTERNS) as follower:
        await follower.catch_up()
        os.truncate(log, 0)
        append(log, head + STARTED.replace("n_slots = 4", "n_slots = 8") + KILLED * 4)
        view = await seen(follower)
        assert (view.newest("start").groups["slots"], view.total("exceeded").value) == ("8", 4)


async def test_a_hole_left_by_a_truncation_is_not_read(log):
    """A writer without O_APPEND keeps its offset: the truncated file seems to be as long as before, with zeros in front."""
    hole = 256 * 1024 * 1024
    bytes_read = 0

    def counting(file: int, size: int, offset: int) -> bytes:
        nonlocal bytes_read
        data = os.pread(file, size, offset)
        bytes_read += len(data)
        return data

    source = FileSource(log)
    async with Follower(source, PATTERNS, reader=FileReader(source, lambda data: True, pread=counting)) as follower:
        with log.open("wb", buffering=0) as writer:
            writer.write(STARTED.encode())
            await follower.catch_up()
            writer.seek(hole)
            os.truncate(log, 0)
            writer.write(KILLED.encode() * 2)
        assert (await seen(follower)).total("exceeded").value == 2
    assert bytes_read < 1024 * 1024


async def test_a_symlink_that_is_switched(tmp_path):
    first, second, link = tmp_path / "run-1.log", tmp_path / "run-2.log", tmp_path / "current.log"
    append(first, STARTED + KILLED * 5)
    link.symlink_to(first)
    async with Follower(FileSource(link), PATTERNS) as follower:
        assert (await seen(follower)).total("exceeded").value == 5
        append(second, STARTED + KILLED)
        link.unlink()
        link.symlink_to(second)
        assert (await seen(follower)).total("exceeded").value == 1


async def test_a_file_that_could_not_be_read_for_a_while_is_read_on_not_again(log, monkeypatch):
    append(log, KILLED * 2)
    async with Follower(FileSource(log), PATTERNS) as follower:
        await follower.catch_up()
        with monkeypatch.context() as broken:
            broken.setattr("inspector.follow.file.os.fstat", lambda file: (_ for _ in ()).throw(OSError(116, "Stale file handle")))
            failed = await seen(follower)
            assert isinstance(failed, Unknown)
            assert str(log.parent) not in failed.detail
        append(log, KILLED)
        assert (await seen(follower)).total("exceeded").value == 3


async def test_a_file_without_permission_is_told_by_its_base_name(log, monkeypatch):
    append(log, STARTED)

    def denied(path, *args, **kwargs):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("inspector.follow.file.os.open", denied)
    async with Follower(FileSource(log), PATTERNS) as follower:
        refused = await seen(follower)
    assert refused.reason is Reason.UNAUTHORIZED
    assert "server.log" in refused.detail
    assert str(log.parent) not in refused.detail


@pytest.mark.parametrize("kind", ["folder", "fifo", "socket", "device"])
async def test_what_is_no_regular_file_is_refused_and_blocks_nothing(tmp_path, kind):
    path = tmp_path / "odd.log"
    server = socket.socket(socket.AF_UNIX)
    with server:
        match kind:
            case "folder":
                path.mkdir()
            case "fifo":
                os.mkfifo(path)
            case "socket":
                server.bind(str(path))
            case _:
                path = Path("/dev/zero")
        with anyio.fail_after(5):
            async with Follower(FileSource(path), PATTERNS) as follower:
                refused = await seen(follower)
    assert refused.reason is Reason.NO_SOURCE
    assert "regular file" in refused.detail
    assert "/" not in refused.detail


async def test_no_file_is_left_open(log):
    append(log, STARTED)
    before = {path.name for path in Path("/proc/self/fd").iterdir()}
    async with Follower(FileSource(log), PATTERNS) as follower:
        await follower.catch_up()
        log.rename(log.with_name("server.log.1"))
        append(log, STARTED)
        await follower.catch_up()
    assert {path.name for path in Path("/proc/self/fd").iterdir()} == before


OPERATIONS = st.lists(st.sampled_from(["tick", "tick", "ticks", "half", "start", "rotate", "late rotate", "truncate", "delete", "read", "read"]), max_size=40)


class Writer:
    """A server that writes its log, and the simple model of what a reader must have seen: every line, except those truncated away unread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = path.open("ab", buffering=0)
        self.number = 0
        self.half = b""
        self.unread: list[int | str] = []
        self.block: list[int] = []
        self.moves = 0

    def finish_half(self) -> None:
        if self.half:
            self.file.write(self.half)
            self.half = b""
            self.unread.append(self.number)

    def tick(self) -> None:
        self.finish_half()
        self.number += 1
        self.file.write(f"tick n={self.number}\n".encode())
        self.unread.append(self.number)

    def begin_half(self) -> None:
        self.finish_half()
        self.number += 1
        self.file.write(f"tick n={self.number}".encode())
        self.half = b" end\n"

    def start(self) -> None:
        self.finish_half()
        self.file.write(b"start\n")
        self.unread.append("start")

    def move(self, *, stay: bool, keep: bool) -> None:
        self.finish_half()
        self.moves += 1
        old = self.path.with_name(f"{self.path.name}.{self.moves}")
        self.path.rename(old)
        if stay:
            self.path.touch()
            self.tick()
        if not keep:
            old.unlink()
        self.file.close()
        self.file = self.path.open("ab", buffering=0)

    def truncate(self) -> None:
        self.finish_half()
        os.truncate(self.path, 0)
        self.unread.clear()

    def was_read(self) -> None:
        for item in self.unread:
            if item == "start":
                self.block.clear()
            else:
                self.block.append(int(item))
        self.unread.clear()


TICK = LogPattern("tick", "tick n=", re.compile(r"tick n=(?P<n>\d+)(?P<rest>.*)$"), key="n")
BEGIN = LogPattern("start", "start", re.compile("^start$"), begins=True)


@settings(max_examples=120, deadline=None)
@given(operations=OPERATIONS)
def test_no_line_is_lost_or_counted_twice_under_any_schedule(tmp_path_factory, operations):
    path = tmp_path_factory.mktemp("schedule") / "server.log"

    async def play() -> None:
        writer = Writer(path)
        async with Follower(FileSource(path), (TICK, BEGIN)) as follower:

            async def settle() -> None:
                """The reader reaches the file that has the name now; no reader can know of one that came and went between two reads."""
                writer.tick()
                await follower.catch_up()
                writer.was_read()

            await settle()
            reached = True
            for operation in [*operations, "tick", "read"]:
                if operation in ("rotate", "late rotate", "delete", "truncate"):
                    if not reached or operation == "delete":  # An unread file that is deleted is gone for a reader that had not begun it.
                        await settle()
                    reached = operation == "truncate"
                match operation:
                    case "tick":
                        writer.tick()
                    case "ticks":
                        for _ in range(40):
                            writer.tick()
                    case "half":
                        writer.begin_half()
                    case "start":
                        writer.start()
                    case "rotate":
                        writer.move(stay=False, keep=True)
                    case "late rotate":
                        writer.move(stay=True, keep=True)
                    case "delete":
                        writer.move(stay=False, keep=False)
                    case "truncate":
                        writer.truncate()
                    case _:
                        view = await seen(follower)
                        writer.was_read()
                        assert view.counts["tick"] == len(writer.block)
                        assert sorted(int(n) for n in view.rows("tick")) == sorted(writer.block)[-256:]
        writer.file.close()

    anyio.run(play)


# --- Wrappers of log drivers --------------------------------------------------------------------------------------------------------

LINE = STARTED.rstrip("\n")
NOW = datetime(2026, 11, 30, 15, 0, tzinfo=UTC).timestamp()
WRAPPED = {
    "plain": LINE,
    "colours": f"\x1b[34m0.00.912.100\x1b[0m \x1b[32mI \x1b[0m{LINE[15:]}",
    "carriage return": f"Loading: 99%\r{LINE}\r",
    "compose": f"\x1b[36mllama-1  | \x1b[0m{LINE}",
    "compose v1": f"llama_1  | {LINE}",
    "kubernetes": f"2026-11-30T14:59:58.123456789Z stdout F {LINE}",
    "kubectl --prefix": f"[pod/llama-0/server] {LINE}",
    "docker --timestamps": f"2026-11-30T14:59:58.123456789Z {LINE}",
    "compose --timestamps": f"llama-1  | 2026-11-30T14:59:58.123456789Z {LINE}",
    "syslog": f"Nov 30 14:59:58 host llama-server[123]: {LINE}",
    "journal short-iso": f"2026-11-30T14:59:58+0000 host llama-server[123]: {LINE}",
    "docker json-file": json.dumps({"log": LINE + "\n", "stream": "stderr", "time": "2026-11-30T14:59:58.123456789Z"}),
    "llama.cpp --log-jsonl": json.dumps({"type": "log", "time": 553, "level": "info", "msg": LINE[15:] + "\n"}, separators=(",", ":")),
    "docker around jsonl": json.dumps({"log": json.dumps({"type": "log", "time": 553, "msg": LINE[15:] + "\n"}) + "\n", "time": "2026-11-30T14:59:58Z"}),
    "generic json": json.dumps({"timestamp": "2026-11-30T14:59:58Z", "message": LINE}),
    "json with escapes": json.dumps({"text": LINE + " é <b> & \x1b[0m"}),
    "journal json": json.dumps({"MESSAGE": LINE}),
}


@pytest.mark.parametrize("raw", WRAPPED.values(), ids=WRAPPED)
async def test_a_wrapped_line_gives_the_facts_of_the_plain_one(log, raw):
    append(log, raw + "\n")
    anchored = LogPattern("start", "n_slots = 4", re.compile(r"^(?:\S+ I )?srv  load_model: initializing, n_slots = (?P<slots>\d+)"))
    view = await read(log, (anchored,))
    assert view.newest("start").groups == {"slots": "4"}
    assert view.total("start").value == 1


@pytest.mark.parametrize("name", ["kubernetes", "docker --timestamps", "compose --timestamps", "docker json-file", "docker around jsonl", "generic json"])
def test_the_stamp_of_a_wrapper_is_exact(name):
    stamp = unwrap(WRAPPED[name], NOW).stamp
    assert stamp.exact
    assert stamp.at == pytest.approx(NOW - 2, abs=0.2)


def test_the_time_of_a_jsonl_line_counts_from_the_start_of_the_process_and_is_no_stamp():
    """llama.cpp b11549 wrote this line."""
    unwrapped = unwrap(r'{"type":"log","time":553,"level":"info","msg":"srv  load_model: initializing, n_slots = 4, \"q\"\n"}', NOW)
    assert unwrapped.lines == ('srv  load_model: initializing, n_slots = 4, "q"',)
    assert unwrapped.stamp is None


async def test_several_lines_in_one_json_message_count_each(log):
    append(log, json.dumps({"message": KILLED + KILLED}) + "\n")
    assert (await read(log)).total("exceeded").value == 2


@pytest.mark.parametrize("raw", ["{", "{}", '{"log": 5}', "[" * 100_000, '{"a":' * 100_000, "null", '{"message": {"log": "x"}}', "a  | b  | c  | d  | e  | f"])
def test_odd_json_is_no_wrapper(raw):
    assert len(unwrap(raw, NOW).lines) == 1


@pytest.mark.parametrize(
    "line",
    [
        "slot      release: id  0 | task 90 | stop processing: n_tokens = 32700, truncated = 0",
        "0.00.023.240 I common_memory_breakdown_print: | memory breakdown [MiB] | total   free    self |",
        "2026-11-30 14:52:57,490 - INFO - Starting httpd at 127.0.0.1 on port 18400...",
        "(APIServer pid=1) INFO 06-01 09:20:16 [utils.py:278] non-default args: {'max_num_seqs': 2}",
        '127.0.0.1 - - [30/Nov/2026 14:53:42] "POST /v1/completions HTTP/1.1" 200 -',
    ],
)
def test_an_engines_own_line_is_left_as_it_is(line):
    assert unwrap(line, NOW).lines == (line,)


@settings(deadline=None)
@given(st.text(max_size=40), st.sampled_from([False, True]))
def test_a_needles_probe_stands_in_the_bytes_of_the_line_however_json_writes_it(needle, ascii_only):
    assert probe(needle) in needle.encode(errors="replace")
    escaped = json.dumps(needle, ensure_ascii=ascii_only).replace("<", r"\u003c").replace(">", r"\u003e").replace("&", r"\u0026").replace("/", r"\/")
    assert probe(needle) in escaped.encode(errors="replace")


# --- Stamps -------------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def in_utc(monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("line", "when", "exact"),
    [
        ("2026-11-30 14:52:57,490 - INFO - Starting httpd", datetime(2026, 11, 30, 14, 52, 57, 490000, tzinfo=UTC), False),
        ("2026-11-30T14:52:57Z x", datetime(2026, 11, 30, 14, 52, 57, tzinfo=UTC), True),
        ("at 2026-11-30T14:52:57+02:00", datetime(2026, 11, 30, 12, 52, 57, tzinfo=UTC), True),
        ("(APIServer pid=1) INFO 06-01 09:20:16 [utils.py:278] x", datetime(2026, 6, 1, 9, 20, 16, tzinfo=UTC), False),
        ("INFO 12-24 09:20:16 [utils.py:278] written last year", datetime(2025, 12, 24, 9, 20, 16, tzinfo=UTC), False),
    ],
)
def test_stamps_of_the_engines(in_utc, line, when, exact):
    stamp = stamp_of(line, NOW)
    assert (stamp.at, stamp.exact) == (when.timestamp(), exact)


@pytest.mark.parametrize("line", ["0.00.912.100 I srv", "2026-13-45 99:99:99", "INFO 99-99 10:00:00 x", "no stamp", "x" * 500 + "2026-11-30T14:52:57Z"])
def test_what_is_no_stamp(in_utc, line):
    assert stamp_of(line, NOW) is None


async def test_a_line_is_dated_by_its_stamp_else_by_the_last_write_of_the_log(log, in_utc):
    append(log, "2026-11-30T14:00:00Z " + STARTED + KILLED)
    os.utime(log, (NOW - 60, NOW - 60))
    async with Follower(FileSource(log), PATTERNS, clock=Clock(NOW)) as follower:
        view = await seen(follower)
    assert view.newest("start").at == NOW - 3600
    assert view.newest("exceeded").at == NOW - 60
    assert view.at == NOW


# --- Belief -------------------------------------------------------------------------------------------------------------------------


async def test_a_log_that_ends_before_the_process_was_born_is_stale(log):
    append(log, STARTED)
    os.utime(log, (NOW - 100, NOW - 100))
    clock = Clock(NOW)
    async with Follower(FileSource(log), PATTERNS, clock=clock) as follower:
        stale = await seen(follower, born=NOW - 90)
        assert stale.reason is Reason.STALE
        assert "server.log ends before the running server started" in stale.detail
        assert isinstance(follower.view(born=NOW - 97, after=None), LogView), "clocks differ by some seconds"
        assert isinstance(follower.view(born=NOW - 101, after=None), LogView)


async def test_a_log_whose_newest_start_is_older_than_the_process_is_stale(log):
    append(log, "2026-11-30T14:00:00Z " + STARTED + "2026-11-30T14:59:59Z stdout F something of the process after it\n")
    os.utime(log, (NOW, NOW))
    async with Follower(FileSource(log), PATTERNS, clock=Clock(NOW)) as follower:
        assert (await seen(follower, born=NOW - 60)).reason is Reason.STALE
        assert isinstance(follower.view(born=NOW - 3602, after=None), LogView)


async def test_a_stamp_without_zone_may_be_hours_off_in_a_container(log, in_utc):
    append(log, "2026-11-30 10:00:00,000 - INFO - " + STARTED)
    os.utime(log, (NOW, NOW))
    async with Follower(FileSource(log), PATTERNS, clock=Clock(NOW)) as follower:
        assert isinstance(await seen(follower, born=NOW - 60), LogView)


async def test_a_block_read_before_the_process_was_born_is_not_its_own(log):
    """The old server's log goes on being written by something else."""
    append(log, STARTED + KILLED)
    clock = Clock(time.time())
    async with Follower(FileSource(log), PATTERNS, clock=clock) as follower:
        await follower.catch_up()
        clock.now += 100
        append(log, "another line\n")
        os.utime(log, (clock.now, clock.now))
        assert (await seen(follower, born=clock.now - 50)).reason is Reason.NO_SOURCE
        append(log, STARTED)
        os.utime(log, (clock.now, clock.now))
        assert (await seen(follower, born=clock.now - 50)).counts == {"start": 1}


async def test_lines_read_before_the_end_of_the_former_generation_are_not_believed(log):
    append(log, STARTED + KILLED)
    clock = Clock()
    async with Follower(FileSource(log), PATTERNS, clock=clock) as follower:
        await follower.catch_up()
        clock.now += 10
        last_success = clock.now
        clock.now += 5
        waiting = await seen(follower, after=last_success)
        assert waiting.reason is Reason.NO_SOURCE
        assert "no start of the running server" in waiting.detail
        append(log, STARTED)
        view = await seen(follower, after=last_success)
        assert view.counts == {"start": 1}


async def test_a_log_without_a_start_line_is_believed_unless_it_was_read_too_early(log):
    append(log, KILLED)
    clock = Clock()
    async with Follower(FileSource(log), PATTERNS, clock=clock) as follower:
        assert (await seen(follower)).total("exceeded").value == 1
        assert (await seen(follower, after=clock.now - 1)).total("exceeded").value == 1
        assert (await seen(follower, after=clock.now + 1)).reason is Reason.NO_SOURCE


def test_nothing_is_known_before_the_first_read(log):
    assert isinstance(Follower(FileSource(log), PATTERNS).view(born=None, after=None), Unknown)


# --- The journal --------------------------------------------------------------------------------------------------------------------

FAKE = """#!{python}
import json, os, pathlib, sys, time
here = pathlib.Path(__file__).parent
with (here / "argv").open("a") as file:
    file.write(json.dumps(sys.argv[1:]) + "\\n")
sent = 0
entries = here / "entries"
cursor = next((a.partition("=")[2] for a in sys.argv if a.startswith("--after-cursor=")), None)
if cursor is not None:
    sent = int(cursor[1:])
while True:
    lines = entries.read_text().splitlines(keepends=True) if entries.exists() else []
    for line in lines[sent:]:
        if line == "END\\n":
            sys.exit(3)
        sys.stdout.write(line)
        sent += 1
    sys.stdout.flush()
    time.sleep(0.02)
"""


class FakeJournal:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.program = folder / "journalctl"
        self.program.write_text(FAKE.format(python=sys.executable))
        self.program.chmod(self.program.stat().st_mode | stat.S_IXUSR)
        self.sent = 0

    def write(self, message: object, at: float) -> None:
        self.sent += 1
        entry = {"__CURSOR": f"s{self.sent}", "__REALTIME_TIMESTAMP": str(int(at * 1e6)), "_PID": "77", "MESSAGE": message}
        append(self.folder / "entries", json.dumps(entry) + "\n")

    def calls(self) -> list[list[str]]:
        return [json.loads(line) for line in (self.folder / "argv").read_text().splitlines()]

    def source(self) -> JournalSource:
        return JournalSource("llama-server.service", program=str(self.program))


@pytest.fixture
def journal(tmp_path: Path) -> FakeJournal:
    return FakeJournal(tmp_path)


async def until(follower: Follower, name: str, count: int) -> LogView:
    with anyio.fail_after(20):
        while True:
            view = await seen(follower)
            if isinstance(view, LogView) and view.counts[name] >= count:
                return view
            await anyio.sleep(0.02)


async def test_the_journal_of_a_unit_is_followed(journal, monkeypatch):
    monkeypatch.setattr(log_journal, "BACKLOG_WAIT", 10.0)
    journal.write(LINE, NOW - 100)
    journal.write(list(f"\x1b[31m{KILLED}".encode()), NOW - 50)
    journal.write(None, NOW - 40)
    append(journal.folder / "entries", "no json\n{}\n[]\n")
    async with Follower(journal.source(), PATTERNS) as follower:
        view = await until(follower, "exceeded", 1)
        assert view.path == "llama-server.service"
        assert (view.newest("start").at, view.newest("exceeded").at) == (NOW - 100, NOW - 50)
        journal.write(KILLED, NOW)
        assert (await until(follower, "exceeded", 2)).counts == {"start": 1, "exceeded": 2}
        assert follower.view(born=NOW - 80, after=None).reason is Reason.STALE, "the newest start is older than the process"
        assert follower.view(born=NOW + 80, after=None).reason is Reason.STALE, "the journal ends before the process was born"
    (call,) = journal.calls()
    assert set(call) >= {"--unit=llama-server.service", "--boot", "--output=json", "--no-pager", "--follow", "--lines=all"}


async def test_a_journal_that_shows_nothing_is_no_measured_zero(journal, monkeypatch):
    """journalctl says nothing, and no error, to a user who may not read the journal."""
    monkeypatch.setattr(log_journal, "BACKLOG_WAIT", 0.5)
    async with Follower(journal.source(), PATTERNS) as follower:
        empty = await seen(follower)
        assert empty.reason is Reason.NO_SOURCE
        assert "systemd-journal" in empty.detail
        journal.write(LINE, NOW)
        assert (await until(follower, "start", 1)).total("exceeded").value == 0


async def test_a_journalctl_that_ends_is_started_again_where_it_stopped(journal, monkeypatch):
    monkeypatch.setattr(log_journal, "BACKLOG_WAIT", 10.0)
    clock = Clock(time.time())
    journal.write(LINE, NOW)
    journal.write(KILLED, NOW)
    async with Follower(journal.source(), PATTERNS, clock=clock) as follower:
        await until(follower, "exceeded", 1)
        append(journal.folder / "entries", "END\n")
        with anyio.fail_after(20):
            while not isinstance(ended := await seen(follower), Unknown):
                await anyio.sleep(0.02)
        assert ended.reason is Reason.NO_SOURCE
        assert "status 3" in ended.detail
        entries = journal.folder / "entries"
        entries.write_text(entries.read_text().replace("END\n", ""))
        await follower.catch_up()
        assert len(journal.calls()) == 1, "not at once"
        journal.write(KILLED, NOW)
        clock.now += 60
        assert (await until(follower, "exceeded", 2)).counts == {"start": 1, "exceeded": 2}
    assert "--after-cursor=s2" in journal.calls()[1]


async def test_without_journalctl_there_is_no_source(tmp_path):
    async with Follower(JournalSource("x.service", program=str(tmp_path / "absent" / "journalctl")), PATTERNS) as follower:
        absent = await seen(follower)
    assert absent.reason is Reason.NO_SOURCE
    assert str(tmp_path) not in absent.detail


async def test_no_journalctl_is_left_running(journal, monkeypatch):
    monkeypatch.setattr(log_journal, "BACKLOG_WAIT", 10.0)
    journal.write(LINE, NOW)
    async with Follower(journal.source(), PATTERNS) as follower:
        await until(follower, "start", 1)
        process = follower._reader._process
        assert process.returncode is None
    assert process.returncode is not None


@pytest.mark.parametrize("unit", ["", "a b", "x;rm", "../x", "a\n", "$(x)", "x\0"])
def test_a_unit_name_that_cannot_be_is_refused(unit):
    with pytest.raises(ValueError, match="unit"):
        JournalSource(unit)


@pytest.mark.parametrize("unit", ["llama-server.service", "vllm@8000.service", "user_1:x"])
def test_a_unit_name_that_can_be(unit):
    assert reader_of(JournalSource(unit), PATTERNS, time.time).problem is None
