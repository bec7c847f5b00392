"""What docs/commands.md tells of each command: its own words, arguments and options."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any

import typer.main
from typer.core import TyperGroup

from inspector.cli import app

Parameter = Any
"""Of Typer's own copy of click, which has no public name."""


def commands() -> Mapping[str, Any]:
    """Each command by what is typed after `inspector`."""
    return dict(_commands(typer.main.get_command(app), ""))


def options(command: Any) -> list[Parameter]:
    return [parameter for parameter in command.params if parameter.param_type_name == "option"]


def arguments(command: Any) -> list[Parameter]:
    return [parameter for parameter in command.params if parameter.param_type_name == "argument"]


def sections() -> Iterator[str]:
    """The lines of all commands, a section each."""
    for name, command in commands().items():
        yield from (f"## inspector {name}", "", _unindented(command.help or ""), "")
        if command.params:
            yield from ("| argument, option | meaning |", "|---|---|")
            yield from (f"| {_typed(parameter)} | {_cell(parameter.help or '')} |" for parameter in (*arguments(command), *options(command)))
            yield ""


def _commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    if isinstance(command, TyperGroup):
        for child, inner in command.commands.items():
            yield from _commands(inner, f"{name} {child}".strip())
    else:
        yield name, command


def _typed(parameter: Parameter) -> str:
    """How a parameter is typed: `--config, -c FILE`, `[URL]...`."""
    if parameter.param_type_name == "argument":
        value = _cell(parameter.metavar or parameter.name.upper())
        return f"`[{value}]...`" if parameter.nargs < 0 else f"`{value}`"
    names = ", ".join([*parameter.opts, *parameter.secondary_opts])
    return f"`{_cell(f'{names} {_value(parameter)}'.strip())}`"


def _value(parameter: Parameter) -> str:
    """What follows the option. Only what every version of Typer tells of a parameter is used."""
    if parameter.is_flag:
        return ""
    if isinstance(parameter.default, Enum):
        return "|".join(type(parameter.default))
    return str(parameter.metavar or parameter.name.upper())


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _unindented(text: str) -> str:
    return "\n".join(line.strip() for line in text.replace("\f", "").strip().splitlines())
