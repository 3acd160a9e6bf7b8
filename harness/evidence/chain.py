"""Hash chain of an evidence file: each line has its run, its position and a hash over itself and all lines before it.

The last key of a line is ``chain``. Its value is the SHA-256 of the preceding line's value and of this line's bytes
without that key, so that a check needs no canonical form of JSON:

    sha256(previous value + the line up to ',"chain":' + '}')

Before the first line the value is the SHA-256 of run id and writer, joined by a space. A chain shows that a file was
changed or lost lines. It does not prove its author: a person who changes a file can compute a new chain.
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
        """Return the line of ``body``, a JSON object in bytes, and its hash. Call ``advance`` after writing it."""
        value = _hash(self.value, body)
        return body[:-1] + _KEY + value.encode() + b'"}\n', value

    def advance(self, value: str) -> None:
        """Move to the position after a line with this hash."""
        self.sequence += 1
        self.value = value

    def problem_with(self, line: bytes, plain: Mapping[str, Any]) -> str | None:
        """Return a clause that states why ``line``, with content ``plain``, is not the next line here; None if it is.

        Moves to the position after the line in any case, so that one change is one problem, not one for every later
        line.
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
            return "does not match its hash: it, or a line before it, was changed"
        return None


def _hash(previous: str, body: bytes) -> str:
    return hashlib.sha256(previous.encode() + body).hexdigest()
