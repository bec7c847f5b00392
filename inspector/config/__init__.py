"""The configuration: a YAML file, or the targets of a command line, as frozen models that were checked whole. `docs/configuration.md` describes every key."""

from inspector.config.alerts import Alertmanager, Alerts, BasicAuth
from inspector.config.errors import ConfigError, Problem
from inspector.config.loading import (
    Config,
    Poll,
    SessionShape,
    SessionThreshold,
    Threshold,
    Thresholds,
    Web,
    from_targets,
    load,
    target_from_argument,
)
from inspector.config.target import Facts, Launch, LaunchArgv, LaunchFile, LaunchPid, Target, Tls
from inspector.config.types import LogSource

__all__ = [
    "Alertmanager", "Alerts", "BasicAuth", "Config", "ConfigError", "Facts", "Launch", "LaunchArgv", "LaunchFile", "LaunchPid", "LogSource", "Poll", "Problem",
    "SessionShape", "SessionThreshold", "Target", "Threshold", "Thresholds", "Tls", "Web", "from_targets", "load", "target_from_argument",
]  # fmt: skip
