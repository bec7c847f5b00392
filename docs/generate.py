"""Writes the parts of docs/metrics.md and docs/commands.md that the program knows itself: between `<!-- made: NAME -->` and `<!-- end -->`.

    python docs/generate.py            # writes
    python docs/generate.py --check    # writes nothing, exits with 1 where a file differs

What stands outside of the marks is written by hand and kept.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

import command_reference
import metric_reference

HERE = Path(__file__).parent
MARKED = re.compile(r"(<!-- made: (?P<name>[\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)

PARTS: Mapping[str, Callable[[], Iterable[str]]] = {
    "labels": metric_reference.labels,
    "not-exported": metric_reference.not_exported,
    "commands": command_reference.sections,
    **{f"metrics-{group}": partial(metric_reference.table, group) for group in metric_reference.GROUPS},
}

FILES = ("metrics.md", "commands.md")


def filled(text: str) -> str:
    """A document with its made parts as they are to be. Raises ValueError for a part that is not known."""

    def fill(match: re.Match[str]) -> str:
        part = PARTS.get(match["name"])
        if part is None:
            raise ValueError(f"there is no part {match['name']!r}; there are {', '.join(PARTS)}")
        return f"{match[1]}{chr(10).join(part()).strip()}\n{match[3]}"

    return MARKED.sub(fill, text)


def main(argv: Sequence[str] | None = None) -> int:
    """Writes or checks the documents; 1 where one differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing, exit with 1 where a file differs")
    parser.add_argument("--folder", type=Path, default=HERE, help="where the documents are")
    options = parser.parse_args(argv)
    differing = False
    for path in (options.folder / name for name in FILES):
        before = path.read_text(encoding="utf-8")
        after = filled(before)
        if after == before:
            continue
        if options.check:
            sys.stderr.write(f"{path.name} is not what the program says: run python docs/generate.py\n")
            differing = True
        else:
            path.write_text(after, encoding="utf-8")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
