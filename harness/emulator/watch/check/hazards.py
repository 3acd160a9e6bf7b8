"""Hazards that the hardware does not resolve by itself: pairs of instructions with too few wait states between them.

Each instruction between the two is one wait state, ``s_nop N`` is N + 1. LLVM inserts ``s_nop`` where its own code
needs it, but not inside inline assembly. Rules: LLVM ``GCNHazardRecognizer`` (checkVALUHazards, checkDPPHazards,
checkRWLaneHazards, checkDivFMasHazards, checkVMEMHazards, checkSetRegHazards, checkReadM0Hazards, checkPermlaneHazards,
checkMAIHazards90A, checkMAIVALUHazards), and the passes of matrix products from ``SISchedule``, models
SIDPGFX942FullSpeedModel and SIDPGFX950FullSpeedModel; AMD "CDNA4 ISA", "Required Independent Instructions".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from harness.emulator.faults import MissingWaitStates
from harness.emulator.listing.instructions import Instruction
from harness.emulator.operations.access import (
    STORE,
    CopyAccess,
    FormatAccess,
    GlobalAccess,
    LdsAccess,
    ScratchAccess,
)
from harness.emulator.program.decode import BRANCH, CALL, END, JUMP, Decoded, Program
from harness.emulator.watch.check import shadow as registers
from harness.emulator.wavefront import operands
from harness.emulator.wavefront.state import M0, VCC

_VECTORS = registers.EVERY_VECTOR
_VCC = registers.scalars(VCC, 2)
_M0 = registers.scalars(M0, 1)
_TRANSCENDENTAL = re.compile(r"v_(exp|log|rcp|rsq|sqrt|sin|cos)_")
_HARDWARE = re.compile(r"HW_REG_\w+|hwreg\((\w+)")
# Conversions that write one byte of their destination: op_sel[3:2] selects it.
_BYTES = re.compile(r"v_cvt_(sr_(fp8|bf8)_f32|scalef32_(pk_fp4|sr_pk_fp4|sr_fp8|sr_bf8)_)")
_SHAPE = re.compile(r"v_s?mf(?:ma|mac)_(?:scale_)?(\w\d+)_(4x4|16x16|32x32)x(\d+)_?(?:\d+b_?)?(\w+)")
_LONGEST, _LONGEST_OF_PRODUCTS = 5, 20


@dataclass(frozen=True)
class Product:
    """A matrix product: its passes, the registers of A, B and scales or index, those of C; kind: xdl, sgemm, dgemm."""

    passes: int
    factors: int
    addend: int
    kind: str

    def result_states(self, gfx950: bool) -> int:
        """Return the wait states until the result may be read as A or B, or by other instructions, or overwritten."""
        if self.kind == "dgemm":
            return 6 if self.passes == 4 else 19 if gfx950 else 11
        if self.kind == "sgemm":
            return self.passes + 2
        return self.passes + 3 + (gfx950 and self.passes != 2)

    def addend_states(self, later: Product, same: bool, gfx950: bool) -> int:
        """Return the wait states until ``later`` may read the result as C; ``same``: in the same registers exactly."""
        if same:
            both_4x4 = self.kind == later.kind == "dgemm" and self.passes == later.passes == 4
            return 4 if both_4x4 else 2 if self.passes == 2 else 0
        if self.kind != "xdl" and later.kind == "xdl":
            return 0
        if self.kind == "dgemm":
            return 4 if self.passes == 4 else 17 if gfx950 else 9
        if self.kind == "sgemm":
            return self.passes
        return self.passes + 1 + (gfx950 and (later.kind == "xdl" or self.passes != 2))


@dataclass(frozen=True)
class Site:
    """An instruction with the registers that it reads and writes, as sets (``shadow.registers``)."""

    instruction: Instruction
    unit: str
    """valu, salu, vmem, lds or other."""
    reads: int
    writes: int
    product: Product | None = None
    writes_exec: bool = False
    partial: bool = False
    """Writes a part of its destination: SDWA, or op_sel of the destination."""
    dpp: bool = False
    lane_select: int = 0
    stored: int = 0
    """Vector registers of a store of more than 8 bytes, which is still reading them."""
    needs_m0: bool = False
    hardware: str = ""
    """The hardware register of s_setreg or s_getreg."""
    is_dot: bool = False

    @property
    def name(self) -> str:
        return self.instruction.mnemonic


def site(decoded: Decoded, reads: int, writes: int) -> Site:
    """Return the facts of an instruction that reads and writes these registers; EXEC is not among them."""
    instruction, access, name = decoded.instruction, decoded.access, decoded.instruction.mnemonic
    modifiers = instruction.modifiers
    unit = {"valu": "valu", "salu": "salu", "lds": "lds", "vmem": "vmem", "atomic": "vmem"}.get(
        decoded.entry.klass, "other"
    )
    bits = modifiers.get("op_sel", "").strip("[]").split(",")
    packed = getattr(decoded.entry, "packed", False) or getattr(decoded.entry, "mixed", False)
    byte = _BYTES.match(name) is not None and ("sr_pk_fp4" in name or "1" in "".join(bits[2:]))
    return Site(
        instruction,
        unit,
        reads,
        writes,
        _product(decoded),
        name.startswith("v_cmpx"),
        (decoded.encoding == "sdwa" and modifiers.get("dst_sel", "DWORD") != "DWORD")
        or (unit == "valu" and not packed and len(bits) > 2 and bits[-1].strip() == "1")
        or byte,
        decoded.encoding == "dpp",
        _last(decoded) if name.startswith(("v_readlane", "v_writelane")) else 0,
        _stored(decoded),
        isinstance(access, CopyAccess) or "addtid" in name or name.startswith(("s_sendmsg", "s_movrel")),
        _hardware(instruction) if name.startswith(("s_setreg", "s_getreg")) else "",
        name.startswith("v_dot"),
    )


def check(program: Program, sites: dict[int, Site]) -> None:
    """Raise ``MissingWaitStates`` for the first hazard of a program; ``sites`` by the index of the instruction."""
    code = program.listing.instructions
    starts = [block.first for block in program.blocks]
    ends = [*starts[1:], len(code)]
    before: list[list[int]] = [[] for _ in program.blocks]
    for block in program.blocks:
        if block.end not in (JUMP, END, CALL) and block.index + 1 < len(starts):
            before[block.index + 1].append(block.index)
        if block.end in (JUMP, BRANCH):
            before[block.target].append(block.index)
    gfx950 = program.listing.arch == "gfx950"
    longest = _LONGEST_OF_PRODUCTS if any(s.product or s.is_dot for s in sites.values()) else _LONGEST

    def earlier(block: int, index: int) -> Iterator[tuple[int, int]]:
        """Yield (index, wait states between) of the instructions before ``index``, over all paths."""
        waiting, seen = [(block, index, 0)], dict[int, int]()
        while waiting:
            block, index, states = waiting.pop()
            while index > starts[block] and states < longest:
                index -= 1
                yield index, states
                states += _wait_states(code[index])
            if states < longest and index == starts[block]:
                for other in before[block]:
                    if seen.get(other, longest) > states:
                        seen[other] = states
                        waiting.append((other, ends[other], states))

    for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
        for index in range(start, end):
            second = sites.get(index)
            if second is None:
                continue
            for at, states in earlier(number, index):
                first = sites.get(at)
                needed = 0 if first is None else _needed(first, second, gfx950)
                if first is not None and needed > states:
                    raise _fault(program, first, second, needed, states)


def _needed(first: Site, second: Site, gfx950: bool) -> int:
    """Return the wait states that ``second`` needs after ``first``."""
    read, written = first.writes & second.reads, first.writes & second.writes
    uses = second.unit in ("valu", "vmem", "lds")
    if first.product is not None and uses:
        return _after_product(first.product, first, second, gfx950)
    if first.unit == "valu":
        needed = 5 if second.unit == "vmem" and read & ~_VECTORS else 0
        if second.unit == "valu":
            needed = max(needed, _between(first, second, read))
        if first.is_dot and uses and (read | written) & _VECTORS and first.name != second.name:
            needed = max(needed, 3)
        return needed
    if second.unit == "valu" and first.stored & second.writes:
        return 2
    if second.needs_m0 and first.unit == "salu" and first.writes & _M0:
        return 1
    if first.hardware and first.hardware == second.hardware and first.name.startswith("s_setreg"):
        return 2
    if second.unit == "valu" and second.dpp and read & _VECTORS:
        return 2
    return 0


def _between(first: Site, second: Site, read: int) -> int:
    """Return the wait states between two vector ALU instructions, the first of them not a matrix product."""
    needed = 0
    if read & _VECTORS:
        late = _TRANSCENDENTAL.match(first.name) and not _TRANSCENDENTAL.match(second.name)
        if late or first.partial or second.name.startswith(("v_readlane", "v_readfirstlane")):
            needed = 1
        swaps = second.name.startswith(("v_permlane16_swap", "v_permlane32_swap"))
        if second.dpp or swaps or (second.product is not None and not first.is_dot):
            needed = 2
    if read & ~_VECTORS:
        needed = max(needed, 2)
    if first.writes & second.lane_select or (second.name.startswith("v_div_fmas") and first.writes & _VCC):
        needed = max(needed, 4)
    if first.writes_exec:
        lane = second.name.startswith(("v_readlane", "v_readfirstlane", "v_writelane", "v_permlane"))
        needed = max(needed, 5 if second.dpp else 4 if lane or second.product is not None else 0)
    return needed


def _after_product(product: Product, first: Site, second: Site, gfx950: bool) -> int:
    if second.product is None:
        needed = 0
        if first.writes & (second.reads | second.writes):
            needed = product.result_states(gfx950)
            if product.kind == "dgemm" and second.unit != "valu" and first.writes & second.reads:
                needed = 9 if product.passes == 4 else 18
        if second.unit == "valu" and product.kind == "xdl" and product.addend & second.writes:
            needed = max(needed, {2: 1, 4: 3, 8: 7}.get(product.passes, 15))
        return needed
    if first.writes & second.product.factors:
        return product.result_states(gfx950)
    if first.writes & second.product.addend:
        return product.addend_states(second.product, first.writes == second.product.addend, gfx950)
    return 0


def _product(decoded: Decoded) -> Product | None:
    match = _SHAPE.match(decoded.instruction.mnemonic)
    if match is None:
        return None
    result, shape, k, source = match[1], match[2], int(match[3]), match[4]
    if result == "f64":
        passes = 4 if shape == "4x4" else 8
    elif source == "f8f6f4":
        # Half as many if neither A nor B is fp8 or bf8, the formats 0 and 1.
        formats = (int(decoded.instruction.modifiers.get(name, "0"), 0) for name in ("cbsz", "blgp"))
        passes = (8 if shape == "16x16" else 16) >> (min(formats) > 1)
    elif shape == "4x4":
        passes = 2
    elif shape == "16x16":
        passes = 4 if k >= 8 else 8
    else:
        passes = 8 if k >= 8 or source == "xf32" else 16
    kind = "dgemm" if result == "f64" else "sgemm" if source == "f32" else "xdl"
    d, a, b, c, *scales = (_registers(text, decoded) for text in decoded.instruction.operands)
    if decoded.instruction.mnemonic.startswith("v_smfmac"):
        return Product(passes, a | b | c, d, kind)  # the fourth operand is the index, and it adds to D
    factors = a | b
    for scale in scales:
        factors |= scale
    return Product(passes, factors, c, kind)


def _stored(decoded: Decoded) -> int:
    access = decoded.access
    if not isinstance(access, (GlobalAccess, FormatAccess, ScratchAccess)) or access.kind != STORE:
        return 0
    words = access.words if isinstance(access, FormatAccess) else access.size // 4
    if words <= 2 or (not isinstance(access, ScratchAccess) and access.address.soffset >= 0):
        return 0
    return registers.vectors(access.data, words)


def _last(decoded: Decoded) -> int:
    """Return the last operand's scalar registers: the lane of v_readlane and v_writelane."""
    return _registers(decoded.instruction.operands[2], decoded) & ~_VECTORS


def _registers(text: str, decoded: Decoded) -> int:
    return registers.registers(operands.parse(text, decoded.accum_offset))


def _hardware(instruction: Instruction) -> str:
    match = _HARDWARE.search(instruction.text)
    return "" if match is None else match[1] or match[0]


def _wait_states(instruction: Instruction) -> int:
    return int(instruction.operands[0], 0) + 1 if instruction.mnemonic == "s_nop" else 1


def _fault(program: Program, first: Site, second: Site, needed: int, states: int) -> MissingWaitStates:
    one, two = first.instruction, second.instruction
    return MissingWaitStates(
        f"kernel {program.name}, listing line {two.line}: {two.text!r} (at {two.source}) needs {needed} wait states "
        f"after {one.text!r} (line {one.line}, at {one.source}), and has {states}: insert s_nop {needed - states - 1}",
        kernel=program.name,
        instruction=two.text,
        listing_line=two.line,
        source=[str(frame) for frame in two.frames],
        other=one.text,
        other_source=[str(frame) for frame in one.frames],
    )


def memory_site(decoded: Decoded, names: int, results: int) -> Site:
    """Return the facts of a memory instruction that names these registers, ``results`` among them."""
    access = decoded.access
    kept = results if isinstance(access, (GlobalAccess, LdsAccess)) and access.kind == "atomic" else 0
    return site(decoded, names & ~results | kept, results)
