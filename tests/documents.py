"""The Markdown files as tests look at them: their code, their links and headings, and the commands, keys and names in them."""

from __future__ import annotations

import importlib.util
import re
import shlex
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).parent.parent
PAGES = tuple(sorted([*ROOT.glob("*.md"), *(path for folder in ("docs", "deploy", "adapters") for path in (ROOT / folder).rglob("*.md"))]))

FENCE = re.compile(r"^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"(?<!`)(?P<ticks>`+)(?!`)(?P<text>.+?)(?<!`)(?P=ticks)(?!`)", re.DOTALL)
LINK = re.compile(r"\[[^\]\n]*\]\((?P<target>[^)\s]+)\)")
HEADING = re.compile(r"^#+ (?P<text>.+)$", re.MULTILINE)


def of_page(name: str) -> Path:
    return ROOT / name


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@dataclass(frozen=True)
class Fence:
    """A fenced block of a page."""

    page: str
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}: {self.text.splitlines()[0] if self.text else ''}"


def fences(*languages: str) -> list[Fence]:
    """The blocks of all pages in these languages; "" is none."""
    found = [Fence(relative(path), match["language"], match["text"]) for path in PAGES for match in FENCE.finditer(text(path))]
    return [fence for fence in found if fence.language in languages]


def spans(path: Path) -> list[str]:
    """The inline code of a page, in one line each."""
    # In a table `|` is written `\|`.
    return [re.sub(r"\s+", " ", match["text"]).strip().replace("\\|", "|") for match in SPAN.finditer(prose(path))]


def prose(path: Path) -> str:
    """A page without its fenced blocks."""
    return FENCE.sub("", text(path))


def links(path: Path) -> list[str]:
    """The targets of a page's links that lead into the repository."""
    found = [match["target"].strip("<>") for match in LINK.finditer(prose(path))]
    return [target for target in found if not re.match(r"[a-z]+:", target)]


def anchors(path: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    made: set[str] = set()
    for match in HEADING.finditer(prose(path)):
        plain = re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", match["text"]).lower()).replace(" ", "-")
        made.add(next(name for name in (plain, *(f"{plain}-{number}" for number in range(1, 99))) if name not in made))
    return made


# --- Commands ---------------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Typed:
    """A command line that a page shows: its words after `inspector`. `whole`: it can be typed as it stands."""

    page: str
    words: tuple[str, ...]
    whole: bool

    def __str__(self) -> str:
        return f"{self.page}: inspector {' '.join(self.words)}"


def typed() -> list[Typed]:
    """Every command line of the inspector's that a page shows."""
    blocks = [(fence.page, line, True) for fence in fences("", "sh", "console") for line in fence.text.splitlines()]
    code = [(relative(path), span, False) for path in PAGES for span in spans(path)]
    return [command for page, line, whole in [*blocks, *code] for command in _commands(page, line, whole)]


def _commands(page: str, line: str, whole: bool) -> Iterator[Typed]:
    match = re.match(r"(?:\$ )?(?:\S+/)?inspector (?=[a-z-])(?P<rest>[^#]*)", line)
    if match is None or re.search(r"[;&<>]", match["rest"]):
        return
    rest = re.sub(r"\[[^\]]*\]", "", match["rest"]).replace("…", "")
    words = shlex.split(rest)
    # `config check|show FILE` is two commands in one.
    alternatives = [name.split("|") if position < 2 and re.fullmatch(r"[a-z]+(\|[a-z]+)+", name) else [name] for position, name in enumerate(words)]
    for made in _products(alternatives):
        yield Typed(page, made, whole)


def _products(alternatives: list[list[str]]) -> Iterator[tuple[str, ...]]:
    if not alternatives:
        yield ()
        return
    for first in alternatives[0]:
        yield from ((first, *others) for others in _products(alternatives[1:]))


# --- What the documentation is made by ---------------------------------------------------------------------------------------------------------


@cache
def maker(name: str) -> ModuleType:
    """A module of docs/, which is no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def commands() -> Mapping[str, Any]:
    """Each command of the inspector by what is typed."""
    found: Mapping[str, Any] = maker("command_reference").commands()
    return found
