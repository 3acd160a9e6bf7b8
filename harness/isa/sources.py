"""Source positions that a listing names."""

from __future__ import annotations

import functools
import itertools
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Where = Literal["remote", "local", "unattributed"]

_PLACE = re.compile(r"^(?P<file>.*):(?P<line>\d+):(?P<column>\d+)$")
_SEPARATOR = re.compile(r"\s*@\s*\[?\s*")
_current_files: dict[str, str] = {}
_absent: dict[str, int] = {}
"""Paths without a file or module here, with the number of modules among which none was found."""


@dataclass(frozen=True)
class Frame:
    """One place in the source: ``file`` as the listing names it (mostly without its folder), 1-based ``line``."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@functools.lru_cache(maxsize=4096)
def parse_frames(chain: str) -> tuple[Frame, ...]:
    """Return the frames of ``a.py:1:2 @[ b.py:3:4 @[ c.py:5:6 ] ]`` (or without brackets), innermost first."""
    frames = []
    for part in _SEPARATOR.split(chain.strip().rstrip("] ")):
        if place := _PLACE.match(part.strip()):
            frames.append(Frame(place["file"], int(place["line"]), int(place["column"])))
    return tuple(frames)


def current_file(path: str) -> str:
    """Return the imported file with the longest common tail of at least folder and name; ``path`` if there is none.

    Triton's cache is keyed by the text and the first line of functions, not by their files: a listing may have been
    compiled from another checkout, which has changed or been removed. Its text and lines are those of the module here.
    """
    if path not in _current_files:
        if _absent.get(path) == len(sys.modules):
            return path
        name, longest, best = f"/{Path(path).name}", 1, path
        for module in list(sys.modules.values()):
            file = getattr(module, "__dict__", {}).get("__file__")
            if isinstance(file, str) and file.endswith(name) and (shared := _common_tail(file, path)) > longest:
                longest, best = shared, file
        if best == path and not Path(path).exists():
            _absent[path] = len(sys.modules)
            return path  # its module may still be imported later
        _current_files[path] = best
    return _current_files[path]


def _common_tail(one: str, other: str) -> int:
    pairs = zip(reversed(Path(one).parts), reversed(Path(other).parts), strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
