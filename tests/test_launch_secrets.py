"""What launch files hold beside settings (keys, paths, names, remarks, unknown flags) is in no output, whole files and broken ones alike."""

from __future__ import annotations

import io
import json
import logging
import plistlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
import structlog

from engines.inspecting import NAME, Inspection, inspecting
from inspector.cli import main
from inspector.journal import Changes, Secrets, set_up
from inspector.launch.files import read_launch_file
from inspector.reading import Unknown
from inspector.verbosity import Format, LogLevel
from inspector.web.app import Services, application
from inspector_llamacpp import ADAPTER
from recorded_server import recorded_server

MARK = "zqhidden"
"""Stands in everything that must not be shown; also in the name of the files' folder."""

ARGUMENTS = (
    f"-m /{MARK}/{MARK}.gguf --api-key {MARK}-key --alias {MARK}-alias --unknown-flag {MARK}-unknown --{MARK}-flag --chat-template={MARK}-template "
    f"-b {MARK}-number --cache-type-v {MARK}-type --ubatch-size={MARK}-number --no-slots={MARK} -c 65536 --parallel 2 {MARK}-positional"
)
ENVIRON = {
    "HF_TOKEN": f"{MARK}-token",
    "LLAMA_API_KEY": f"{MARK}-key",
    "LLAMA_ARG_MODEL": f"/{MARK}/model",
    "LLAMA_ARG_CACHE_RAM": f"{MARK}-number",
    "LLAMA_ARG_KV_UNIFIED": f"{MARK}-switch",
    f"{MARK.upper()}_NAME": "1",
}
LINES = "".join(f"{name}={value}\n" for name, value in ENVIRON.items())
WORDS = ARGUMENTS.split()


def plist(folder: Path) -> str | bytes:
    told = {"Label": MARK, "ProgramArguments": [f"/{MARK}/llama-server", *WORDS], "EnvironmentVariables": ENVIRON, "StandardOutPath": f"/{MARK}.log"}
    return plistlib.dumps(told).replace(b"<dict>", f"<!-- {MARK} --><dict>".encode(), 1)


def unit(folder: Path) -> str:
    (folder / f"{MARK}.env").write_text(f"# {MARK}\n{LINES}")
    return (
        f"[Unit]\nDescription={MARK}\n# {MARK}\n[Service]\nEnvironmentFile={folder}/{MARK}.env\nEnvironment=OTHER={MARK}\n"
        f"ExecStartPre=/{MARK}/before\nExecStart=/{MARK}/llama-server {ARGUMENTS}\n"
    )


def quadlet(folder: Path) -> str:
    environment = "".join(f'Environment="{name}={value}"\n' for name, value in ENVIRON.items())
    return f"# {MARK}\n[Container]\nContainerName={MARK}\nImage=ghcr.io/ggml-org/llama.cpp:server\nExec={ARGUMENTS}\n{environment}Volume=/{MARK}:/{MARK}\n"


def compose(folder: Path) -> str:
    (folder / "own.env").write_text(f"# {MARK}\n{LINES}")
    return (
        f"# {MARK}\nx-{MARK}: &{MARK} {{OTHER: {MARK}}}\nservices:\n  {MARK}:\n    image: ghcr.io/ggml-org/llama.cpp:server\n    env_file: own.env\n"
        f"    environment: {{<<: *{MARK}, LAST: '${{UNSET:-{MARK}}}', TOKEN: '{MARK}'}}\n    volumes: ['/{MARK}:/{MARK}']\n    command: {json.dumps(WORDS)}\n"
    )


def kubernetes(folder: Path) -> str:
    container = {
        "name": MARK,
        "image": "ghcr.io/ggml-org/llama.cpp:server",
        "args": WORDS,
        "env": [{"name": name, "value": value} for name, value in ENVIRON.items()],
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": MARK, "labels": {"a": MARK}}, "spec": {"containers": [container]}}
    return f"# {MARK}\n" + json.dumps(pod, indent=1)


def script(folder: Path) -> str:
    exports = "".join(f"export {name}='{value}'\n" for name, value in ENVIRON.items())
    command = f'exec "/{MARK}/llama-server" {ARGUMENTS} --other "$MORE" "${{UNSET:-{MARK}}}" >> /{MARK}.log'
    return f'#!/bin/sh\n# {MARK}\n{exports}MORE="{MARK}"\ncd /{MARK}\n{command}\n'


def supervisord(folder: Path) -> str:
    environment = ",".join(f'{name}="{value}"' for name, value in ENVIRON.items())
    return f"; {MARK}\n[supervisord]\nlogfile=/{MARK}.log\n[program:{MARK}]\ncommand=/{MARK}/llama-server {ARGUMENTS} ; {MARK}\nenvironment={environment}\n"


def llama_swap(folder: Path) -> str:
    model = {"cmd": "${base} " + ARGUMENTS, "env": [f"{name}={value}" for name, value in ENVIRON.items()], "aliases": [MARK]}
    return f"# {MARK}\n" + json.dumps({"macros": {"base": f"/{MARK}/llama-server --key {MARK}"}, "models": {MARK: model}}, indent=1)


KINDS: dict[str, Callable[[Path], str | bytes]] = {
    "chat.plist": plist,
    "chat.service": unit,
    "chat.container": quadlet,
    "compose.yaml": compose,
    "pod.yaml": kubernetes,
    "start.sh": script,
    "supervisord.conf": supervisord,
    "llama-swap.yaml": llama_swap,
}

YAML_FILES = ("compose.yaml", "pod.yaml", "llama-swap.yaml")
"""A parser of YAML may quote the line that it stumbles over."""

BROKEN_LINE = f'\n{MARK}: [ }} & < "{MARK} ${{{MARK} \\\n'.encode()
CUTS = 60


def with_broken_line(whole: bytes) -> bytes:
    """With a line in its middle that no format allows."""
    middle = whole.find(b"\n", len(whole) // 2)
    return whole[:middle] + BROKEN_LINE + whole[middle:]


def broken(whole: bytes) -> Iterator[bytes]:
    """The file cut short at many places, with a broken line, and as no text at all."""
    yield from (whole[: len(whole) * part // CUTS - 1] for part in range(1, CUTS + 1))
    yield with_broken_line(whole)
    yield b"bplist00" + whole
    yield whole.replace(MARK.encode(), MARK.encode() + b"\xff\xfe\x00")


@dataclass
class Outputs:
    """All that was written about one target, by where."""

    texts: dict[str, str] = field(default_factory=dict)

    def hide(self) -> None:
        for where, text in self.texts.items():
            at = text.lower().find(MARK)
            assert at < 0, (where, text[max(0, at - 200) : at + 100])


@pytest.fixture
def plain_structlog() -> Iterator[None]:
    """The journal's set-up reaches into the standard library's logging."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    structlog.reset_defaults()
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with recorded_server() as server:
        yield server.url


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / f"{MARK}-folder"
    made.mkdir()
    return made


@pytest.fixture
def commands(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[[Path], Outputs]:
    """What `check --json` and `explain` print, and the bundle that is saved."""
    config, saved = tmp_path / "inspector.yaml", tmp_path / "saved.json"

    def printed(*words: object) -> str:
        monkeypatch.setattr(sys, "argv", ["inspector", *map(str, words)])
        with pytest.raises(SystemExit):
            main()
        out, err = capsys.readouterr()
        return out + err

    def run(path: Path) -> Outputs:
        config.write_text("targets:\n  - " + json.dumps({"name": NAME, "url": url, "engine": "llamacpp", "launch": {"file": str(path)}}) + "\n")
        saved.unlink(missing_ok=True)
        outputs = Outputs({"check --json": printed("check", "--config", config, "--json")})
        outputs.texts["explain"] = printed("explain", NAME, "--config", config, "--save", saved)
        outputs.texts["bundle"] = saved.read_text()
        return outputs

    return run


PAGES = ("/", "/metrics", "/api/v1/targets", "/sd", f"/probe?target={NAME}")


async def served(url: str, path: Path) -> Outputs:
    """What the web server and the journal tell, with nothing in the journal masked."""
    journal = io.StringIO()
    set_up(Secrets(), Format.JSON, LogLevel.DEBUG, journal)
    outputs = Outputs()
    async with inspecting(url, launch={"file": str(path)}) as inspection:
        snapshot = await inspection.poll()
        Changes().note(snapshot)
        outputs.texts["snapshot"] = repr(snapshot)
        outputs.texts["faults"] = "".join(f"{fault.detail}" for fault in snapshot.faults)
        async with client(inspection) as asking:
            for page in PAGES:
                reply = await asking.get(page)
                assert reply.status_code == 200, page
                outputs.texts[page] = reply.text
    outputs.texts["journal"] = journal.getvalue()
    assert NAME in outputs.texts["journal"]
    return outputs


def client(inspection: Inspection) -> httpx.AsyncClient:
    async def probe(_: str) -> bool:
        return True

    services = Services(probe=probe, missing=lambda: "")
    return httpx.AsyncClient(transport=httpx.ASGITransport(application(inspection.board, services)), base_url="http://inspector.test")


def write(folder: Path, name: str) -> tuple[Path, bytes]:
    text = KINDS[name](folder)
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path, path.read_bytes()


def launch_file_of(outputs: Outputs) -> dict[str, Any]:
    told = json.loads(outputs.texts["bundle"])["launch_file"]
    assert isinstance(told, dict)
    return told


@pytest.mark.usefixtures("plain_structlog")
@pytest.mark.parametrize("name", KINDS)
def test_a_whole_file_tells_its_settings_and_nothing_else(name: str, url: str, folder: Path, commands: Callable[[Path], Outputs]) -> None:
    path, whole = write(folder, name)
    assert whole.count(MARK.encode()) > 10
    outputs = commands(path)
    told = launch_file_of(outputs)["settings"]
    assert (told["parallel"]["value"], told["ctx_size"]["value"]) == (2, 65536), "the file was read"
    assert {told[setting]["reason"] for setting in ("batch_size", "cache_type_v", "ubatch_size", "cache_ram", "kv_unified")} == {"invalid"}
    assert name in outputs.texts["explain"]
    outputs.hide()
    anyio.run(served, url, path).hide()


@pytest.mark.usefixtures("plain_structlog")
@pytest.mark.parametrize("name", KINDS)
def test_a_broken_file_is_told_of_without_a_word_of_it(name: str, url: str, folder: Path, commands: Callable[[Path], Outputs]) -> None:
    path, whole = write(folder, name)
    path.write_bytes(with_broken_line(whole) if name in YAML_FILES else whole[: len(whole) // 2])
    outputs = commands(path)
    assert name in json.dumps(launch_file_of(outputs))
    outputs.hide()
    anyio.run(served, url, path).hide()


@pytest.mark.parametrize("name", KINDS)
def test_wherever_a_file_is_broken_what_is_read_of_it_holds_nothing_hidden(name: str, folder: Path) -> None:
    path, whole = write(folder, name)
    refused = 0
    for number, text in enumerate(broken(whole)):
        path.write_bytes(text)
        view = read_launch_file(path, None, ADAPTER.flags, at=0.0)
        refused += isinstance(view, Unknown)
        Outputs({f"variant {number}": repr(view)}).hide()
    assert refused > 0, "none of them was broken"


def test_the_search_finds_what_is_shown() -> None:
    with pytest.raises(AssertionError, match="explain"):
        Outputs({"check": "", "explain": f"a {MARK.upper()} b"}).hide()
