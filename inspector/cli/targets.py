"""What the words of a command line stand for: URLs, names of a configuration, or nothing, which means the servers of this machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from inspector.cli.refusal import RefusedError
from inspector.config import Config, ConfigError, Target, from_targets, load
from inspector.discovery import find_servers
from inspector.registry import Registry, load_adapters
from inspector.wiring import Job, found_targets, jobs


@dataclass(frozen=True, slots=True)
class Chosen:
    """The targets that a command is about, and what belongs to them."""

    config: Config
    jobs: tuple[Job, ...]
    adapters: Registry


def choose(words: Sequence[str], file: Path | None) -> Chosen:
    """The targets that were meant. Raises RefusedError for a word, or a file, that cannot be used, and where nothing is found."""
    adapters = load_adapters()
    try:
        config = load(file, engines=adapters.adapters) if file is not None else Config()
        config = _narrowed(config, words) if words else config
        if not config.targets and file is None:
            config = config.model_copy(update={"targets": discover(adapters)})
        chosen = tuple(jobs(config, adapters.adapters))
    except ConfigError as error:
        raise refused(error) from error
    if not chosen:
        raise RefusedError([f"{file} names no target" if file else "no model server found on this machine; name one, such as http://127.0.0.1:8080"])
    return Chosen(config, chosen, adapters)


def discover(adapters: Registry) -> tuple[Target, ...]:
    """The model servers of this machine. Blocking."""
    return found_targets(find_servers(adapters.adapters))


def refused(error: ConfigError) -> RefusedError:
    return RefusedError(str(problem) for problem in error.problems)


def _narrowed(config: Config, words: Sequence[str]) -> Config:
    """The configuration with the named targets only, and with those that were given as URLs."""
    known = {target.name: target for target in config.targets}
    named = tuple(known[word] for word in dict.fromkeys(words) if word in known)
    others = [word for word in words if word not in known]
    strange = [word for word in others if not _is_address(word)]
    if strange:
        names = f"its targets are: {', '.join(known)}" if known else "name a configuration with --config, or give URLs such as http://127.0.0.1:8080"
        raise RefusedError([f"{word}: there is no target of this name; {names}" for word in strange])
    return from_targets(others, config.model_copy(update={"targets": named}))


def _is_address(word: str) -> bool:
    """Whether a word is meant as an address rather than a name: right or wrong, it is then checked as one."""
    return "://" in word or "unix:" in word
