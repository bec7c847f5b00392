"""Following the log of a server, a file or the journal: facts out of its lines, believed only if they belong to the running process."""

from inspector.follow.follower import Follower
from inspector.follow.source import FileSource, JournalSource

__all__ = ["FileSource", "Follower", "JournalSource"]
