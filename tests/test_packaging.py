"""What is shipped, and what must not stand in the tree."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import entry_points, version
from pathlib import Path

import pytest

import inspector

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PACKAGES = [Path(path) for path in PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]]
GROUP = "inspector.adapters"


def tracked() -> list[Path]:
    """Files of the tree: those that git keeps or would keep."""
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("this is not a git work tree")
    return [path for name in listed.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def test_every_adapter_of_the_shelf_is_an_entry_point_and_resolves():
    """A forgotten entry point would be an adapter that nobody finds."""
    shelf = {path.name.removeprefix("inspector_") for path in (ROOT / "adapters").glob("inspector_*") if path.is_dir()}
    declared = PROJECT["project"]["entry-points"][GROUP]
    assert set(declared) == shelf
    installed = {point.name: point for point in entry_points(group=GROUP) if point.name in declared}
    assert set(installed) == shelf
    for name, point in installed.items():
        assert point.value == declared[name]
        assert point.load().name == name


def test_the_command_resolves():
    (point,) = {point for point in entry_points(group="console_scripts") if point.name == "inspector"}
    assert point.value == PROJECT["project"]["scripts"]["inspector"]
    assert callable(point.load())


def test_the_version_has_one_source():
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert "version" not in PROJECT["project"]
    assert PROJECT["tool"]["hatch"]["version"]["path"] == "inspector/__init__.py"
    assert version("inference-inspector") == inspector.__version__
    written = [path for path in (ROOT / "inspector").rglob("*.py") if re.search(r"^__version__\s*=", path.read_text(encoding="utf-8"), re.MULTILINE)]
    assert written == [ROOT / "inspector" / "__init__.py"]


@pytest.mark.parametrize("package", PACKAGES, ids=str)
def test_a_package_says_that_it_is_typed(package):
    assert (ROOT / package / "py.typed").is_file()
    assert (ROOT / package / "__init__.py").is_file()


def test_every_import_package_is_shipped():
    here = {Path("inspector"), *(path.relative_to(ROOT) for path in (ROOT / "adapters").glob("inspector_*") if path.is_dir())}
    assert set(PACKAGES) == here


def test_the_wheel_holds_everything_that_the_packages_need(tmp_path):
    """Built as a user's installer builds it, without the network."""
    pytest.importorskip("hatchling", reason="hatchling is not installed here; `pip install .` brings its own")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    shipped = set(zipfile.ZipFile(wheel).namelist())
    for package in PACKAGES:
        sources = [path for path in (ROOT / package).rglob("*") if path.is_file() and "__pycache__" not in path.parts]
        assert {str(Path(package.name) / path.relative_to(ROOT / package)) for path in sources} <= shipped
    assert not [name for name in shipped if name.startswith(("tests/", "adapters/", "bench/"))]


def test_the_templates_stand_inside_a_package():
    """What lies beside the packages does not reach a user."""
    templates = [path for path in tracked() if path.suffix in {".html", ".j2", ".css", ".js"} and "fixtures" not in path.parts and "docs" not in path.parts]
    outside = [path for path in templates if not any((ROOT / package) in path.parents for package in PACKAGES) and "tests" not in path.parts]
    assert outside == []


def test_the_pinned_versions_name_versions_and_nothing_else():
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        assert line.startswith("#") or re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.!+]*", line), line


def test_every_dependency_is_pinned():
    """Otherwise CI would run with other versions each day."""
    normal = lambda name: re.sub(r"[-_.]+", "-", name).lower()  # noqa: E731
    pinned = {normal(line.partition("==")[0]) for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines() if "==" in line}
    wanted = [*PROJECT["project"]["dependencies"], *(d for several in PROJECT["project"]["optional-dependencies"].values() for d in several)]
    assert {normal(re.split(r"[<>=!~ \[]", dependency, maxsplit=1)[0]) for dependency in wanted} <= pinned


LOCKS = {"uv.lock", "poetry.lock", "Pipfile.lock", "pdm.lock", "pylock.toml", "package-lock.json", "yarn.lock", "pnpm-lock.yaml"}


def test_there_is_no_lock_file():
    assert [path.name for path in tracked() if path.name in LOCKS] == []


# Spelled in pieces, so that this file is not found by its own search.
PIECES = [
    r"/work" + r"/(main|shared)",
    r"/tmp" + r"/w/",
    r"/root" + r"/",
    r"pypi" + r"\.org",
    r"python" + r"hosted\.org",
    r"registry\.npm" + r"js",
    r"artifact" + r"ory",
    r"index" + r"-url",
]
PLACES = re.compile("|".join(PIECES))


def test_no_path_of_a_machine_and_no_host_of_a_registry_stands_in_the_tree():
    found = []
    for path in tracked():
        text = path.read_bytes().decode("utf-8", errors="ignore")
        found += [f"{path.relative_to(ROOT)}:{number}: {match[0]}" for number, line in enumerate(text.splitlines(), 1) if (match := PLACES.search(line))]
    assert found == []
