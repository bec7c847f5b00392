"""llama-swap's YAML -> the command of each model. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from inspector.launch.files.command import MAYBE_WORDS, Command, Growth, UnreadableError
from inspector.launch.files.compose import split
from inspector.launch.files.yaml_text import Data, mapping, texts

MACRO = re.compile(r"\$\{([^{}]*)\}")


def llama_swap_commands(document: Data) -> Iterator[Command]:
    """The commands of all models. Raises UnreadableError."""
    models = mapping(mapping(document).get("models"))
    if not models:
        raise UnreadableError("has no models", "name llama-swap's configuration")
    growth = Growth()
    common = _macros(mapping(document).get("macros"), {}, growth)
    for name, model in ((name, mapping(model)) for name, model in models.items()):
        macros = _macros(model.get("macros"), common | {"MODEL_ID": name}, growth)
        command = model.get("cmd")
        if isinstance(command, str):
            pairs = (_filled(item, macros, growth).partition("=") for item in texts(model.get("env")))
            environ = {key: value for key, equals, value in pairs if equals}
            yield Command(tuple(split(_filled(_joined(command), macros, growth))), environ, frozenset({name}))


def _joined(command: str) -> str:
    """A command on one line: without lines that are remarks, and without the backslashes at line ends."""
    lines = (line for line in command.split("\n") if not line.lstrip().startswith("#"))
    return " ".join(line.rstrip().removesuffix("\\") for line in lines)


def _macros(value: Data, known: Mapping[str, str], growth: Growth) -> dict[str, str]:
    """Macros may use those that stand before them."""
    macros = dict(known)
    for name, text in mapping(value).items():
        if isinstance(text, str):
            macros[name] = _filled(_joined(text), macros, growth)
    return macros


def _filled(text: str, macros: Mapping[str, str], growth: Growth) -> str:
    """What is no macro is llama-swap's own, such as the port, or a variable of the environment."""
    return growth.spend(MACRO.sub(lambda found: growth.spend(macros.get(found[1], MAYBE_WORDS)), text))
