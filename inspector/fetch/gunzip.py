"""Decompression of a body whose size is not to be trusted: a thousandfold larger one is refused before it exists."""

from __future__ import annotations

import zlib


class TooLargeError(Exception):
    """The body is larger than we take."""


class NotGzipError(Exception):
    """The bytes are not gzip, or end too early."""


class Gunzip:
    """Takes gzip bytes piece by piece; holds at most `most` bytes of output, and one more."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._body = bytearray()
        self._member = _member()
        self._begun = False

    def feed(self, data: bytes) -> None:
        """The next bytes as received. Raises TooLargeError, NotGzipError."""
        while data:
            if self._member.eof:
                self._member = _member()  # A gzip file may have several members, one after the other.
            self._begun = True
            try:
                self._body += self._member.decompress(data, self._most - len(self._body) + 1)
            except zlib.error:
                raise NotGzipError from None
            if len(self._body) > self._most:
                raise TooLargeError
            data = self._member.unused_data or self._member.unconsumed_tail

    def finish(self) -> bytes:
        """The whole output; nothing is made of nothing. Raises NotGzipError when the last member is not complete."""
        if self._begun and not self._member.eof:
            raise NotGzipError
        return bytes(self._body)


def _member() -> zlib._Decompress:
    return zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
