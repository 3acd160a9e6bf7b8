"""State of the registers of wavefronts in addition to their values: undefined bits, and results that are due.

A ``Shadow`` belongs to its ``Wavefronts``, and is split and merged with them. Its ``bits`` are wavefronts too, of the
same shape, whose registers hold 1 where a bit is undefined: so every view of an operand (a half, a pair, a lane mask)
has its counterpart, by the same key.

Most registers are fully defined, so sets of registers are kept as Python integers, one bit per register: ``dirty`` are
registers that may have an undefined bit, ``due`` those that an outstanding load will write. An instruction that touches
none of them costs two comparisons.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from harness.emulator.execution.launch import Chunk
from harness.emulator.faults import UnimplementedInstruction
from harness.emulator.listing.instructions import Instruction
from harness.emulator.watch.check.queues import Queues
from harness.emulator.wavefront import operands
from harness.emulator.wavefront.operands import Operand
from harness.emulator.wavefront.state import LANES, M0, SGPRS, VCC, Wavefronts

# Positions of the scalar registers and SCC in a set of registers: after the 512 vector and accumulation registers.
_SCALARS = 512
SCC = 1 << (_SCALARS + SGPRS)
EVERY_VECTOR = (1 << _SCALARS) - 1
_ONES = np.uint32(0xFFFFFFFF)


def vectors(first: int, count: int = 1) -> int:
    """Return the set of ``count`` vector registers."""
    return ((1 << count) - 1) << first


def scalars(first: int, count: int = 1) -> int:
    """Return the set of ``count`` scalar registers."""
    return ((1 << count) - 1) << (_SCALARS + first)


def registers(operand: Operand | None) -> int:
    """Return the set of registers that an operand names, empty for an implicit operand."""
    if operand is None or operand.space not in ("v", "s"):
        return SCC if operand is not None and operand.space == "scc" else 0
    return (vectors if operand.space == "v" else scalars)(operand.register, operand.count)


def touched(instruction: Instruction, accum_offset: int) -> int:
    """Return all registers that an instruction names."""
    return _touched(instruction.operands, accum_offset)


@lru_cache(maxsize=1 << 16)
def _touched(listed: tuple[str, ...], accum_offset: int) -> int:
    names = 0
    for text in listed:
        try:
            names |= registers(operands.parse(text, accum_offset))
        except UnimplementedInstruction:
            continue  # not a register: a counter, a hardware register, a label
    return names


def first_of(names: int) -> str:
    """Return the name of the first register of a set, as in a listing."""
    number = (names & -names).bit_length() - 1
    if number < _SCALARS:
        return f"v{number}"
    number -= _SCALARS
    named = {VCC: "vcc_lo", VCC + 1: "vcc_hi", M0: "m0", SGPRS: "scc"}
    return named.get(number, f"s{number}")


class Shadow:
    """The shadow of W wavefronts; see the module docstring.

    ``queues`` has the outstanding memory operations; ``loaded`` names the last load of memory that was never written.
    """

    __slots__ = ("bits", "dirty", "loaded", "queues")

    def __init__(self, bits: Wavefronts, dirty: int, queues: Queues, loaded: str = "") -> None:
        self.bits = bits
        self.dirty = dirty
        self.queues = queues
        self.loaded = loaded

    def select(self, rows: np.ndarray) -> Shadow:
        """Return the shadow of the wavefronts ``rows``; see ``Wavefronts.select``."""
        return Shadow(self.bits.select(rows), self.dirty, self.queues.select(rows, len(self.bits)), self.loaded)

    @staticmethod
    def merge(parts: list[Shadow]) -> Shadow:
        """Join the shadows of wavefronts; see ``Wavefronts.merge``."""
        dirty = 0
        for part in parts:
            dirty |= part.dirty
        queues = Queues.merge([part.queues for part in parts], [len(part.bits) for part in parts])
        loaded = next((part.loaded for part in parts if part.loaded), "")
        return Shadow(Wavefronts.merge([part.bits for part in parts]), dirty, queues, loaded)

    def aligned(self, wf: Wavefronts) -> Wavefronts:
        """Return ``bits`` with the lanes of ``wf`` enabled, so that setters for registers of ``wf`` work on it."""
        self.bits.exec_mask, self.bits.exec_all = wf.exec_mask, wf.exec_all
        return self.bits

    def define(self, wf: Wavefronts, first: int, count: int) -> None:
        """Mark vector registers as defined in the active lanes."""
        for register in range(first, first + count):
            name = 1 << register
            if not self.dirty & name:
                continue
            bits = self.bits.v[register >> 1][:, :, register & 1]
            if wf.exec_all:
                bits[...] = 0
                self.dirty &= ~name
            else:
                np.copyto(bits, np.uint32(0), where=wf.exec_mask)

    def define_scalars(self, first: int, count: int) -> None:
        """Mark scalar registers as defined."""
        self.bits.s[:, first : first + count] = 0
        self.dirty &= ~scalars(first, count)

    def define_all(self, wf: Wavefronts, names: int) -> None:
        """Mark the registers ``names`` as defined: vector registers in the active lanes."""
        left = names & self.dirty
        while left:
            name = left & -left
            left ^= name
            number = name.bit_length() - 1
            if number < _SCALARS:
                self.define(wf, number, 1)
            elif name == SCC:
                self.bits.scc[...] = False
                self.dirty &= ~name
            else:
                self.define_scalars(number - _SCALARS, 1)

    def undefined_scalar(self, names: int) -> tuple[int, int] | None:
        """Return a wavefront in which one of the scalar registers ``names`` has an undefined bit, and that register."""
        left = names & self.dirty & ~EVERY_VECTOR
        while left:
            name = left & -left
            left ^= name
            bits = self.bits.scc if name == SCC else self.bits.s[:, name.bit_length() - 1 - _SCALARS]
            if bits.any():
                return int((bits != 0).argmax()), name
        return None

    def settle(self, names: int) -> None:
        """Update ``dirty`` for the registers ``names``: drop those that are fully defined, add the others."""
        left = names
        while left:
            name = left & -left
            left ^= name
            number = name.bit_length() - 1
            if number < _SCALARS:
                bits = self.bits.v[number >> 1][:, :, number & 1]
            else:
                bits = self.bits.scc if name == SCC else self.bits.s[:, number - _SCALARS]
            self.dirty = self.dirty | name if bits.any() else self.dirty & ~name


def at_entry(chunk: Chunk) -> Shadow:
    """Return the shadow of a chunk's wavefronts at entry: only registers that the hardware sets up are defined.

    These are v0 with the work-item ids, the user and system SGPRs that the kernel descriptor enables, EXEC, and the
    architected flat scratch registers (LLVM AMDGPUUsage, "Initial Kernel Execution State"); not VCC, M0 and SCC.
    """
    wf = chunk.wavefronts
    vector = np.full_like(wf.v, _ONES)
    vector[0, :, :, 0] = 0
    scalar = np.zeros_like(wf.s)
    dirty = undefined_at_entry(chunk.launch.program.listing.directives)
    scalar[:, [i for i in range(SGPRS) if dirty & scalars(i)]] = _ONES
    bits = Wavefronts(chunk, wf.wave, vector, scalar, np.ones(len(wf), np.bool_))
    return Shadow(bits, dirty, Queues())


def undefined_at_entry(directives: dict[str, int]) -> int:
    """Return the set of registers that the hardware does not set up."""
    first = _given(directives)
    return EVERY_VECTOR & ~1 | scalars(first, 102 - first) | scalars(VCC, 2) | scalars(M0) | SCC


def _given(directives: dict[str, int]) -> int:
    """Return the number of scalar registers that the hardware sets: the user SGPRs, then work-group ids and others."""
    widths = {"private_segment_buffer": 4, "dispatch_ptr": 2, "queue_ptr": 2, "kernarg_segment_ptr": 2,
              "dispatch_id": 2, "flat_scratch_init": 2, "private_segment_size": 1}  # fmt: skip
    user = sum(width for name, width in widths.items() if directives.get(f"user_sgpr_{name}"))
    user += directives.get("user_sgpr_kernarg_preload_length", 0)
    system = sum(directives.get(f"system_sgpr_workgroup_id_{axis}", int(axis == "x")) for axis in "xyz")
    system += directives.get("system_sgpr_workgroup_info", 0)
    return int(directives.get("user_sgpr_count", user) + system)


def lane_bits(shadow: Shadow, first: int, count: int) -> np.ndarray:
    """Return bool[W, 64]: True where any bit of these vector registers is undefined."""
    bad = np.zeros((len(shadow.bits), LANES), np.bool_)
    for register in range(first, first + count):
        if shadow.dirty >> register & 1:
            bad |= shadow.bits.v[register >> 1][:, :, register & 1] != 0
    return bad


def scalar_bits(shadow: Shadow, first: int, count: int) -> np.ndarray:
    """Return bool[W, 1]: True where any bit of these scalar registers is undefined."""
    bad: np.ndarray = (shadow.bits.s[:, first : first + count] != 0).any(axis=1)
    return bad[:, None]
