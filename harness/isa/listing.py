"""Parser of amdgcn listings: instructions with their cache bits and source frames."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass

from harness.isa.sources import Frame, current_file, parse_frames

FILE = re.compile(r'^\.file\s+(\d+)\s+"((?:[^"\\]|\\.)*)"(?:\s+"((?:[^"\\]|\\.)*)")?')
_LOC = re.compile(r"^\.loc\s+(\d+)\s+(\d+)\s+(\d+)")
_LABEL = re.compile(r"^([\w.$@]+):")
_INSTRUCTION = re.compile(r"^[a-z][a-z0-9]*_\w+")


@dataclass(frozen=True)
class Instruction:
    """One instruction: mnemonic, operand text without comment, frames (innermost first, may be empty), and the number
    of its line in the listing.
    """

    mnemonic: str
    operands: str
    frames: tuple[Frame, ...]
    line: int = 0

    @property
    def bits(self) -> tuple[str, ...]:
        """Its cache bits, in the order sc0, sc1, nt."""
        words = self.operands.replace(",", " ").split()
        return tuple(bit for bit in ("sc0", "sc1", "nt") if bit in words)


class Position:
    """Source position while a listing is read line by line: ``frames`` belongs to the next instruction.

    ``files`` maps the numbers of the ``.file`` directives read so far to paths.
    """

    def __init__(self) -> None:
        self.files: dict[int, str] = {}
        self.frames: tuple[Frame, ...] = ()
        self._paths: dict[str, set[str]] = {}  # by name
        self._read: dict[str, tuple[Frame, ...]] = {}  # by .loc directive, which a listing repeats

    def read(self, line: str) -> bool:
        """Read a stripped line; return whether it was a ``.file`` or ``.loc`` directive."""
        if not line.startswith((".file", ".loc")):
            return False
        if (known := self._read.get(line)) is not None:
            self.frames = known
        elif match := FILE.match(line):
            self._read.clear()
            number, path = listed_file(match)
            self.files[number] = path
            self._paths.setdefault(os.path.basename(path), set()).add(path)
        elif match := _LOC.match(line):
            number, row, column = (int(value) for value in match.groups())
            # The numbers name the innermost file; the comment names the rest of the inline chain, without folders.
            inner = Frame(self.files.get(number, "?"), row, column)
            outer = parse_frames(line.partition(";")[2])[1:]
            self.frames = (inner, *(Frame(self._path(frame.file), frame.line, frame.column) for frame in outer))
            self._read[line] = self.frames
        return True

    def _path(self, name: str) -> str:
        """Return the path of a file that is named without its folder, if only one known path has that name."""
        paths = self._paths.get(os.path.basename(name), ())
        return next(iter(paths)) if len(paths) == 1 else name


def listed_file(match: re.Match[str]) -> tuple[int, str]:
    """Return number and path of a match of ``FILE``."""
    number, first, second = match.groups()
    path = f"{first.rstrip('/')}/{second}" if second and not second.startswith("/") else second or first
    return int(number), current_file(path)


@dataclass(frozen=True)
class Label:
    """A label: the place of the instruction after it."""

    name: str


def instructions(text: str) -> Iterator[Instruction]:
    """Yield every instruction of a listing in order of address, without directives, labels and comments."""
    return (item for item in code(text) if isinstance(item, Instruction))


@functools.lru_cache(maxsize=2)  # a fingerprint needs the same code several times
def code(text: str) -> tuple[Instruction | Label, ...]:
    """Return every instruction and label of a listing in order of address."""
    return tuple(_code(text))


def _code(text: str) -> Iterator[Instruction | Label]:
    position = Position()
    for number, line in _numbered(text):
        if position.read(line):
            continue
        if label := _LABEL.match(line):
            yield Label(label[1])
        elif _INSTRUCTION.match(line):
            mnemonic, _, operands = line.partition(";")[0].strip().partition(" ")
            yield Instruction(mnemonic, operands.strip(), position.frames, number)


def code_lines(text: str) -> Iterator[str]:
    """Yield the stripped lines before the listing's metadata, without blank lines and comments."""
    return (line for _, line in _numbered(text))


def _numbered(text: str) -> Iterator[tuple[int, str]]:
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.strip()
        if line.startswith(".amdgpu_metadata"):
            return
        if line and not line.startswith(";"):
            yield number, line


def normalised(text: str) -> str:
    """Return only the instructions, with labels renumbered in order of appearance: equal for equal code with any names.

    Comments, line numbers, file names, symbols and metadata are left out, so moving a kernel in its file changes
    nothing.
    """
    names: dict[str, str] = {}
    lines = []
    for line in code_lines(text):
        code = line.partition(";")[0].strip()
        if label := _LABEL.match(code):
            if label[1].startswith((".LBB", "BB")):
                lines.append(names.setdefault(label[1], f"L{len(names)}") + ":")
        elif _INSTRUCTION.match(code):
            code = re.sub(r"\.?L?BB\d+_\d+", lambda m: names.setdefault(m[0], f"L{len(names)}"), code)
            lines.append(" ".join(code.split()))
    return "\n".join(lines)
