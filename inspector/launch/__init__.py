"""How a server was launched: its settings, out of a command line and an environment, or out of a launch file, and where the two disagree."""

from inspector.launch.arguments import settings, values_of
from inspector.launch.command import server_argv
from inspector.launch.drift import with_launch_drift

__all__ = ["server_argv", "settings", "values_of", "with_launch_drift"]
