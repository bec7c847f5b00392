"""The Dockerfile, carried out without Docker: each of its commands, with what reaches the builder and nothing else, and then the image's own entry point.

One build for all tests of the file; it takes the dependencies from where pip takes them on this machine.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from dockerfile import Builder, in_context, instructions
from inspector import __version__
from recorded_server import recorded_server

ROOT = Path(__file__).parent.parent
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
IGNORE = (ROOT / ".dockerignore").read_text(encoding="utf-8")
OFFLINE = re.compile(r"NewConnectionError|Failed to establish a new connection|name resolution|Network is unreachable")
BUILDERS_OWN = re.compile(r"PIP_|SSL_CERT_|REQUESTS_CA_BUNDLE|https?_proxy|no_proxy", re.IGNORECASE)
"""Variables that a builder hands to the commands: where packages come from."""


class Built:
    """The finished image: how its processes are started, and as whom."""

    def __init__(self, folder: Path, stage, python: str) -> None:
        self.folder, self.stage = folder, stage
        user, group = map(int, stage.user.split(":"))
        identity = {"user": user, "group": group, "extra_groups": []}
        self.identity = identity if os.geteuid() == 0 and runs(python, identity) else {}

    @property
    def options(self):
        variables = {name: value for name, value in self.stage.environment.items() if not BUILDERS_OWN.match(name)}
        return {"env": variables, "cwd": self.stage.root, **self.identity}

    def program(self, words):
        """A command with its program looked up as the image looks it up: on the image's PATH."""
        found = shutil.which(words[0], path=self.stage.environment["PATH"])
        assert found is not None
        return [found, *words[1:]]

    def run(self, *words):
        return subprocess.run(self.program([*self.stage.entrypoint, *words]), capture_output=True, text=True, check=False, **self.options)

    def healthy(self, port: int) -> int:
        command = [word.replace("9836", str(port)) for word in self.program(self.stage.healthcheck)]
        return subprocess.run(command, capture_output=True, check=False, **self.options).returncode

    def files(self):
        return {path: path.lstat().st_mtime_ns for path in self.folder.rglob("*") if not path.is_dir() or path.is_symlink()}


def runs(python, identity) -> bool:
    """Whether another user can run this Python: one below the home of root it cannot."""
    with contextlib.suppress(PermissionError):
        return subprocess.run([python, "-c", ""], check=False, **identity).returncode == 0
    return False


@pytest.fixture(scope="module")
def built():
    """The image. Below the system's own temporary folder, because another user than this one runs it."""
    folder = Path(tempfile.mkdtemp(prefix="inspector-image-"))
    folder.chmod(0o755)
    try:
        python = f"{sys.base_prefix}/bin/python{sys.version_info.major}.{sys.version_info.minor}"
        programs = folder / "bin"
        programs.mkdir()
        (programs / "python").write_text(f'#!/bin/sh\nexec {python} "$@"\n', encoding="utf-8")
        (programs / "python").chmod(0o755)
        base = {"PIP_CACHE_DIR": str(Path("~/.cache/pip").expanduser())} | {name: value for name, value in os.environ.items() if BUILDERS_OWN.match(name)}
        base |= {"PATH": f"{programs}:/usr/bin:/bin", "HOME": str(folder)}
        try:
            stage = Builder(DOCKERFILE, ROOT, IGNORE, folder, base).build()
        except subprocess.CalledProcessError as error:
            if OFFLINE.search(error.output) and not os.environ.get("CI"):
                pytest.skip("packages cannot be had here")
            pytest.fail(f"{error.cmd[-1]}\n{error.output}")
        yield Built(folder, stage, python)
    finally:
        shutil.rmtree(folder)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@contextlib.contextmanager
def serving(built, url, port):
    """The image's entry point at work, until it answers `ready`."""
    words = built.program([*built.stage.entrypoint, *built.stage.command, url, "--listen", f"127.0.0.1:{port}"])
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, **built.options)
    try:
        while answer(port, "/-/ready")[0] != 200:
            assert process.poll() is None, process.stderr.read()
        yield
    finally:
        process.terminate()
        process.communicate(timeout=30)


def answer(port, path):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    except ConnectionRefusedError:
        return None, ""
    finally:
        connection.close()


@pytest.mark.stack
def test_the_command_is_there_with_the_version_of_the_source(built):
    done = built.run("--version")
    assert (done.returncode, __version__ in done.stdout) == (0, True), done


@pytest.mark.stack
def test_every_adapter_is_there_and_whole(built):
    done = built.run("adapters")
    assert done.returncode == 0, done
    assert all(engine in done.stdout for engine in ("llamacpp", "mlx", "vllm"))


@pytest.mark.stack
def test_it_serves_as_the_images_user_and_writes_nothing(built):
    """What is written nowhere needs no writable root."""
    before, port = built.files(), free_port()
    assert built.healthy(port) != 0, "nothing listens yet"
    with recorded_server() as server, serving(built, server.url, port):
        assert built.healthy(port) == 0
        status, said = answer(port, "/metrics")
        assert status == 200
        assert re.search(r'^inspector_target_up\{engine="llamacpp".*\} 1', said, re.MULTILINE)
        assert answer(port, "/")[0] == 200, "the page's templates are files, too"
    assert built.healthy(port) != 0, "it has ended"
    assert built.files() == before


@pytest.mark.stack
def test_another_answer_than_200_is_not_healthy(built):
    with recorded_server({"/-/healthy": (503, b"")}) as server:
        assert built.healthy(int(server.url.rpartition(":")[2])) == 1


@pytest.mark.stack
def test_nothing_that_installs_or_builds_is_left_in_the_image(built):
    assert not list(built.stage.root.rglob("pip")) + list(built.stage.root.rglob("hatchling"))
    assert [path.name for path in built.stage.root.iterdir()] == ["opt"]


@pytest.mark.stack
def test_the_dependencies_are_those_that_the_tests_run_with(built):
    pinned = dict(line.lower().replace("_", "-").split("==") for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines() if "==" in line)
    names = [path.name.removesuffix(".dist-info").lower().replace("_", "-") for path in built.stage.root.rglob("*.dist-info")]
    installed = dict(name.rsplit("-", 1) for name in names if not name.startswith("inference-inspector-"))
    assert installed
    assert {name: pinned.get(name) for name in installed} == installed


@pytest.mark.stack
def test_the_user_is_a_number_and_the_labels_are_the_open_container_initiatives(built):
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", built.stage.user)
    assert built.stage.labels["org.opencontainers.image.title"] == "inference-inspector"
    assert all(name.startswith("org.opencontainers.image.") for name in built.stage.labels)


def test_dependencies_come_before_the_source():
    """So that a change of the source leaves their layers as they are."""
    steps = [f"{instruction.word} {instruction.rest}" for instruction in instructions(DOCKERFILE)]
    (dependencies,) = [number for number, step in enumerate(steps) if "--requirement" in step]
    copied = [number for number, step in enumerate(steps) if re.match(r"COPY (?!--from).*\b(inspector|adapters|\.)( |$)", step)]
    assert copied
    assert dependencies < min(copied)
    assert [step.split() for step in steps[:dependencies] if step.startswith("COPY")] == [["COPY", "pyproject.toml", "constraints.txt", "./"]]


def test_only_what_is_needed_reaches_the_builder():
    files = in_context(ROOT, IGNORE)
    assert {path.split("/")[0] for path in files} == {"pyproject.toml", "constraints.txt", "README.md", "LICENSE", "inspector", "adapters"}
    assert not [path for path in files if "__pycache__" in path or "/." in path]
    assert "inspector/py.typed" in files


@pytest.mark.parametrize("left_out", ["pyproject.toml", "adapters"])
def test_what_the_ignore_file_leaves_out_would_be_missed(left_out, tmp_path):
    with pytest.raises(FileNotFoundError, match=left_out):
        Builder(f"FROM python:${{PYTHON}}-slim\nWORKDIR /source\nCOPY {left_out} ./\n", ROOT, f"{IGNORE}\n{left_out}\n", tmp_path, {}).build()


def test_patterns_of_the_ignore_file_are_read_as_docker_reads_them(tmp_path):
    for name in ("a/b/c.py", "a/__pycache__/c.pyc", "d/secret.key", "e.md", "f.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert in_context(tmp_path, "") == {"a/b/c.py", "a/__pycache__/c.pyc", "d/secret.key", "e.md", "f.txt"}
    assert in_context(tmp_path, "*\n!a\n**/__pycache__") == {"a/b/c.py"}
    assert in_context(tmp_path, "*.md\n**/*.key\n?.txt") == {"a/b/c.py", "a/__pycache__/c.pyc"}
