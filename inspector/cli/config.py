"""`inspector config check` and `inspector config show`."""

from __future__ import annotations

import sys
from pathlib import Path

import yaml

from inspector.cli.targets import refused
from inspector.config import Config, ConfigError, load
from inspector.registry import load_adapters
from inspector.wiring import jobs


def check(file: Path) -> int:
    """Says that the file is good. Raises RefusedError with everything that is wrong with it."""
    config = _checked(file)
    sys.stdout.write(f"{file}: good, {len(config.targets)} target{'' if len(config.targets) == 1 else 's'}\n")
    return 0


def show(file: Path) -> int:
    """Writes the configuration as YAML, masked. Raises RefusedError."""
    yaml.safe_dump(_checked(file).masked(), sys.stdout, sort_keys=False, allow_unicode=True)
    return 0


def _checked(file: Path) -> Config:
    try:
        adapters = load_adapters().adapters
        config = load(file, engines=adapters)
        jobs(config, adapters)
    except ConfigError as error:
        raise refused(error) from error
    return config
