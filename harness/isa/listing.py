"""An amdgcn listing as a sequence of instructions, each with its cache bits and its source frames."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass

from harness.isa.sources import Frame, SourceFiles, current_file, parse_frames

FILE = re.compile(r'^\.file\s+(\d+)\s+"((?:[^"\\]|\\.)*)"(?:\s+"((?:[^"\\]|\\.)*)")?')
_LOC = re.compile(r"^\.loc\s+(\d+)\s+(\d+)\s+(\d+)")
_LABEL = re.compile(r"^([\w.$@]+):")
_INSTRUCTION = re.compile(r"^[a-z][a-z0-9]*_\w+")


@dataclass(frozen=True)
class Instruction:
    """One instruction: mnemonic, operand text without comment, and its frames (innermost first, may be empty)."""

    mnemonic: str
    operands: str
    frames: tuple[Frame, ...]

    @property
    def bits(self) -> tuple[str, ...]:
        """The cache bits it carries, in the order sc0, sc1, nt."""
        words = self.operands.replace(",", " ").split()
        return tuple(bit for bit in ("sc0", "sc1", "nt") if bit in words)


class Position:
    """The source position while a listing is read line by line: ``frames`` is what the next instruction has.

    ``files`` maps the numbers of the ``.file`` directives read so far to paths.
    """

    def __init__(self) -> None:
        self.files: dict[int, str] = {}
        self.frames: tuple[Frame, ...] = ()
        self._paths: dict[str, set[str]] = {}  # by name

    def read(self, line: str) -> bool:
        """Take in a stripped line; True when it was a ``.file`` or ``.loc`` directive."""
        if match := FILE.match(line):
            number, path = listed_file(match)
            self.files[number] = path
            self._paths.setdefault(os.path.basename(path), set()).add(path)
        elif match := _LOC.match(line):
            number, row, column = (int(value) for value in match.groups())
            # The numbers name the innermost file; the comment names the rest of the inline chain, without folders.
            inner = Frame(self.files.get(number, "?"), row, column)
            outer = parse_frames(line.partition(";")[2])[1:]
            self.frames = (inner, *(Frame(self._path(frame.file), frame.line, frame.column) for frame in outer))
        else:
            return line.startswith((".file", ".loc"))
        return True

    def _path(self, name: str) -> str:
        """The path of a file that is named without its folder, if only one comes into question."""
        paths = self._paths.get(os.path.basename(name), ())
        return next(iter(paths)) if len(paths) == 1 else name


def listed_file(match: re.Match[str]) -> tuple[int, str]:
    """Number and path of a match of ``FILE``."""
    number, first, second = match.groups()
    path = f"{first.rstrip('/')}/{second}" if second and not second.startswith("/") else second or first
    return int(number), current_file(path)


def instructions(text: str) -> Iterator[Instruction]:
    """Every instruction of a listing, in order of address; directives, labels and comments are left out."""
    position = Position()
    for line in code_lines(text):
        if not position.read(line) and _INSTRUCTION.match(line):
            mnemonic, _, operands = line.partition(";")[0].strip().partition(" ")
            yield Instruction(mnemonic, operands.strip(), position.frames)


def code_lines(text: str) -> Iterator[str]:
    """The stripped lines before the listing's metadata, without blank ones and comments."""
    for raw in text.splitlines():
        line = raw.strip()
        if line.startswith(".amdgpu_metadata"):
            return
        if line and not line.startswith(";"):
            yield line


@functools.lru_cache(maxsize=1024)
def source_files(text: str) -> SourceFiles:
    """The files that the listing's ``.file`` directives name."""
    position = Position()
    for line in code_lines(text):
        position.read(line)
    return SourceFiles.of(position.files.values())


def normalised(text: str) -> str:
    """The instructions alone, labels renumbered in order of appearance: equal for equal code, whatever its names.

    Comments, line numbers, file names, symbols and metadata do not enter, so moving a kernel in its file changes
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
