"""Parser of PTX, the input of ptxas, as Triton keeps it in ``CompiledKernel.asm["ptx"]``.

Triton writes its global accesses as inline assembly, ``@%p1 st.global.v4.b32 [ %rd1 + 0 ], { %r1, %r2, %r3, %r4 };``.
LLVM numbers the lines of an inline assembly upwards from the line of the statement, as if the source continued there.
So between ``// begin inline asm`` and ``// end inline asm`` the reader keeps the position of the beginning.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass

from harness.errors import HarnessError
from harness.isa.listing import FILE, listed_file
from harness.isa.record import AccessForm, Kind, Space
from harness.isa.sources import Frame, parse_frames

_LOC = re.compile(r"^\.loc\s+(\d+)\s+(\d+)\s+(\d+)(?:.*\binlined_at\s+(\d+)\s+(\d+)\s+(\d+))?")
_LABEL = re.compile(r"^([$%\w]+):(?!:)")
_HEADER = re.compile(r"\.(entry|func)\s+(?:\([^)]*\)\s*)?([\w$]+)\s*\(([^)]*)\)(?!.*;)", re.DOTALL)
_GUARD = re.compile(r"^@!?%?\w+\s+")
_SIZE = re.compile(r"^([busf]|bf|tf|e\dm\d)(\d+)(?:(x2|x4)?)$")
_NUMBER = re.compile(r"0x[0-9a-f]+|[1-9]\d*")
_VECTOR = {"v2": 2, "v4": 4, "v8": 8}
_KINDS: dict[str, Kind] = {
    "ld": "load", "ldu": "load", "st": "store", "atom": "atomic", "red": "atomic",
}  # fmt: skip
_ELSEWHERE = ("shared", "local", "param", "const")
_ORDERS = {"weak", "relaxed", "acquire", "release", "acq_rel", "sc", "volatile", "mmio", "cta", "cluster", "gpu", "sys"}
_CACHES = {"ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc"}
_OPERATIONS = {
    "add", "exch", "cas", "and", "or", "xor", "inc", "dec", "min", "max", "noftz", "ftz", "rn", "async", "ld_reduce",
    "acc::f32", "acc::f16", "unified",
}  # fmt: skip


@dataclass(frozen=True)
class Instruction:
    """One instruction: dotted opcode, operand text, frames (innermost first, may be empty).

    ``raw``: the frames in the machine code's line table, see the module docstring. ``guard``: its predicate, such as
    ``@%p1``. ``scope``: the braces around it, outermost first, by number.
    """

    opcode: str
    operands: str
    frames: tuple[Frame, ...]
    raw: tuple[Frame, ...]
    guard: str = ""
    scope: tuple[int, ...] = ()


@dataclass(frozen=True)
class Label:
    """A label: the place of the instruction after it. It is known in its scope."""

    name: str
    scope: tuple[int, ...]


@dataclass(frozen=True)
class Table:
    """The labels among which a ``brx.idx`` selects, see ``.branchtargets``."""

    name: str
    labels: tuple[str, ...]


@dataclass(frozen=True)
class Function:
    """The beginning of a kernel or function; ``parameters``: name, and whether it is declared as a pointer."""

    name: str
    is_entry: bool
    parameters: tuple[tuple[str, bool], ...]


def access_form(opcode: str, operands: str = "") -> AccessForm | None:
    """Return the form of an instruction, or None if it does not access global memory.

    Raises HarnessError for a global access of unknown width: a guess could cause a wrong verdict.
    """
    base, *words = opcode.split(".")
    if base == "multimem":
        base, words = {"ld_reduce": "ld", "st": "st", "red": "red"}[words[0]], ["global", *words[1:]]
    if base == "cp":
        return _copy_form(opcode, words, operands)
    if base not in _KINDS or any(word.startswith(_ELSEWHERE) for word in words):
        return None
    unknown = [
        word for word in words
        if not (word in ("global", *_VECTOR) or _SIZE.match(word) or _is_qualifier(word) or word in _OPERATIONS)
    ]  # fmt: skip
    sizes = [match for word in words if (match := _SIZE.match(word))]
    if unknown or not sizes:
        raise _not_known(opcode)
    bits = int(sizes[-1][2]) * int((sizes[-1][3] or "x1")[1:])
    lanes = next((_VECTOR[word] for word in words if word in _VECTOR), 1)
    space: Space = "global" if "global" in words else "flat"
    return AccessForm(space, _KINDS[base], bits * lanes // 8)


def qualifiers(opcode: str) -> tuple[str, ...]:
    """Return the order, scope and cache words of an opcode in their order: ``("gpu", "acq_rel")``, ``("cg",)``."""
    return tuple(word for word in opcode.split(".")[1:] if _is_qualifier(word))


def _copy_form(opcode: str, words: list[str], operands: str) -> AccessForm | None:
    """Return the form of ``cp.async``, whose third operand is its number of bytes; None for accesses not by a lane.

    TMA loads (``bulk.tensor``, into shared memory) are not a lane's access. Other bulk copies have not occurred yet.
    """
    if "async" not in words or words[-1] in ("commit_group", "wait_all", "wait_group") or "mbarrier" in words:
        return None
    if words[1:3] == ["bulk", "tensor"] and words[4].startswith("shared::"):
        return None
    size = operands.split(",")[2].strip() if operands.count(",") >= 2 else ""
    if "bulk" in words or "global" not in words or not _NUMBER.fullmatch(size):
        raise _not_known(opcode)
    return AccessForm("global", "load", int(size, 0))


def _is_qualifier(word: str) -> bool:
    return word in _ORDERS or word in _CACHES or word.startswith(("L1::", "L2::", "level::"))


def _not_known(opcode: str) -> HarnessError:
    return HarnessError(f"the width of {opcode!r} is not known: add it to harness/isa/ptx_code.py")


@functools.lru_cache(maxsize=256)
def instructions(text: str) -> tuple[Instruction, ...]:
    """Return every instruction in order, without directives and declarations."""
    return tuple(item for item in code(text) if isinstance(item, Instruction))


@functools.lru_cache(maxsize=256)
def code(text: str) -> tuple[Instruction | Label | Table | Function, ...]:
    """Return every instruction, label, table of labels and beginning of a function in order."""
    return tuple(_code(text))


def _files(text: str) -> dict[int, str]:
    # The directives follow the code.
    return dict(listed_file(match) for line in text.splitlines() if (match := FILE.match(line.strip())))


def _code(text: str) -> Iterator[Instruction | Label | Table | Function]:
    files = _files(text)
    inlined: dict[tuple[str, ...], tuple[Frame, ...]] = {}
    frames: tuple[Frame, ...] = ()
    raw: tuple[Frame, ...] = ()
    in_assembly = False
    pending = latest = ""
    scope: tuple[int, ...] = ()
    braces = 0
    for line in map(str.strip, text.splitlines()):
        if line.startswith(".section"):
            return
        if match := _LOC.match(line):
            raw = _frames(match, line, files, inlined)
            inlined[match.groups()[:3]] = raw
            frames = frames if in_assembly else raw
            continue
        if line.startswith("// begin inline asm"):
            in_assembly = True
        elif line.startswith("// end inline asm"):
            in_assembly, raw = False, frames
        if line == "{":  # before a body there are only directives, which do not end in a semicolon
            if header := _HEADER.search(pending):
                yield Function(header[2], header[1] == "entry", _parameters(header[3]))
                scope = ()
            else:
                braces += 1
                scope = (*scope, braces)
            pending = ""
            continue
        pending = pending + " " + line.partition("//")[0]
        *statements, pending = pending.split(";")
        for statement in statements:
            rest = statement.strip()
            while rest:
                if label := _LABEL.match(rest):
                    yield Label(label[1], scope)
                    latest = label[1]
                    rest = rest[label.end() :].strip()
                elif rest[0] == "{":
                    braces += 1
                    scope, rest = (*scope, braces), rest[1:].strip()
                elif rest[0] == "}":
                    scope, rest = scope[:-1], rest[1:].strip()
                else:
                    break
            guard = _GUARD.match(rest)
            bare = rest[guard.end() :] if guard else rest
            if bare.startswith(".branchtargets"):
                yield Table(latest, tuple(bare.replace(",", " ").split()[1:]))
            elif bare and not bare.startswith("."):
                opcode, _, operands = bare.partition(" ")
                yield Instruction(opcode, operands.strip(), frames, raw, guard[0].strip() if guard else "", scope)


def _parameters(text: str) -> tuple[tuple[str, bool], ...]:
    parts = [part for part in text.split(",") if ".param" in part]
    return tuple((part.split()[-1].partition("[")[0], ".ptr" in part) for part in parts)


def _frames(
    match: re.Match[str], line: str, files: dict[int, str], inlined: dict[tuple[str, ...], tuple[Frame, ...]]
) -> tuple[Frame, ...]:
    """Return the frames of a ``.loc``: the chain is in its comment, or ``inlined_at`` names an earlier ``.loc``."""
    number, row, column, *at = match.groups()
    inner = Frame(files.get(int(number), "?"), int(row), int(column))
    if at[0] is not None:
        return (inner, *inlined.get(tuple(at), ()))
    outer = parse_frames(line.partition("//")[2])[1:]
    return (inner, *(Frame(_full(frame.file, files), frame.line, frame.column) for frame in outer))


def _full(name: str, files: dict[int, str]) -> str:
    """Return the path of a file that is named without its folder, if only one known path has that name."""
    paths = {path for path in files.values() if path.endswith("/" + name)}
    return paths.pop() if len(paths) == 1 else name
