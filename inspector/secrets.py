"""Secrets: API keys and header values. They are shown masked, and read from files and environment variables, never from the configuration's own text."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pydantic import SecretStr as Secret

__all__ = ["MASK", "Secret", "secret_from_environment", "secret_from_file"]

MASK = "**********"

LARGEST_FILE = 4096
"""Bytes. A file that is larger holds something else than one key."""


def secret_from_file(path: Path) -> Secret:
    """The one line that a key file holds. Raises ValueError with the remedy; the content is never part of it."""
    try:
        if not path.is_file():
            path.stat()  # Says why it is not there; what is there is a folder, or a pipe that could block.
            raise ValueError("is no file; name a file that holds the key alone")
        with path.open("rb") as file:
            raw = file.read(LARGEST_FILE + 1)
    except OSError as error:
        raise ValueError(f"cannot be read ({why(error)}); name a file that the inspector's user may read") from None
    if len(raw) > LARGEST_FILE:
        raise ValueError("is too large for a key; name a file that holds the key alone")
    return _secret(raw, "holds")


def secret_from_environment(name: str, environment: Mapping[str, str]) -> Secret:
    """The key in an environment variable. Raises ValueError with the remedy."""
    if name not in environment:
        raise ValueError("names an environment variable that is not set; set it for the inspector's process")
    return _secret(environment[name].encode("utf-8", "surrogateescape"), "names a variable that holds")


def why(error: OSError) -> str:
    """The operating system's words for an error, without the path that its own text repeats."""
    return (error.strerror or type(error).__name__).lower()


def _secret(raw: bytes, verb: str) -> Secret:
    """White space around the key is the editor's, not the key's; inside it, it would break the header that carries the key."""
    key = raw.strip()
    if not key:
        raise ValueError(f"{verb} nothing; put the key there, alone on one line")
    if not all(0x21 <= byte <= 0x7E for byte in key):
        raise ValueError(f"{verb} more than a key; a key is one line of printable ASCII without spaces")
    return Secret(key.decode("ascii"))
