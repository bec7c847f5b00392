"""Launch configuration files of every kind -> the settings of one server. Nothing in them is ever run.

A room for each kind yields commands (argv and environment as the file states them); `reader` finds the engine's server among them and hands its arguments to
`inspector.launch.settings`. Only what is in the adapter's table of flags leaves here: such files hold keys and paths.
"""

from inspector.launch.files.reader import LaunchFileReader, read_launch_file

__all__ = ["LaunchFileReader", "read_launch_file"]
