"""How a server was launched: its settings, out of a command line and an environment, or out of a launch file."""

from inspector.launch.arguments import settings, values_of
from inspector.launch.command import server_argv

__all__ = ["server_argv", "settings", "values_of"]
