"""What an adapter's author needs for tests: replies from a script instead of a server, recordings of real ones, and the kit that every adapter must pass.

from inspector.testing import conformance, load_recordings
conformance.check(ADAPTER, load_recordings("tests/recordings"))
"""

from inspector.testing.recordings import Recording, load_recording, load_recordings
from inspector.testing.scripted import Answer, Asked, ScriptedAsk

__all__ = ["Answer", "Asked", "Recording", "ScriptedAsk", "load_recording", "load_recordings"]
