"""The files of deploy/ as tests look at them: parsed, their pods, and the files that a container of theirs finds."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
import yaml

from inspector import __version__
from inspector.cli import app
from inspector.config import Config, load

ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / "deploy"
IMAGE = "inference-inspector:" + ".".join(__version__.split(".")[:2])
KEY = "k3y-of-a-test"


def documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


def manifests() -> list[tuple[str, dict[str, Any]]]:
    """Every object of deploy/kubernetes, with a name to tell it by."""
    found = [(path, document) for path in sorted((DEPLOY / "kubernetes").rglob("*.yaml")) for document in documents(path)]
    return [(f"{path.parent.name}/{path.name}:{document['kind']}", document) for path, document in found]


def objects(kind: str) -> list[dict[str, Any]]:
    return [document for _, document in manifests() if document["kind"] == kind]


@dataclass(frozen=True)
class InspectorPod:
    """A pod template with the inspector in it, as its own container or as a sidecar."""

    name: str
    labels: Mapping[str, str]
    spec: Mapping[str, Any]
    container: Mapping[str, Any]
    sidecar: bool


def inspector_pods() -> Iterator[InspectorPod]:
    for deployment in objects("Deployment"):
        template = deployment["spec"]["template"]
        for kind in ("containers", "initContainers"):
            for container in template["spec"].get(kind, ()):
                if container["name"] == "inspector":
                    yield InspectorPod(deployment["metadata"]["name"], template["metadata"]["labels"], template["spec"], container, kind == "initContainers")


def laid_out(pod: InspectorPod, folder: Path, secrets: Mapping[str, str]) -> dict[str, Path]:
    """The files of the pod's projected volumes that the inspector's container sees, by their paths in it. `secrets` are the keys of the Secret."""
    maps = {document["metadata"]["name"]: document["data"] for document in objects("ConfigMap")}
    mounts = {mount["name"]: mount["mountPath"] for mount in pod.container["volumeMounts"]}
    files = {}
    for volume in pod.spec["volumes"]:
        for source in volume.get("projected", {}).get("sources", ()):
            ((kind, reference),) = source.items()
            data = maps[reference["name"]] if kind == "configMap" else secrets
            items = reference.get("items", [{"key": key, "path": key} for key in data])
            for item in items:
                file = folder / volume["name"] / item["path"]
                file.parent.mkdir(exist_ok=True)
                file.write_text(data[item["key"]], encoding="utf-8")
                files[f"{mounts[volume['name']]}/{item['path']}"] = file
    return files


def filled() -> dict[str, str]:
    """The keys of the shipped Secret, with something in them."""
    (secret,) = objects("Secret")
    return dict.fromkeys(secret["stringData"], KEY)


def option(words: list[str], name: str) -> str:
    return words[words.index(name) + 1]


def understood(words: list[str]) -> bool:
    """Whether the inspector's command line takes these words; nothing is run. Raises its usage error otherwise."""
    group = typer.main.get_command(app)
    command = group.commands[words[0]]
    command.make_context(words[0], list(words[1:]))
    return True


def loaded(path: Path, folder: Path, places: Mapping[str, Path]) -> Config:
    """A shipped configuration, read by the inspector's own loader, with the folders of the real machine laid elsewhere."""
    text = path.read_text(encoding="utf-8")
    for shipped, here in places.items():
        assert shipped in text, f"{path.name} does not name {shipped}"
        text = text.replace(shipped, str(here))
    copy = folder / path.name
    copy.write_text(text, encoding="utf-8")
    return load(copy, {})


def pinned(image: str) -> bool:
    """Whether an image's tag names one version, or one build."""
    return re.fullmatch(r"[a-z0-9./-]+:(v?\d+\.\d+(\.\d+)?|server-b\d+)", image) is not None
