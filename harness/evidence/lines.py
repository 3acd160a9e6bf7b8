"""Lines of an evidence file as bytes and as JSON, in bounded memory for any content of the file."""

from __future__ import annotations

import errno
import json
import math
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

MAX_LINE = 8 << 20
"""Bytes of the longest line that is written or read."""

MAX_DEPTH = 64
"""Levels of lists and objects within a record."""

MAX_DIGITS = 300
"""Digits of a whole number: a longer one may not be representable as a float."""


def open_regular(path: Path, *, follow: bool = False) -> BinaryIO:
    """Open a regular file for reading, without waiting. ``follow``: ``path`` may be a symbolic link to one.

    Raises NotRegularError for anything else (opening a FIFO would block until a process writes to it), and OSError for
    errors of the file system.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    try:
        descriptor = os.open(path, flags)
    except OSError:
        if path.is_symlink() and not follow:
            raise NotRegularError(path) from None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NotRegularError(path)
    return open(descriptor, "rb")


class NotRegularError(OSError):
    """A path that names a FIFO, a folder, a link or a device instead of a regular file."""

    def __init__(self, path: Path) -> None:
        super().__init__(errno.EINVAL, "not a regular file", str(path))


def lines(path: Path, *, follow: bool = False) -> Iterator[bytes | None]:
    """Yield the lines of a file with their line ends; None in place of a line of more than ``MAX_LINE`` bytes.

    Only the last line can lack its end. Raises as ``open_regular``.
    """
    with open_regular(path, follow=follow) as file:
        while line := file.readline(MAX_LINE):
            if len(line) == MAX_LINE and not line.endswith(b"\n"):
                skip_line(file)
                yield None
            else:
                yield line


def skip_line(file: BinaryIO) -> bool:
    """Read up to and including the next line end; return False if the file ends before."""
    while rest := file.readline(MAX_LINE):
        if rest.endswith(b"\n"):
            return True
    return False


def parse(line: bytes) -> dict[str, Any]:
    """Return the JSON object of a line.

    Raises ValueError with a clause ("is not JSON") for anything else, and for features on which JSON readers disagree:
    NaN and infinities, a key twice in one object, a byte order mark, very long numbers, deep nesting.
    """
    try:
        plain = _DECODER.decode(line.decode("utf-8"))
    except UnicodeDecodeError:
        raise ValueError("is not UTF-8") from None
    except json.JSONDecodeError:
        raise ValueError("is not JSON") from None
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    if not isinstance(plain, dict):
        raise ValueError("is not a JSON object")
    if line.count(b"{") + line.count(b"[") > MAX_DEPTH and _is_too_deep(plain):
        raise ValueError(_TOO_DEEP)
    return plain


_TOO_DEEP = f"is nested more than {MAX_DEPTH} levels deep"


def _is_too_deep(plain: Any) -> bool:
    level: Sequence[Any] = [plain]
    for _ in range(MAX_DEPTH):
        level = [
            entry
            for node in level
            if isinstance(node, (dict, list))
            for entry in (node.values() if isinstance(node, dict) else node)
        ]
    return any(isinstance(node, (dict, list)) for node in level)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("holds a key twice in one object")
    return table


def _integer(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise ValueError(f"holds a number of {len(text)} digits")
    return int(text)


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("holds a number that is too large")
    return value


def _constant(text: str) -> float:
    raise ValueError(f"holds {text}, which is not JSON")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_unique, parse_int=_integer, parse_float=_number, parse_constant=_constant
)
