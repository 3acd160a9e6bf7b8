"""PTX, as Triton keeps it in ``CompiledKernel.asm["ptx"]``: what ptxas was asked to make machine code of.

Triton writes its global accesses as inline assembly, ``@%p1 st.global.v4.b32 [ %rd1 + 0 ], { %r1, %r2, %r3, %r4 };``.
LLVM gives each line of an inline assembly a line number of its own, counted on from that of the statement, as if the
source went on there. So within ``// begin inline asm`` and ``// end inline asm`` the position is that of the beginning.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from harness.errors import HarnessError
from harness.isa.listing import FILE, listed_file
from harness.isa.record import AccessForm, Fingerprint, Kind, Space, counted
from harness.isa.sources import Frame, SourceFiles, parse_frames

TARGET = re.compile(r"^\s*\.target\s+(sm_\w+)", re.MULTILINE)
_LOC = re.compile(r"^\.loc\s+(\d+)\s+(\d+)\s+(\d+)(?:.*\binlined_at\s+(\d+)\s+(\d+)\s+(\d+))?")
_LABEL = re.compile(r"^([$%\w]+):(?!:)")
_JUMP = re.compile(r"\$L\w+")
_PARAMETER = re.compile(r"[\w$]+_param_(?=\d)")
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

    ``raw`` are the frames that the machine code's line table has for it: see the module docstring.
    """

    opcode: str
    operands: str
    frames: tuple[Frame, ...]
    raw: tuple[Frame, ...]


def read(text: str) -> Fingerprint:
    """Raises HarnessError when ``text`` is no PTX of one target, or accesses memory in a form that is not known."""
    target = TARGET.search(text)
    if not target:
        raise HarnessError(f"no .target in the PTX, which starts with {text[:60]!r}")
    code, files = instructions(text), source_files(text)
    return Fingerprint(
        language="ptx",
        arch=target[1],
        sha256=hashlib.sha256(_normalised(code).encode()).hexdigest(),
        accesses=counted(
            (i.opcode, form, qualifiers(i.opcode), i.frames, files.where(i.frames))
            for i in code
            if (form := access_form(i.opcode, i.operands)) is not None
        ),
        instructions=len(code),
        barriers=sum(i.opcode.startswith(("bar.sync", "bar.red", "barrier")) for i in code),
        fences=dict(sorted(Counter(i.opcode for i in code if i.opcode.startswith(("fence", "membar"))).items())),
    )


def access_form(opcode: str, operands: str = "") -> AccessForm | None:
    """The form of an instruction, or None when it does not access global memory.

    Raises HarnessError for a global access of unknown width: a width that is guessed would be a wrong verdict.
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
    """Order, scope and cache words of an opcode, as they stand: ``("gpu", "acq_rel")``, ``("cg",)``."""
    return tuple(word for word in opcode.split(".")[1:] if _is_qualifier(word))


def _copy_form(opcode: str, words: list[str], operands: str) -> AccessForm | None:
    """``cp.async`` moves the number of bytes that is its third operand; a bulk copy is not a lane's access. TMA's loads
    (``bulk.tensor``, into shared memory) are known to be none; no other bulk copy has been met."""
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
    return HarnessError(f"the width of {opcode!r} is not known: add it to harness/isa/ptx.py")


@functools.lru_cache(maxsize=256)
def instructions(text: str) -> tuple[Instruction, ...]:
    """Every instruction, in order; directives and declarations are left out."""
    return tuple(_instructions(text))


@functools.lru_cache(maxsize=256)
def source_files(text: str) -> SourceFiles:
    """The files that the ``.file`` directives name."""
    return SourceFiles.of(_files(text).values())


def _files(text: str) -> dict[int, str]:
    # They stand behind the code.
    return dict(listed_file(match) for line in text.splitlines() if (match := FILE.match(line.strip())))


def _instructions(text: str) -> Iterator[Instruction]:
    files = _files(text)
    inlined: dict[tuple[str, ...], tuple[Frame, ...]] = {}
    frames: tuple[Frame, ...] = ()
    raw: tuple[Frame, ...] = ()
    in_assembly = False
    pending = ""
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
        # What stands before a body are directives, which end in no semicolon.
        pending = "" if line == "{" else pending + " " + line.partition("//")[0]
        *statements, pending = pending.split(";")
        for statement in statements:
            code = _bare(statement)
            if code and not code.startswith("."):
                opcode, _, operands = code.partition(" ")
                yield Instruction(opcode, operands.strip(), frames, raw)


def _frames(
    match: re.Match[str], line: str, files: dict[int, str], inlined: dict[tuple[str, ...], tuple[Frame, ...]]
) -> tuple[Frame, ...]:
    """The chain is in the comment, or ``inlined_at`` names a position that an earlier ``.loc`` has described."""
    number, row, column, *at = match.groups()
    inner = Frame(files.get(int(number), "?"), int(row), int(column))
    if at[0] is not None:
        return (inner, *inlined.get(tuple(at), ()))
    outer = parse_frames(line.partition("//")[2])[1:]
    return (inner, *(Frame(_full(frame.file, files), frame.line, frame.column) for frame in outer))


def _full(name: str, files: dict[int, str]) -> str:
    """The path of a file that is named without its folder, if only one comes into question."""
    paths = {path for path in files.values() if path.endswith("/" + name)}
    return paths.pop() if len(paths) == 1 else name


def _bare(statement: str) -> str:
    """Without labels, block braces and the guarding predicate."""
    code = statement.strip()
    while code:
        if label := _LABEL.match(code):
            code = code[label.end() :].strip()
        elif code[0] in "{}":
            code = code[1:].strip()
        else:
            break
    return _GUARD.sub("", code)


def _normalised(code: tuple[Instruction, ...]) -> str:
    """The instructions alone, with labels and parameters renumbered: equal for equal code, whatever its names."""
    names: dict[str, str] = {}

    def plain(operands: str) -> str:
        labelled = _JUMP.sub(lambda match: names.setdefault(match[0], f"L{len(names)}"), operands)
        return " ".join(_PARAMETER.sub("param_", labelled).split())

    return "\n".join(f"{i.opcode} {plain(i.operands)}" for i in code)
