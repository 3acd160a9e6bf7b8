"""SASS, the machine code of NVIDIA GPUs, as ``nvdisasm -gi -c`` prints it.

Its line table is ptxas's copy of the one in the PTX. There, the lines of Triton's inline assembly count on from that of
the statement (see ``harness.isa.ptx``), so an access is looked up in the PTX by what its line table says, and
takes the place that it has there. Where the PTX has no such access, or several that disagree, it is unattributed.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from harness.errors import HarnessError
from harness.isa import ptx
from harness.isa.record import AccessForm, Fingerprint, Kind, Space, counted
from harness.isa.sources import Frame, SourceFiles, Where, current_file

MARK = re.compile(r"^\s*\.elftype\b", re.MULTILINE)
_ARCH = re.compile(r"^\s*\.target\s+sm_(\w+)|EF_CUDA_SM(\w+)", re.MULTILINE)
_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+\{?\s*(?:@!?U?P\w+\s+)?([A-Z][\w.:]*)\s*([^;]*)")
_PLACE = re.compile(r'^\s*//## File "([^"]*)", line (\d+)')
_LABEL = re.compile(r"\.L_x_\w+")
_USAGE = re.compile(r"\b(REG|STACK|SHARED|LOCAL):(\d+)")
_BASES: dict[str, tuple[Space, Kind]] = {
    "LDG": ("global", "load"), "LDGSTS": ("global", "load"), "STG": ("global", "store"), "LD": ("flat", "load"),
    "ST": ("flat", "store"), "ATOMG": ("global", "atomic"), "REDG": ("global", "atomic"), "RED": ("global", "atomic"),
    "ATOM": ("flat", "atomic"),
}  # fmt: skip
_WIDTHS = {
    "U8": 1, "S8": 1, "U16": 2, "S16": 2, "32": 4, "S32": 4, "U32": 4, "F32": 4, "F16x2": 4, "BF16x2": 4, "BF16_V2": 4,
    "64": 8, "S64": 8, "U64": 8, "F64": 8, "128": 16,
    "F16x4": 8, "BF16x4": 8, "F32x2": 8, "F16x8": 16, "BF16x8": 16, "F32x4": 16,
}  # fmt: skip
_ORDERS = {"STRONG", "WEAK", "CONSTANT", "MMIO", "PRIVATE", "SM", "CTA", "VC", "GPU", "SYS"}
_CACHES = {"EF", "EL", "EU", "LU", "NA", "IL", "BYPASS", "LTC64B", "LTC128B", "LTC256B"}
_OTHER = {
    "E", "ADD", "MIN", "MAX", "AND", "OR", "XOR", "INC", "DEC", "EXCH", "CAS", "CAST", "SPIN", "FTZ", "RN", "ZD",
}  # fmt: skip


@dataclass(frozen=True)
class Instruction:
    """One instruction: dotted opcode, operand text, and frames as the line table has them, innermost first."""

    opcode: str
    operands: str
    raw: tuple[Frame, ...]


def read(text: str, listing: str = "") -> Fingerprint:
    """The fingerprint of disassembled machine code; ``listing`` is the PTX that it was made from.

    A line ``REG:18 STACK:0 SHARED:0 ...`` anywhere in ``text`` (of cuobjdump) tells what it uses. Raises HarnessError
    when it is no disassembly, or accesses memory in a form that is not known.
    """
    arch = _ARCH.search(text)
    code = list(_instructions(text))
    if not MARK.search(text) or arch is None or not code:
        raise HarnessError(f"this is no disassembly of one NVIDIA target: {text[:60]!r}")
    places = _Places(listing) if listing else None
    own = SourceFiles.of(frame.file for i in code for frame in i.raw)
    found = []
    for i in code:
        if (form := access_form(i.opcode)) is not None:
            frames, where = places.of(form.kind, i.raw) if places else (i.raw, own.where(i.raw))
            found.append((i.opcode, form, qualifiers(i.opcode), frames, where))
    code_alone = Fingerprint(
        language="sass",
        arch=f"sm_{arch[1] or arch[2]}",
        sha256=hashlib.sha256(_normalised(code).encode()).hexdigest(),
        accesses=counted(found),
        instructions=len(code),
        barriers=sum(i.opcode.startswith("BAR.") for i in code),
        fences=dict(
            sorted(Counter(i.opcode for i in code if i.opcode.startswith(("MEMBAR", "FENCE", "CCTL.IVALL"))).items())
        ),
    )
    return with_usage(code_alone, text)


def with_usage(code: Fingerprint, text: str) -> Fingerprint:
    """``code`` with registers, shared memory, and scratch (stack and local memory) of cuobjdump's line, where ``text``
    has one."""
    told = {name: int(number) for name, number in _USAGE.findall(text)}
    if "REG" not in told:
        return code
    scratch = told.get("STACK", 0) + told.get("LOCAL", 0)
    return replace(code, registers=told["REG"], lds=told.get("SHARED", 0), scratch=scratch)


def access_form(opcode: str) -> AccessForm | None:
    """The form of an instruction, or None when it does not access global memory.

    Raises HarnessError for a global access of unknown width: a width that is guessed would be a wrong verdict.
    """
    base, *words = opcode.split(".")
    if base not in _BASES:
        return None
    sizes = [_WIDTHS[word] for word in words if word in _WIDTHS]
    if any(word not in _WIDTHS and word not in _OTHER and not _is_qualifier(word) for word in words) or len(sizes) > 1:
        raise HarnessError(f"the width of {opcode!r} is not known: add it to harness/isa/sass.py")
    space, kind = _BASES[base]
    return AccessForm(space, kind, sizes[0] if sizes else 4)


def qualifiers(opcode: str) -> tuple[str, ...]:
    """Order, scope and cache words of an opcode, as they stand: ``("STRONG", "SYS")``, ``("EF",)``."""
    return tuple(word for word in opcode.split(".")[1:] if _is_qualifier(word))


def _is_qualifier(word: str) -> bool:
    return word in _ORDERS or word in _CACHES


class _Places:
    """Where the accesses of some PTX belong, by kind and by what the line table says of them."""

    def __init__(self, listing: str) -> None:
        files = ptx.source_files(listing)
        self._places: dict[tuple[object, ...], set[tuple[tuple[Frame, ...], Where]]] = {}
        for i in ptx.instructions(listing):
            if (form := ptx.access_form(i.opcode, i.operands)) is not None:
                for key in _keys(form.kind, i.raw):
                    self._places.setdefault(key, set()).add((i.frames, files.where(i.frames)))

    def of(self, kind: Kind, raw: tuple[Frame, ...]) -> tuple[tuple[Frame, ...], Where]:
        """By the whole chain; by the innermost line alone where the disassembler knows no more; whatever its kind."""
        for key in _keys(kind, raw):
            found = self._places.get(key, set())
            if len({where for _, where in found}) == 1:
                return min(found, key=str)
        return raw, "unattributed"


def _keys(kind: Kind, raw: tuple[Frame, ...]) -> Iterator[tuple[object, ...]]:
    # The disassembler tells no columns.
    chain = tuple((frame.file, frame.line) for frame in raw)
    yield kind, chain
    yield kind, chain[:1], "innermost"
    # An atomic may be made of a load and a compare-and-swap.
    yield "any", chain
    yield "any", chain[:1], "innermost"


def _instructions(text: str) -> Iterator[Instruction]:
    frames: list[Frame] = []
    fresh = False
    for line in text.splitlines():
        if place := _PLACE.match(line):
            if not fresh:
                frames = []
            frames.append(Frame(current_file(place[1]), int(place[2]), 0))
            fresh = True
        elif match := _INSTRUCTION.match(line):
            fresh = False
            yield Instruction(match[1], " ".join(match[2].split()), tuple(frames))


def _normalised(code: list[Instruction]) -> str:
    names: dict[str, str] = {}
    return "\n".join(
        f"{i.opcode} {_LABEL.sub(lambda match: names.setdefault(match[0], f'L{len(names)}'), i.operands)}" for i in code
    )
