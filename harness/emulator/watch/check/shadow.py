"""What is known of the registers of wavefronts beside their values: which bits are undefined, which results are due.

A ``Shadow`` hangs on its ``Wavefronts``, and parts and meets with them. Its ``bits`` are wavefronts too, of the same
shape, whose registers hold 1 where a bit is undefined: so every view of an operand (a half, a pair, a lane mask) has
its counterpart, by the same key.

Most registers are defined throughout, so sets of registers are kept as Python integers, a bit each: ``dirty`` are those
of which any bit may be undefined, ``due`` those that an outstanding load will write. An instruction that touches none
of them costs two comparisons.
"""

from __future__ import annotations

import numpy as np

from harness.emulator import operands
from harness.emulator.faults import UnimplementedInstruction
from harness.emulator.launch import Chunk
from harness.emulator.listing import Instruction
from harness.emulator.operands import Operand
from harness.emulator.state import LANES, M0, SGPRS, VCC, Wavefronts
from harness.emulator.watch.check.queues import Queues

# Where the scalar registers, and SCC, lie in a set of registers: behind the 512 vector and accumulation registers.
_SCALARS = 512
SCC = 1 << (_SCALARS + SGPRS)
EVERY_VECTOR = (1 << _SCALARS) - 1
_ONES = np.uint32(0xFFFFFFFF)


def vectors(first: int, count: int = 1) -> int:
    """The set of ``count`` vector registers."""
    return ((1 << count) - 1) << first


def scalars(first: int, count: int = 1) -> int:
    """The set of ``count`` scalar registers."""
    return ((1 << count) - 1) << (_SCALARS + first)


def registers(operand: Operand | None) -> int:
    """The set of registers that an operand names; an implicit operand is none."""
    if operand is None or operand.space not in ("v", "s"):
        return SCC if operand is not None and operand.space == "scc" else 0
    return (vectors if operand.space == "v" else scalars)(operand.register, operand.count)


def touched(instruction: Instruction, accum_offset: int) -> int:
    """All registers that an instruction names."""
    names = 0
    for text in instruction.operands:
        try:
            names |= registers(operands.parse(text, accum_offset))
        except UnimplementedInstruction:
            continue  # no register: a counter, a hardware register, a label
    return names


def first_of(names: int) -> str:
    """The first register of a set, as a listing writes it."""
    number = (names & -names).bit_length() - 1
    if number < _SCALARS:
        return f"v{number}"
    number -= _SCALARS
    named = {VCC: "vcc_lo", VCC + 1: "vcc_hi", M0: "m0", SGPRS: "scc"}
    return named.get(number, f"s{number}")


class Shadow:
    """The shadow of W wavefronts; see the module docstring. ``queues`` has the outstanding memory operations,
    ``loaded`` says which memory that nobody has written was loaded last, and where."""

    __slots__ = ("bits", "dirty", "loaded", "queues")

    def __init__(self, bits: Wavefronts, dirty: int, queues: Queues, loaded: str = "") -> None:
        self.bits = bits
        self.dirty = dirty
        self.queues = queues
        self.loaded = loaded

    def select(self, rows: np.ndarray) -> Shadow:
        """As ``Wavefronts.select``."""
        return Shadow(self.bits.select(rows), self.dirty, self.queues.select(rows, len(self.bits)), self.loaded)

    @staticmethod
    def merge(parts: list[Shadow]) -> Shadow:
        """As ``Wavefronts.merge``."""
        dirty = 0
        for part in parts:
            dirty |= part.dirty
        queues = Queues.merge([part.queues for part in parts], [len(part.bits) for part in parts])
        loaded = next((part.loaded for part in parts if part.loaded), "")
        return Shadow(Wavefronts.merge([part.bits for part in parts]), dirty, queues, loaded)

    def aligned(self, wf: Wavefronts) -> Wavefronts:
        """``bits``, with the lanes of ``wf`` enabled: what writes registers of ``wf`` may write them alike."""
        self.bits.exec_mask, self.bits.exec_all = wf.exec_mask, wf.exec_all
        return self.bits

    def define(self, wf: Wavefronts, first: int, count: int) -> None:
        """Vector registers become defined in the active lanes."""
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
        """Scalar registers become defined."""
        self.bits.s[:, first : first + count] = 0
        self.dirty &= ~scalars(first, count)

    def define_all(self, wf: Wavefronts, names: int) -> None:
        """The registers ``names`` become defined: vector registers in the active lanes."""
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
        """A wavefront, and which of the scalar registers ``names`` has an undefined bit in it."""
        left = names & self.dirty & ~EVERY_VECTOR
        while left:
            name = left & -left
            left ^= name
            bits = self.bits.scc if name == SCC else self.bits.s[:, name.bit_length() - 1 - _SCALARS]
            if bits.any():
                return int((bits != 0).argmax()), name
        return None

    def settle(self, names: int) -> None:
        """Take those of the registers ``names`` that turn out to be defined out of ``dirty``, put the others in."""
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
    """The shadow of a chunk's wavefronts before their first instruction: only what the hardware sets up is defined.

    That is v0 with the work-item ids, the user and system SGPRs that the kernel descriptor asks for, EXEC, and the
    architected flat scratch registers (LLVM AMDGPUUsage, "Initial Kernel Execution State"); not VCC, M0 and SCC.
    """
    wf = chunk.wavefronts
    vector = np.full_like(wf.v, _ONES)
    vector[0, :, :, 0] = 0
    scalar = np.zeros_like(wf.s)
    first = _given(chunk.launch.program.listing.directives)
    scalar[:, first:102] = _ONES
    scalar[:, [VCC, VCC + 1, M0]] = _ONES
    bits = Wavefronts(chunk, wf.wave, vector, scalar, np.ones(len(wf), np.bool_))
    dirty = EVERY_VECTOR & ~1 | scalars(first, 102 - first) | scalars(VCC, 2) | scalars(M0) | SCC
    return Shadow(bits, dirty, Queues())


def _given(directives: dict[str, int]) -> int:
    """How many scalar registers the hardware sets: those of the user, then the work-group ids and what follows."""
    widths = {"private_segment_buffer": 4, "dispatch_ptr": 2, "queue_ptr": 2, "kernarg_segment_ptr": 2,
              "dispatch_id": 2, "flat_scratch_init": 2, "private_segment_size": 1}  # fmt: skip
    user = sum(width for name, width in widths.items() if directives.get(f"user_sgpr_{name}"))
    user += directives.get("user_sgpr_kernarg_preload_length", 0)
    system = sum(directives.get(f"system_sgpr_workgroup_id_{axis}", int(axis == "x")) for axis in "xyz")
    system += directives.get("system_sgpr_workgroup_info", 0)
    return int(directives.get("user_sgpr_count", user) + system)


def lane_bits(shadow: Shadow, first: int, count: int) -> np.ndarray:
    """bool[W, 64]: where any bit of these vector registers is undefined."""
    bad = np.zeros((len(shadow.bits), LANES), np.bool_)
    for register in range(first, first + count):
        if shadow.dirty >> register & 1:
            bad |= shadow.bits.v[register >> 1][:, :, register & 1] != 0
    return bad


def scalar_bits(shadow: Shadow, first: int, count: int) -> np.ndarray:
    """bool[W, 1]: where any bit of these scalar registers is undefined."""
    bad: np.ndarray = (shadow.bits.s[:, first : first + count] != 0).any(axis=1)
    return bad[:, None]
