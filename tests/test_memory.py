"""Memory of the machine and of a process: Linux by folders laid out like /proc and by this very process, macOS by recorded outputs."""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from engines.mlx import write_safetensors
from inspector.demo.model import write_tiny_model
from inspector.gguf_header import gguf_tensor_bytes
from inspector.headroom import memory_headroom
from inspector.layout import Span
from inspector.local import linux, macos
from inspector.local.installed import installed_version
from inspector.local.memory import memory_of, total_bytes
from inspector.local.model_config import model_config
from inspector.local.process import Process, process_of
from inspector.local.weights import NOT_NAMED, weights_of
from inspector.model import Memory
from inspector.reading import NOT_OFFERED, Kind, Known, Origin, Reading, Reason, Unknown

NOW = 1_800_000_000.0
GIB = 2**30
LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


def known(value: int) -> Known[int]:
    return Known(value, Origin(Kind.SYSTEM, "memory of the machine", NOW))


TOTAL = known(64 * GIB)


def value(reading: Reading[Any]) -> Any:
    """A reading's value and source, or its reason."""
    return (reading.value, reading.origin.path) if isinstance(reading, Known) else reading.reason


@contextmanager
def sleeping(**options: Any) -> Iterator[Process]:
    """A process of ours that waits."""
    with subprocess.Popen([sys.executable, "-c", "print(flush=True); input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, **options) as running:
        assert running.stdout is not None
        running.stdout.readline()
        found = process_of(running.pid)
        assert isinstance(found, Process)
        yield found
        running.kill()


@pytest.fixture
def child() -> Iterator[Process]:
    with sleeping() as process:
        yield process


# --- Linux: use ----------------------------------------------------------------------------------------------------------------------


def proc_of(folder: Path, pid: int, resident: int, pss: int | None, children: str = "", cgroup: str = "0::/\n") -> Path:
    """The files of a process below a folder like /proc; sizes in bytes."""
    own = folder / str(pid)
    (own / "task" / str(pid)).mkdir(parents=True)
    (own / "task" / str(pid) / "children").write_text(children)
    (own / "statm").write_text(f"9999999 {resident // os.sysconf('SC_PAGE_SIZE')} 1 1 0 1 0\n")
    if pss is not None:
        (own / "smaps_rollup").write_text(f"55d0-7ffe ---p 00000000 00:00 0 [rollup]\nRss: 1 kB\nPss: {pss // 1024:>12} kB\nPss_Anon: 1 kB\n")
    (own / "cgroup").write_text(cgroup)
    return folder


def test_pss_is_preferred_and_named(tmp_path: Path) -> None:
    assert value(linux.used_bytes(7, NOW, proc_of(tmp_path, 7, 8 * 2**20, 3 * 2**20))) == (3 * 2**20, "PSS of pid 7")


def test_rss_where_pss_may_not_be_seen_and_named(tmp_path: Path) -> None:
    assert value(linux.used_bytes(7, NOW, proc_of(tmp_path, 7, 8 * 2**20, None))) == (8 * 2**20, "RSS of pid 7")


def test_a_large_process_is_not_walked_page_by_page(tmp_path: Path) -> None:
    """Reading PSS of a hundred gigabytes would hold the server's memory map for long."""
    assert value(linux.used_bytes(7, NOW, proc_of(tmp_path, 7, 3 * GIB, GIB))) == (3 * GIB, "RSS of pid 7")


def test_processes_below_count_too(tmp_path: Path) -> None:
    proc_of(tmp_path, 7, 2**20, 2**20, children="8 9")
    proc_of(tmp_path, 8, 2**21, 2**21, children="10 ")
    proc_of(tmp_path, 10, 2**22, 2**22)
    assert value(linux.used_bytes(7, NOW, tmp_path)) == Reason.NO_SOURCE  # 9 ended between two reads: the sum would be short
    proc_of(tmp_path, 9, 2**23, 2**23)
    assert value(linux.used_bytes(7, NOW, tmp_path)) == (2**20 + 2**21 + 2**22 + 2**23, "PSS of pid 7 and 3 below it")


@pytest.mark.parametrize("statm", ["", "1", "1 x 1", "1 \x00"])
def test_what_cannot_be_read_is_unknown(tmp_path: Path, statm: str) -> None:
    (proc_of(tmp_path, 7, 0, None) / "7" / "statm").write_text(statm)
    assert value(linux.used_bytes(7, NOW, tmp_path)) == Reason.NO_SOURCE
    assert value(linux.used_bytes(8, NOW, tmp_path)) == Reason.NO_SOURCE


@LINUX
def test_a_real_process_agrees_with_psutil(child: Process) -> None:
    memory = memory_of(child.pid, NOT_NAMED, NOW)
    full = psutil.Process(child.pid).memory_full_info()
    assert isinstance(memory.used_bytes, Known)
    assert memory.used_bytes.value == pytest.approx(full.pss if "PSS" in memory.used_bytes.origin.path else full.rss, rel=0.3)
    assert value(memory.total_bytes) == (psutil.virtual_memory().total, "memory of the machine")
    assert isinstance(memory.ceiling_bytes, Known)
    assert memory.ceiling_bytes.value <= psutil.virtual_memory().total


@LINUX
def test_a_process_that_ended_is_unknown() -> None:
    with sleeping() as process:
        pass
    memory = memory_of(process.pid, NOT_NAMED, NOW)
    assert value(memory.used_bytes) == Reason.NO_SOURCE
    assert isinstance(memory.ceiling_bytes, Unknown)


def test_an_ended_process_that_is_still_listed_has_no_memory(tmp_path: Path) -> None:
    assert value(linux.used_bytes(7, NOW, proc_of(tmp_path, 7, 0, None))) == Reason.NO_SOURCE


# --- Linux: ceiling ------------------------------------------------------------------------------------------------------------------


def mounts_of(folder: Path, limits: dict[str, str]) -> Path:
    """A tree of version 2 control groups; `limits` by group."""
    mounts = folder / "mounts"
    mounts.mkdir()
    (mounts / "cgroup.controllers").write_text("memory cpu\n")
    for group, limit in limits.items():
        (mounts / group).mkdir(parents=True, exist_ok=True)
        (mounts / group / "memory.max").write_text(limit + "\n")
    return mounts


def ceiling(folder: Path, cgroup: str, limits: dict[str, str], own: str = "0::/ours\n") -> Any:
    proc = proc_of(folder / "proc", 7, 1, 1, cgroup=cgroup)
    (proc / "self").mkdir()
    (proc / "self" / "cgroup").write_text(own)
    return value(linux.ceiling_bytes(7, TOTAL, NOW, proc, mounts_of(folder, limits)))


LIMIT = "limit of the control group"
MACHINE = "memory of the machine"


@pytest.mark.parametrize(
    ("cgroup", "limits", "expected"),
    [
        ("0::/system.slice/llama.service\n", {"system.slice": "max", "system.slice/llama.service": str(8 * GIB)}, (8 * GIB, LIMIT)),
        ("0::/pods/a\n", {"pods": str(4 * GIB), "pods/a": str(8 * GIB)}, (4 * GIB, LIMIT)),
        ("0::/pods/a\n", {"pods": "max", "pods/a": "max"}, (64 * GIB, MACHINE)),
        ("0::/pods/a\n", {"pods/a": str(100 * GIB)}, (64 * GIB, MACHINE)),
        ("0::/\n", {".": str(2 * GIB)}, (2 * GIB, LIMIT)),
        ("0::/ours/other\n", {"ours": str(GIB), "ours/other": "max"}, (GIB, LIMIT)),
        ("0::/gone\n", {"ours": str(GIB)}, Reason.NO_SOURCE),
        ("0::/../other\n", {"ours": str(GIB)}, Reason.NO_SOURCE),
        ("0::/a\n", {"a": "plenty"}, Reason.NO_SOURCE),
        ("nonsense", {"a": str(GIB)}, Reason.NO_SOURCE),
        ("", {"a": str(GIB)}, (64 * GIB, MACHINE)),
    ],
)
def test_the_ceiling_is_the_lowest_limit_of_the_servers_groups(tmp_path: Path, cgroup: str, limits: dict[str, str], expected: Any) -> None:
    assert ceiling(tmp_path, cgroup, limits) == expected


def test_in_one_container_the_group_is_the_root_of_what_is_seen(tmp_path: Path) -> None:
    """Without a name space of its own for groups, a container sees its own group at the root, under the host's name for it."""
    assert ceiling(tmp_path, "0::/docker/abc\n", {".": str(3 * GIB)}, own="0::/docker/abc\n") == (3 * GIB, LIMIT)


def test_another_containers_group_is_seen_through_its_process(tmp_path: Path) -> None:
    """As for a sidecar that shares the server's process name space: the group lies outside of what we see, inside of what the server sees."""
    mounts = mounts_of(tmp_path, {".": str(GIB)})
    proc = proc_of(tmp_path / "proc", 7, 1, 1, cgroup="0::/../server\n")
    inside = proc / "7" / "root" / mounts.relative_to("/")
    inside.mkdir(parents=True)
    (inside / "memory.max").write_text(f"{5 * GIB}\n")
    (proc / "self").mkdir()
    (proc / "self" / "cgroup").write_text("0::/\n")
    assert value(linux.ceiling_bytes(7, TOTAL, NOW, proc, mounts)) == (5 * GIB, LIMIT)


def test_a_limit_that_cannot_be_seen_is_not_the_machines_memory(tmp_path: Path) -> None:
    proc = proc_of(tmp_path / "proc", 7, 1, 1, cgroup="0::/../other\n")
    (proc / "self").mkdir()
    (proc / "self" / "cgroup").write_text("0::/\n")
    reading = linux.ceiling_bytes(7, TOTAL, NOW, proc, mounts_of(tmp_path, {".": str(GIB)}))
    assert isinstance(reading, Unknown)
    assert reading.bounds == (None, 64 * GIB)


@pytest.mark.parametrize(("figure", "expected"), [(6 * GIB, (6 * GIB, LIMIT)), (9223372036854771712, (64 * GIB, MACHINE)), (128 * GIB, (64 * GIB, MACHINE))])
def test_version_1_groups_state_the_limit_of_all_above(tmp_path: Path, figure: int, expected: Any) -> None:
    proc = proc_of(tmp_path / "proc", 7, 1, 1, cgroup="12:pids:/a\n5:cpu,memory:/docker/abc\n0::/\n")
    group = tmp_path / "mounts" / "memory" / "docker" / "abc"
    group.mkdir(parents=True)
    (group / "memory.stat").write_text(f"cache 5\nhierarchical_memory_limit {figure}\ntotal_cache 5\n")
    (proc / "self").mkdir()
    (proc / "self" / "cgroup").write_text("0::/\n")
    assert value(linux.ceiling_bytes(7, TOTAL, NOW, proc, tmp_path / "mounts")) == expected


# --- macOS ---------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("said", ["114688\n", "114688"])
def test_the_wired_limit_is_the_ceiling(said: str) -> None:
    assert value(macos.ceiling_bytes(known(128 * GIB), NOW, lambda: said)) == (114688 * 2**20, "iogpu.wired_limit_mb")


@pytest.mark.parametrize("said", ["0\n", "", None, "unknown oid 'iogpu.wired_limit_mb'", "-1"])
def test_a_wired_limit_of_zero_is_the_systems_default_and_not_zero(said: str | None) -> None:
    reading = macos.ceiling_bytes(known(24 * GIB), NOW, lambda: said)
    assert isinstance(reading, Unknown)
    assert reading.reason is Reason.AMBIGUOUS
    assert reading.bounds == (16 * GIB, 24 * GIB)


@pytest.mark.parametrize(("memory_gib", "seen_mib"), [(16, 10_922), (16, 12_124), (24, 16_384), (128, 110_080)])
def test_reported_defaults_lie_within_the_bounds(memory_gib: int, seen_mib: int) -> None:
    """What Metal told users of such machines."""
    reading = macos.ceiling_bytes(known(memory_gib * GIB), NOW, lambda: "0")
    assert isinstance(reading, Unknown)
    assert reading.bounds is not None
    low, high = reading.bounds
    assert low is not None
    assert high is not None
    assert low // 2**20 <= seen_mib <= high // 2**20


class Usage(ctypes.Structure):
    """`struct rusage_info_v2` as <sys/resource.h> of the macOS SDK lists it."""

    _fields_ = (
        ("ri_uuid", ctypes.c_uint8 * 16),
        *(
            (f"ri_{name}", ctypes.c_uint64)
            for name in (
                "user_time", "system_time", "pkg_idle_wkups", "interrupt_wkups", "pageins", "wired_size", "resident_size", "phys_footprint",
                "proc_start_abstime", "proc_exit_abstime", "child_user_time", "child_system_time", "child_pkg_idle_wkups", "child_interrupt_wkups",
                "child_pageins", "child_elapsed_abstime", "diskio_bytesread", "diskio_byteswritten",
            )
        ),
    )  # fmt: skip


ASKS_USAGE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_void_p, use_errno=True)
"""`int proc_pid_rusage(int pid, int flavor, rusage_info_t *buffer)`"""


def system_library(usage: Usage | None = None, *, error: int = 0, asked: list[tuple[int, int]] | None = None) -> Any:
    """A library whose function is called as C calls it, and writes `usage` or fails."""

    def proc_pid_rusage(pid: int, flavor: int, buffer: int) -> int:
        if asked is not None:
            asked.append((pid, flavor))
        if usage is None:
            ctypes.set_errno(error)
            return -1
        ctypes.memmove(buffer, ctypes.byref(usage), ctypes.sizeof(usage))
        return 0

    return SimpleNamespace(proc_pid_rusage=ASKS_USAGE(proc_pid_rusage))


def test_the_footprint_is_used_and_resident_memory_is_no_substitute() -> None:
    """On one user's machine 0.1 GB were resident while the footprint was 102 GB."""
    asked: list[tuple[int, int]] = []
    usage = Usage(**{name: number for number, (name, _) in enumerate(Usage._fields_[1:], start=1)})
    usage.ri_uuid[:] = range(1, 17)
    usage.ri_resident_size, usage.ri_phys_footprint = 107_374_182, 102 * GIB
    library = system_library(usage, asked=asked)
    assert value(macos.used_bytes(7, NOW, lambda: library)) == (102 * GIB, "footprint of pid 7")
    assert asked == [(7, 2)], "RUSAGE_INFO_V2, the structure above"


def test_a_footprint_of_nothing_is_no_figure() -> None:
    library = system_library(Usage())
    assert value(macos.used_bytes(7, NOW, lambda: library)) == Reason.INVALID


@pytest.mark.parametrize(
    ("error", "reason"), [(errno.EPERM, Reason.UNAUTHORIZED), (errno.ESRCH, Reason.NO_SOURCE), (errno.EINVAL, Reason.NOT_REPORTED), (0, Reason.NOT_REPORTED)]
)
def test_a_process_of_which_the_system_tells_nothing_is_unknown(error: int, reason: Reason) -> None:
    library = system_library(error=error)
    assert value(macos.used_bytes(7, NOW, lambda: library)) == reason


def test_a_system_without_the_function_tells_no_footprint() -> None:
    assert value(macos.used_bytes(7, NOW, SimpleNamespace)) == Reason.NOT_REPORTED
    assert value(macos.used_bytes(7, NOW, lambda: ctypes.CDLL("/nowhere/libSystem.dylib", use_errno=True))) == Reason.NOT_REPORTED


def test_bounds_of_the_ceiling_bound_the_headroom() -> None:
    memory = Memory(known(24 * GIB), Unknown(Reason.AMBIGUOUS, "the system decides", bounds=(16 * GIB, 24 * GIB)), known(12 * GIB))
    headroom = memory_headroom(memory)
    assert headroom is not None
    assert headroom.ratio == Span(0.25, 0.5)


def test_use_without_a_figure_leaves_the_headroom_unknown() -> None:
    headroom = memory_headroom(Memory(known(24 * GIB), known(24 * GIB), Unknown(Reason.NO_SOURCE, "gone")))
    assert headroom is not None
    assert isinstance(headroom.ratio, Unknown)
    assert memory_headroom(Memory()) is None
    assert Memory().used_bytes == NOT_OFFERED


# --- Weights -------------------------------------------------------------------------------------------------------------------------


def shard(file: Path, number: int) -> int:
    numpy = pytest.importorskip("numpy")
    file.parent.mkdir(parents=True, exist_ok=True)
    return write_safetensors(file, {f"t{each}": numpy.ones((number, each + 1), "<f2") for each in range(3)})


def weights(child: Process, *names: object) -> Any:
    reading = weights_of(child, [str(name) for name in names], NOW)
    return reading.value if isinstance(reading, Known) else reading.reason


@LINUX
def test_weights_are_the_bytes_of_the_tensors(tmp_path: Path, child: Process) -> None:
    model = tmp_path / "model"
    total = shard(model / "model-00001-of-00002.safetensors", 5) + shard(model / "model-00002-of-00002.safetensors", 9)
    assert weights(child, model) == total
    shard(model / "consolidated.safetensors", 50)  # the same in another form
    assert weights(child, model) == total
    adapter = shard(tmp_path / "adapter" / "adapters.safetensors", 2)
    shard(tmp_path / "adapter" / "0000100_adapters.safetensors", 2)  # a checkpoint
    assert weights(child, model, tmp_path / "adapter") == total + adapter
    assert weights(child, model, tmp_path / "nowhere") == Reason.NO_SOURCE


@LINUX
def test_a_relative_path_counts_from_the_servers_folder(tmp_path: Path) -> None:
    total = shard(tmp_path / "models" / "x" / "model.safetensors", 5)
    with sleeping(cwd=tmp_path) as process:
        assert weights(process, "models/x") == total


@LINUX
def test_a_repository_is_found_in_the_servers_own_cache(tmp_path: Path) -> None:
    repository = tmp_path / "hub" / "models--org--tiny"
    total = shard(repository / "snapshots" / "abc123" / "model.safetensors", 5)
    shard(repository / "snapshots" / "old" / "model.safetensors", 90)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("abc123")
    with sleeping(cwd=tmp_path, env={**os.environ, "HF_HUB_CACHE": str(tmp_path / "hub")}) as process:
        assert weights(process, "org/tiny") == total
        assert weights(process, "org/other") == Reason.NO_SOURCE


@LINUX
@pytest.mark.parametrize("content", [b"", b"12345678", (10**18).to_bytes(8, "little") + b"{", (5).to_bytes(8, "little") + b"GGUFF", b"version https://git-lfs"])
def test_broken_files_have_no_weights(tmp_path: Path, child: Process, content: bytes) -> None:
    (tmp_path / "model.safetensors").write_bytes(content)
    assert weights(child, tmp_path) == Reason.INVALID
    (tmp_path / "model.gguf").write_bytes(b"GGUF" + content)
    assert weights(child, tmp_path / "model.gguf") == Reason.INVALID


@LINUX
def test_a_pipe_is_not_waited_for(tmp_path: Path, child: Process) -> None:
    os.mkfifo(tmp_path / "model.safetensors")
    os.mkfifo(tmp_path / "config.json")
    assert weights(child, tmp_path) == Reason.INVALID
    assert value(model_config(tmp_path, NOW).type) == Reason.NO_SOURCE


@LINUX
def test_no_path_is_told(tmp_path: Path, child: Process) -> None:
    secret = tmp_path / "secret-owner"
    shard(secret / "model.safetensors", 1)
    for name in (secret, secret / "nowhere"):
        assert "secret-owner" not in repr(weights_of(child, [str(name)], NOW))


def gguf(file: Path, tensors: bytes, alignment: int | None = None, padding: bytes = b"") -> Path:
    """A GGUF file with entries of every kind and one tensor."""

    def text(word: str) -> bytes:
        return struct.pack("<Q", len(word)) + word.encode()

    entries = [
        text("a.string") + struct.pack("<I", 8) + text("llama"),
        text("a.bool") + struct.pack("<IB", 7, 1),
        text("a.double") + struct.pack("<Id", 12, 0.5),
        text("words") + struct.pack("<IIQ", 9, 8, 2) + text("one") + text("two"),
        text("scores") + struct.pack("<IIQ3f", 9, 6, 3, 1, 2, 3),
    ]
    if alignment is not None:
        entries.append(text("general.alignment") + struct.pack("<II", 4, alignment))
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, len(entries)) + b"".join(entries)
    head += text("blk.0.weight") + struct.pack("<I2QIQ", 2, 4, len(tensors) // 8, 1, 0)
    step = alignment or 32
    file.write_bytes(head + b"\0" * (-len(head) % step) + tensors + padding)
    return file


@pytest.mark.parametrize("alignment", [None, 32, 64, 4096])
def test_gguf_tensors_are_all_behind_the_head(tmp_path: Path, alignment: int | None) -> None:
    assert gguf_tensor_bytes(gguf(tmp_path / "m.gguf", b"x" * 640, alignment)) == 640


def test_gguf_of_the_real_writer(tmp_path: Path) -> None:
    """The tensors' bytes by the reader of the format's own library."""
    gguf_package = pytest.importorskip("gguf")
    file = tmp_path / "tiny.gguf"
    write_tiny_model(file)
    expected = sum(int(tensor.n_bytes) for tensor in gguf_package.GGUFReader(file).tensors)
    assert expected <= gguf_tensor_bytes(file) <= expected + 32 * len(gguf_package.GGUFReader(file).tensors)


def test_a_cut_or_lying_gguf_is_refused(tmp_path: Path) -> None:
    whole = gguf(tmp_path / "m.gguf", b"x" * 64).read_bytes()
    for end in range(0, len(whole) - 64 - 32, 7):
        (tmp_path / "cut.gguf").write_bytes(whole[:end])
        with pytest.raises(ValueError):
            gguf_tensor_bytes(tmp_path / "cut.gguf")
    (tmp_path / "lying.gguf").write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 2**60, 2**60))
    with pytest.raises(ValueError):
        gguf_tensor_bytes(tmp_path / "lying.gguf")


# --- Installed version ---------------------------------------------------------------------------------------------------------------


def environment(folder: Path, *names: str) -> Path:
    site = folder / "lib" / "python3.11" / "site-packages"
    for name in names:
        (site / name).mkdir(parents=True)
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    return folder / "bin"


@LINUX
@pytest.mark.parametrize(
    ("folders", "expected"),
    [
        (("mlx_lm-0.32.2.dist-info", "mlx-0.32.4.dist-info", "mlx_lm_extra-1.0.dist-info"), "0.32.2"),
        (("mlx_lm-0.31.0rc1.dist-info",), "0.31.0rc1"),
        (("mlx-0.32.4.dist-info",), Reason.NO_SOURCE),
        (("mlx_lm-secret/../x.dist-info",), Reason.NO_SOURCE),
        (("mlx_lm-0.31.0.dist-info", "mlx_lm-0.32.2.dist-info"), Reason.AMBIGUOUS),
    ],
)
def test_the_version_stands_beside_the_interpreter(tmp_path: Path, child: Process, folders: tuple[str, ...], expected: Any) -> None:
    programs = environment(tmp_path, *folders)
    for argv in ((f"{programs}/python", "-m", "mlx_lm.server"), ("python3", f"{programs}/mlx_lm.server")):
        reading = installed_version(Process(child.pid, child.created, argv, {}), "mlx-lm", NOW)
        assert (reading.value if isinstance(reading, Known) else reading.reason) == expected
    by_path = Process(child.pid, child.created, ("python3", "-m", "mlx_lm.server"), {"PATH": f"/nowhere:{programs}"})
    reading = installed_version(by_path, "mlx-lm", NOW)
    assert (reading.value if isinstance(reading, Known) else reading.reason) == expected


def test_the_machines_memory_is_psutils() -> None:
    assert value(total_bytes(NOW)) == (psutil.virtual_memory().total, "memory of the machine")


# --- The model's own words -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "kind", "length"),
    [
        ('{"model_type": "llama", "max_position_embeddings": 4096}', "llama", 4096),
        ('{"model_type": "llama4", "text_config": {"max_position_embeddings": 10485760}}', "llama4", 10_485_760),
        ('{"model_type": "mamba"}', "mamba", Reason.NOT_REPORTED),
        ('{"model_type": 5, "max_position_embeddings": "many", "text_config": []}', Reason.INVALID, Reason.INVALID),
        ('{"model_type": "llama", "max_position_embeddings": 0}', "llama", Reason.INVALID),
        ("[]", Reason.INVALID, Reason.INVALID),
        ('{"model_type": "lla', Reason.INVALID, Reason.INVALID),
        ("[" * 100_000, Reason.INVALID, Reason.INVALID),
        ('{"model_type": "llama", "x": "' + "y" * 2**20 + '"}', Reason.INVALID, Reason.INVALID),
    ],
)
def test_config_json(tmp_path: Path, config: str, kind: Any, length: Any) -> None:
    (tmp_path / "config.json").write_text(config)
    read = model_config(tmp_path, NOW)
    assert [reading.value if isinstance(reading, Known) else reading.reason for reading in (read.type, read.context)] == [kind, length]


def test_without_config_json_nothing_is_known(tmp_path: Path) -> None:
    assert value(model_config(tmp_path, NOW).context) == Reason.NO_SOURCE
    assert value(model_config(Unknown(Reason.UNAUTHORIZED, "not ours"), NOW).type) == Reason.UNAUTHORIZED
