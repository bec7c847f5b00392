"""The configuration: a YAML file, or the targets of a command line, as frozen models. `docs/configuration.md` describes every key.

`load` and `from_targets` are the ways in; what they return is checked, its files were read, and paths begin in the file's folder.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import Field, ValidationError, model_validator

from inspector.address import parse_address, parse_listen
from inspector.config import types as kinds
from inspector.config.alerts import Alertmanager, Alerts
from inspector.config.checks import DEFAULT_LISTEN, GUARD, UNGUARDED, check, is_guarded
from inspector.config.errors import ConfigError, Finding, Problem, finding, place
from inspector.config.target import Target
from inspector.config.types import Section
from inspector.config.yaml_file import LARGEST_FILE, Document, read_yaml
from inspector.secrets import Secret, why

COMMAND_LINE = "command line"
AnyThreshold = TypeVar("AnyThreshold", "Threshold", "SessionThreshold")


def _falling(threshold: AnyThreshold) -> AnyThreshold:
    """Headroom falls through the warning before it falls through the critical mark."""
    if threshold.warning is not None and threshold.critical is not None and threshold.critical > threshold.warning:
        raise ValueError("has a critical mark above the warning mark; headroom falls through warning first, so make critical the smaller one")
    return threshold


class Poll(Section):
    """How targets are polled. Seconds; `interval` None is the adapter's own; `stale_after` counts polls."""

    interval: kinds.MaybeInterval = None
    timeout: kinds.Duration = 3.0
    stale_after: Annotated[int, Field(ge=1, le=1000)] = 3


class SessionShape(Section):
    """A kind of session: tokens of its longest useful prompt and of its intended output."""

    prompt: kinds.Tokens
    output: kinds.Tokens


class Threshold(Section):
    """Shares of headroom, 0 to 1, below which is warned."""

    warning: kinds.Share | None = None
    critical: kinds.Share | None = None

    @model_validator(mode="after")
    def _ordered(self) -> Threshold:
        return _falling(self)


class SessionThreshold(Section):
    """Numbers of sessions that must still fit."""

    warning: Annotated[int, Field(ge=1)] | None = None
    critical: Annotated[int, Field(ge=1)] | None = None

    @model_validator(mode="after")
    def _ordered(self) -> SessionThreshold:
        return _falling(self)


class Thresholds(Section):
    """A threshold that is given replaces its default whole."""

    kv: Threshold = Threshold(warning=0.15, critical=0.05)
    memory: Threshold = Threshold(warning=0.15, critical=0.05)
    slots: Threshold = Threshold()
    context: Threshold = Threshold()
    sessions: dict[kinds.SessionName, SessionThreshold] = Field(default_factory=dict)


class Web(Section):
    """Who may read, whether `POST /-/reload` is answered, and whether each slot has series of its own."""

    bearer_token_file: kinds.KeyFile | None = None
    allow_unauthenticated: bool = False
    reload: bool = False
    slot_series: bool = False

    @property
    def bearer_token(self) -> Secret | None:
        return self.bearer_token_file.key if self.bearer_token_file else None


class Config(Section):
    """The whole configuration."""

    listen: kinds.ListenAddress = DEFAULT_LISTEN
    poll: Poll = Poll()
    sessions: dict[kinds.SessionName, SessionShape] = Field(default_factory=dict)
    thresholds: Thresholds = Thresholds()
    alerts: Alerts = Alerts()
    alertmanager: Alertmanager | None = None
    web: Web = Web()
    targets: kinds.Listed[Target] = ()

    @property
    def listen_address(self) -> tuple[str, int]:
        """Host and port."""
        return parse_listen(self.listen)

    def target(self, name: str) -> Target | None:
        return next((target for target in self.targets if target.name == name), None)

    def interval_of(self, target: Target, adapters_own: float) -> float:
        """Seconds between two polls: the target's, else the file's, else the adapter's."""
        return next(interval for interval in (target.interval, self.poll.interval, adapters_own) if interval is not None)

    def sessions_of(self, target: Target) -> dict[str, SessionShape]:
        """The session shapes that are asked of a target: those it names, else all."""
        return {name: shape for name, shape in self.sessions.items() if target.sessions is None or name in target.sessions}

    def with_listen(self, listen: str) -> Config:
        """The same configuration on the address of a `--listen` option. Raises ConfigError."""
        try:
            guarded = is_guarded(listen, {"bearer_token_file": self.web.bearer_token_file, "allow_unauthenticated": self.web.allow_unauthenticated})
        except ValueError as error:
            raise ConfigError([_argument_problem("--listen", error)]) from None
        if not guarded:
            raise ConfigError([Problem(COMMAND_LINE, None, "--listen", UNGUARDED, GUARD)])
        return self.model_copy(update={"listen": listen})

    def masked(self) -> dict[str, Any]:
        """The configuration as plain data to show: header values masked, launch lines hidden, keys by the name of their source."""
        return self.model_dump(mode="json", exclude_none=True, by_alias=True)


def load(path: Path, environment: Mapping[str, str] = os.environ, *, engines: Iterable[str] | None = None) -> Config:
    """The configuration in a file. Raises ConfigError with every problem in it. Blocking: it reads the files that the configuration names.

    `engines`: those that an adapter is installed for; None: any name may be one."""
    try:
        with path.open("rb") as file:
            raw = file.read(LARGEST_FILE + 1)
    except OSError as error:
        raise ConfigError([Problem(str(path), None, "", f"cannot be read ({why(error)})", "name a file that the inspector's user may read")]) from None
    return _validated(read_yaml(raw, str(path)), str(path), kinds.Surroundings(path.absolute().parent, environment), engines)


def from_targets(arguments: Iterable[str], settings: Config | None = None) -> Config:
    """The configuration for targets given on the command line, added to those of `settings`. Raises ConfigError with every problem."""
    config = settings or Config()
    targets, problems = list(config.targets), []
    for position, argument in enumerate(arguments, 1):
        try:
            targets.append(_named_apart(target_from_argument(argument), {target.name for target in targets}))
        except ValueError as error:
            problems.append(_argument_problem(f"target {position}", error))
    if problems:
        raise ConfigError(problems)
    return config.model_copy(update={"targets": tuple(targets)})


def target_from_argument(argument: str) -> Target:
    """A target from `http://host:port[/base]`, `unix:/path`, or `ENGINE=` before either; its name is host and port. Raises ValueError with the remedy."""
    match = re.fullmatch(r"([A-Za-z][A-Za-z0-9_-]*)=(.*)", argument)
    engine, url = match.groups() if match else (None, argument)
    data = {"name": parse_address(url).label, "url": url, "engine": engine}
    try:
        return Target.model_validate(data)
    except ValidationError as error:
        first = finding(error.errors(include_url=False, include_input=False)[0], Target)
        raise ValueError(f"{first.message}; {first.remedy}" if first.remedy else first.message) from None


def _validated(document: Document, file: str, surroundings: kinds.Surroundings, engines: Iterable[str] | None) -> Config:
    data = {} if document.data is None and not document.findings else document.data
    findings = list(document.findings)
    config = None
    try:
        config = Config.model_validate(data, context=surroundings)
    except ValidationError as error:
        refused = {item.path for item in findings}
        found = [finding(details, Config) for details in error.errors(include_url=False, include_input=False)]
        findings += [item for item in found if item.path not in refused]
    findings += check(data, engines) if isinstance(data, dict) else ()
    if findings or config is None:
        raise ConfigError(place(_once(findings), file, document.lines))
    return config


def _once(findings: Iterable[Finding]) -> list[Finding]:
    """An aliased mistake is met in several places, a duplicate key several times; the same finding counts once."""
    return list(dict.fromkeys(findings))


def _named_apart(target: Target, taken: set[str]) -> Target:
    name, number = target.name, 1
    while name in taken:
        number += 1
        name = f"{target.name}-{number}"
    return target.model_copy(update={"name": name})


def _argument_problem(field: str, error: ValueError) -> Problem:
    message, _, remedy = str(error).partition("; ")
    return Problem(COMMAND_LINE, None, field, message, remedy)
