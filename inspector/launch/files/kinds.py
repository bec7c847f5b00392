"""Which kind of launch file it is, by its content and then by its name, and the commands in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from inspector.launch.files.command import Command, UnreadableError
from inspector.launch.files.compose import compose_commands
from inspector.launch.files.files import Files, decoded
from inspector.launch.files.kubernetes import kubernetes_commands
from inspector.launch.files.llama_swap import llama_swap_commands
from inspector.launch.files.plist import plist_commands
from inspector.launch.files.shell_script import script_commands
from inspector.launch.files.supervisord import supervisord_commands
from inspector.launch.files.unit import quadlet_commands, service_commands
from inspector.launch.files.yaml_text import Data, documents

SECTION = re.compile(r"^[ \t]*\[(Service|Container|program:[^\]\n]+)\][ \t]*$", re.MULTILINE)
SHEBANG = re.compile(r"#!.*\b(?:ba|da|k|z|a|)sh\b")
YAML_KEY = re.compile(r"^(?:services|apiVersion|models):(?:\s|$)", re.MULTILINE)
YAML_NAMES = (".yaml", ".yml", ".json")

NO_KIND = "is no launch file that can be read"
KINDS = "name a launchd property list, a systemd unit, a quadlet, a Compose file, a Kubernetes manifest, a shell script, or a file of supervisord or llama-swap"


def commands_in(path: Path, files: Files) -> Iterator[Command]:
    """The commands that a launch file starts. Raises UnreadableError."""
    raw = files.read(path)
    if raw.startswith(b"bplist") or b"<plist" in raw[:2048] or path.suffix == ".plist":
        return plist_commands(raw)
    text = decoded(raw)
    if text.startswith("#!"):
        if SHEBANG.match(text) is None:
            raise UnreadableError("is a program in another language than a shell's", KINDS)
        return script_commands(text)
    section = SECTION.search(text)
    if section is not None:
        return _by_section(section[1], text, path, files)
    if YAML_KEY.search(text) or path.name.endswith(YAML_NAMES):
        return _by_keys(documents(text), path, files)
    if path.suffix == ".service":
        return service_commands(text, path, files)
    return script_commands(text)


def _by_section(section: str, text: str, path: Path, files: Files) -> Iterator[Command]:
    # A quadlet may have a [Service] section too.
    if section == "Container" or re.search(r"^[ \t]*\[Container\][ \t]*$", text, re.MULTILINE):
        return quadlet_commands(text, path, files)
    return service_commands(text, path, files) if section == "Service" else supervisord_commands(text)


def _by_keys(docs: list[Data], path: Path, files: Files) -> Iterator[Command]:
    found = [doc for doc in docs if isinstance(doc, dict)]
    if any("apiVersion" in doc for doc in found):
        return kubernetes_commands(found)
    if found and "services" in found[0]:
        return compose_commands(found[0], path, files)
    if found and "models" in found[0]:
        return llama_swap_commands(found[0])
    raise UnreadableError(NO_KIND, KINDS)
