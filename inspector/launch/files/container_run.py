"""`docker run` and `podman run` as a command: the image, what the container's process gets as arguments, and its environment. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from inspector.launch.files.command import UNRESOLVED, Command

ENGINES = frozenset({"docker", "podman", "nerdctl"})


def container_run(command: Command, is_image: Callable[[str], bool], is_server: Callable[[Sequence[str]], bool]) -> Command | None:
    """The command inside the container; None where it is no such run, or neither the engine's image nor its command is in it.

    The options of these tools are many, so the image is known by its name, and another image's command by its own words.
    """
    argv = command.argv
    names = [word.rpartition("/")[2] for word in argv]
    start = next((index for index in range(len(argv) - 1) if names[index] in ENGINES and "run" in argv[index + 1 : index + 3]), None)
    if start is None:
        return None
    options = argv.index("run", start) + 1
    image = next((index for index in range(options, len(argv)) if is_image(argv[index])), None)
    # Behind an option stands its value, such as a container's name; a command stands behind the image.
    commands = (index for index in range(options + 1, len(argv)) if not argv[index - 1].startswith("-") and not argv[index].startswith("-"))
    end = image if image is not None else next((index for index in commands if is_server(argv[index:])), None)
    if end is None:
        return None
    given = list(_options(argv[options:end]))
    environ = dict(_variable(value) for name, value in given if name in ("-e", "--env"))
    missing = ("an environment file of the container was not read",) if any(name == "--env-file" for name, _ in given) else ()
    run = replace(command, environ=environ, missing=(*command.missing, *missing))
    if image is None:
        return replace(run, argv=argv[end:], image=None)
    entry = next((value for name, value in given if name == "--entrypoint" and value), None)
    arguments = argv[image + 1 :]
    return replace(run, argv=(entry, *arguments), image=None) if entry is not None else replace(run, argv=arguments, image=argv[image])


def _options(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Options with the word that may be their value."""
    for index, word in enumerate(words):
        if word.startswith("-e") and len(word) > 2:
            yield "-e", word[2:]
            continue
        name, equals, value = word.partition("=")
        if name.startswith("-"):
            yield name, value if equals else words[index + 1] if index + 1 < len(words) else ""


def _variable(text: str) -> tuple[str, str]:
    """A name without a value is taken from the environment of whoever runs it."""
    name, equals, value = text.partition("=")
    return name, value if equals else UNRESOLVED
