"""Reader of SASS, the machine code of NVIDIA GPUs, as ``nvdisasm -gi -c`` prints it.

Its line table is ptxas's copy of the one in the PTX, which numbers the lines of Triton's inline assembly upwards from
the line of the statement (see ``harness.isa.ptx``). So an access is looked up in the PTX by its position in the line
table, and has the source position of the PTX access. If the PTX has no such access there, or one that is unattributed,
the access is unattributed. If the PTX has a local and a remote one there, as an unrolled loop over ranks has, each
access at that position may be the remote one, and counts as remote.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from harness.errors import HarnessError
from harness.isa import ptx
from harness.isa.flow.origin import UNKNOWN, Roots
from harness.isa.ptx_code import access_form as ptx_access_form
from harness.isa.ptx_code import instructions
from harness.isa.record import AccessForm, Fingerprint, Kind, Space, counted
from harness.isa.sources import Frame, Where, current_file

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
_UNKNOWN_PLACE: Where = "unattributed"
_OTHER = {
    "E", "ADD", "MIN", "MAX", "AND", "OR", "XOR", "INC", "DEC", "EXCH", "CAS", "CAST", "SPIN", "FTZ", "RN", "ZD",
}  # fmt: skip


@dataclass(frozen=True)
class Instruction:
    """One instruction: dotted opcode, operand text, and the frames in the line table, innermost first."""

    opcode: str
    operands: str
    raw: tuple[Frame, ...]


def read(text: str, listing: str = "", roots: Roots = UNKNOWN) -> Fingerprint:
    """Return the fingerprint of disassembled machine code; ``listing``: the PTX that it was made from.

    Registers and memory come from cuobjdump's line ``REG:18 STACK:0 SHARED:0 ...``, anywhere in ``text``. Raises
    HarnessError if ``text`` is not a disassembly of one target, or has an unknown access.
    """
    arch = _ARCH.search(text)
    code = list(_instructions(text))
    if not MARK.search(text) or arch is None or not code:
        raise HarnessError(f"expected a disassembly of one NVIDIA target, got {text[:60]!r}")
    places = _Places(listing, roots) if listing else None
    accesses = []
    for i in code:
        if (form := access_form(i.opcode)) is not None:
            frames, where = places.of(form.kind, i.raw) if places else (i.raw, _UNKNOWN_PLACE)
            accesses.append((i.opcode, form, qualifiers(i.opcode), frames, where))
    code_alone = Fingerprint(
        language="sass",
        arch=f"sm_{arch[1] or arch[2]}",
        sha256=hashlib.sha256(_normalised(code).encode()).hexdigest(),
        accesses=counted(accesses),
        instructions=len(code),
        barriers=sum(i.opcode.startswith("BAR.") for i in code),
        fences=dict(
            sorted(Counter(i.opcode for i in code if i.opcode.startswith(("MEMBAR", "FENCE", "CCTL.IVALL"))).items())
        ),
    )
    return with_usage(code_alone, text)


def with_usage(code: Fingerprint, text: str) -> Fingerprint:
    """Return ``code`` with registers, shared memory, and scratch (stack and local memory) of cuobjdump's line, if
    ``text`` has one."""
    usage = {name: int(number) for name, number in _USAGE.findall(text)}
    if "REG" not in usage:
        return code
    scratch = usage.get("STACK", 0) + usage.get("LOCAL", 0)
    return replace(code, registers=usage["REG"], lds=usage.get("SHARED", 0), scratch=scratch)


def access_form(opcode: str) -> AccessForm | None:
    """Return the form of an instruction, or None if it does not access global memory.

    Raises HarnessError for a global access of unknown width: a guess could cause a wrong verdict.
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
    """Return the order, scope and cache words of an opcode in their order: ``("STRONG", "SYS")``, ``("EF",)``."""
    return tuple(word for word in opcode.split(".")[1:] if _is_qualifier(word))


def _is_qualifier(word: str) -> bool:
    return word in _ORDERS or word in _CACHES


class _Places:
    """Source positions of the accesses of some PTX, by kind and position in the line table."""

    def __init__(self, listing: str, roots: Roots) -> None:
        where = ptx.places(listing, roots)
        self._places: dict[tuple[object, ...], set[tuple[tuple[Frame, ...], Where]]] = {}
        for number, i in enumerate(instructions(listing)):
            if (form := ptx_access_form(i.opcode, i.operands)) is not None:
                for key in _keys(form.kind, i.raw):
                    self._places.setdefault(key, set()).add((i.frames, where.get(number, _UNKNOWN_PLACE)))

    def of(self, kind: Kind, raw: tuple[Frame, ...]) -> tuple[tuple[Frame, ...], Where]:
        """Return the source frames of an access.

        Looks it up by the whole chain, then by the innermost line only (if the disassembler has no more), then by
        both with any kind of access.
        """
        for key in _keys(kind, raw):
            if places := self._places.get(key):
                verdicts = {where for _, where in places}
                if _UNKNOWN_PLACE in verdicts:
                    break
                wanted: Where = "remote" if "remote" in verdicts else "local"
                return min((place for place in places if place[1] == wanted), key=str)
        return raw, _UNKNOWN_PLACE


def _keys(kind: Kind, raw: tuple[Frame, ...]) -> Iterator[tuple[object, ...]]:
    # The disassembler prints no columns.
    chain = tuple((frame.file, frame.line) for frame in raw)
    yield kind, chain
    yield kind, chain[:1], "innermost"
    # An atomic may be compiled to a load and a compare-and-swap.
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
