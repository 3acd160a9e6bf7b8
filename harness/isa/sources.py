"""Which source lines a listing names, and which of them are marked ``# remote``."""

from __future__ import annotations

import ast
import functools
import itertools
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Where = Literal["remote", "local", "unattributed"]

_MARK = re.compile(r"#\s*remote\b")
_PLACE = re.compile(r"^(?P<file>.*):(?P<line>\d+):(?P<column>\d+)$")
_SEPARATOR = re.compile(r"\s*@\s*\[?\s*")
_current_files: dict[str, str] = {}


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
    """Frames of ``a.py:1:2 @[ b.py:3:4 @[ c.py:5:6 ] ]`` (or the same without brackets), innermost first."""
    frames = []
    for part in _SEPARATOR.split(chain.strip().rstrip("] ")):
        if place := _PLACE.match(part.strip()):
            frames.append(Frame(place["file"], int(place["line"]), int(place["column"])))
    return tuple(frames)


@dataclass(frozen=True)
class SourceFiles:
    """The ``.file`` directives of one listing: base name -> the paths that bear it."""

    paths: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, paths: Iterable[str]) -> SourceFiles:
        table: dict[str, tuple[str, ...]] = {}
        for path in paths:
            name = Path(path).name
            if path not in table.get(name, ()):
                table[name] = (*table.get(name, ()), path)
        return cls(table)

    def where(self, frames: Iterable[Frame]) -> Where:
        """Remote if the statement at one frame's line is marked; local if all were read and none is; else unattributed.

        Unattributed means that the marker cannot be looked up: the compiler merged several lines into line 0, the
        source file is gone, or two files of one name disagree.
        """
        known, any_frame = True, False
        for frame in frames:
            any_frame = True
            marks = {_marked(path, frame.line) for path in self._candidates(frame.file)} if frame.line else {None}
            if marks == {True}:
                return "remote"
            known = known and marks == {False}
        return "local" if known and any_frame else "unattributed"

    def _candidates(self, file: str) -> tuple[str, ...]:
        if Path(file).is_absolute():
            return (current_file(file),)
        return self.paths.get(Path(file).name, (file,))


def current_file(path: str) -> str:
    """The file that this process has imported with the longest common tail, folder and name at least; else ``path``.

    Triton's cache is keyed by the text and the first line of functions, not by their files: a listing may have been
    compiled from another checkout, which has moved on or is gone. Its text and lines are those of the module here.
    """
    if path not in _current_files:
        name, longest, found = f"/{Path(path).name}", 1, path
        for module in list(sys.modules.values()):
            file = getattr(module, "__dict__", {}).get("__file__")
            if isinstance(file, str) and file.endswith(name) and (shared := _common_tail(file, path)) > longest:
                longest, found = shared, file
        if found == path and not Path(path).exists():
            return path  # its module may yet be imported
        _current_files[path] = found
    return _current_files[path]


def _common_tail(one: str, other: str) -> int:
    pairs = zip(reversed(Path(one).parts), reversed(Path(other).parts), strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


def _marked(path: str, line: int) -> bool | None:
    marks = _marks(path)
    if marks is None or not 0 < line <= marks[1]:
        return None
    return line in marks[0]


@functools.lru_cache(maxsize=256)
def _marks(path: str) -> tuple[frozenset[int], int] | None:
    """Marked line numbers and the number of lines of a file; None when it cannot be read."""
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    lines = text.splitlines()
    marked = {number for number, line in enumerate(lines, 1) if _MARK.search(line)}
    for first, last in _simple_statements(text):
        if not marked.isdisjoint(range(first, last + 1)):
            marked.update(range(first, last + 1))
    return frozenset(marked), len(lines)


def _simple_statements(text: str) -> list[tuple[int, int]]:
    """First and last line of each statement that spans several lines: formatters move a comment to the last of them."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):  # not Python, or newer than this interpreter: markers then count for their line
        return []
    return [
        (node.lineno, node.end_lineno or node.lineno)
        for node in ast.walk(tree)
        if isinstance(node, ast.stmt) and not hasattr(node, "body") and (node.end_lineno or 0) > node.lineno
    ]
