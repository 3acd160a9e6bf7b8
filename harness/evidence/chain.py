"""The hash chain of an evidence file: each line carries run, position and a hash over itself and all lines before it.

The last key of a line is ``chain``. Its value is the SHA-256 of the preceding line's value and of this line's bytes
without that key, so that anybody can check it without agreeing on a canonical form of JSON:

    sha256(previous value + the line up to ',"chain":' + '}')

Before the first line the value is the SHA-256 of run id and writer, joined by a space. A chain shows that a file was
changed or lost lines; it does not show who wrote it, since whoever changes a file can compute a new chain.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

_KEY = b',"chain":"'
_TAIL = len(_KEY) + 64 + len(b'"}')


class Chain:
    """A position in a chain: ``sequence`` is the number of the next line, ``value`` the hash that it continues.

    ``writer`` is empty for the file of a run, and the worker's name for the file of an xdist worker.
    """

    def __init__(self, run: str, writer: str = "") -> None:
        self.run = run
        self.sequence = 0
        self.value = hashlib.sha256(f"{run} {writer}".encode("utf-8", "backslashreplace")).hexdigest()

    def sealed(self, body: bytes) -> tuple[bytes, str]:
        """The line of ``body``, a JSON object in bytes, and its hash. ``advance`` goes to the next position."""
        value = _hash(self.value, body)
        return body[:-1] + _KEY + value.encode() + b'"}\n', value

    def advance(self, value: str) -> None:
        """Go on after a line with this hash."""
        self.sequence += 1
        self.value = value

    def problem_with(self, line: bytes, plain: Mapping[str, Any]) -> str | None:
        """A clause that says why ``line``, whose content is ``plain``, is not the next one here; None if it is.

        Goes on after the line in any case, so that one change makes one problem and not one per line behind it.
        """
        body, stated = line[:-_TAIL] + b"}", line[-_TAIL + len(_KEY) : -2].decode("ascii", "replace")
        expected, position = self.sequence, plain.get("sequence")
        value = _hash(self.value, body)
        sealed = line[-_TAIL:].startswith(_KEY) and plain.get("chain") == stated
        self.sequence = position + 1 if isinstance(position, int) else expected + 1
        self.value = stated
        if plain.get("run") != self.run:
            return f"belongs to run {plain.get('run')!r}, not to {self.run!r}"
        if isinstance(position, bool) or position != expected:
            return f"has sequence number {position!r} instead of {expected}: lines are missing, repeated or moved"
        if not sealed:
            return "does not end with its hash"
        if value != stated:
            return "does not match its hash: it was changed, or what precedes it"
        return None


def _hash(previous: str, body: bytes) -> str:
    return hashlib.sha256(previous.encode() + body).hexdigest()
