"""What a memory instruction does, as data: the seam between the ops tables and the watched modes.

A builder in ``memory``, ``atomics`` or ``lds`` returns an ``Effect``: the access, and the step that executes it on
coherent memory. ``fast`` runs the step; a watched mode sees the access and runs the step, or puts its own in its place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from harness.emulator import native
from harness.emulator.entry import PRIVATE_APERTURE, SHARED_APERTURE
from harness.emulator.faults import UnimplementedInstruction
from harness.emulator.listing import Instruction
from harness.emulator.ops.table import Step
from harness.emulator.state import LANES, M0, Wavefronts

LOAD, STORE, ATOMIC, COPY = "load", "store", "atomic", "copy"


class AddressForm(NamedTuple):
    """How a global or buffer instruction forms its lanes' addresses, as ``native`` takes it.

    ``form`` is ``native.GLOBAL``, ``GLOBAL_SADDR`` or ``BUFFER``; ``areg`` the vector register (pair) with the
    lane's part or -1; ``sreg`` the scalar base or descriptor; ``soffset`` a scalar offset register or -1;
    ``offset`` in bytes.
    """

    form: int
    areg: int
    sreg: int
    soffset: int
    offset: int


@dataclass(frozen=True)
class GlobalAccess:
    """A ``global_*``, ``buffer_*`` access. ``kind`` is ``load``, ``store`` or ``atomic``, ``size`` in bytes a lane.

    ``site``      index of the access site in the program
    ``data``      first data register: a load's destination, a store's source, an atomic's operand
    ``target``    where an atomic leaves the old value, or -1
    ``operation`` an atomic's ``native`` operation; ``signed`` and ``half`` (0 whole register, 1 low half, 2 high half)
                  are those of an access narrower than a register
    """

    instruction: Instruction
    site: int
    kind: str
    size: int
    address: AddressForm
    data: int
    target: int = -1
    operation: int = -1
    signed: bool = False
    half: int = 0

    def addresses(self, wf: Wavefronts) -> tuple[np.ndarray, np.ndarray]:
        """Each lane's address, uint64[W, 64], and which lanes access memory: active, and inside a buffer's range."""
        return _global_addresses(wf, self.address, self.size)

    @property
    def scope(self) -> str:
        """How far the access itself reaches: ``wave``, ``workgroup``, ``agent`` or ``system``.

        LLVM AMDGPUUsage, "Memory Model gfx942": sc1:sc0 on loads and stores; on read-modify-writes sc0 asks for the old
        value, and without sc1 they act at agent scope.
        """
        if self.kind == ATOMIC:
            return "system" if "sc1" in self.instruction.modifiers else "agent"
        return _scope(self.instruction)


@dataclass(frozen=True)
class LdsAccess:
    """A ``ds_*`` access to the local data share: ``parts`` are (offset in bytes, data register) by address ``areg``.

    ``kind``, ``size``, ``target``, ``operation``, ``signed`` and ``half`` as in ``GlobalAccess``; ``size`` is that
    of one part. ``areg`` -1: the address is M0 plus 4 bytes a lane (``ds_read_addtid_b32``).

    ``second``      an atomic's second data register, or -1
    ``transposed``  bits of an element that ``ds_read_*_tr_*`` hands to another lane of its 16; 0: a lane gets what it
                    reads
    """

    instruction: Instruction
    kind: str
    size: int
    areg: int
    parts: tuple[tuple[int, int], ...]
    target: int = -1
    operation: int = -1
    signed: bool = False
    half: int = 0
    second: int = -1
    transposed: int = 0

    def addresses(self, wf: Wavefronts, part: int = 0) -> np.ndarray:
        """Each lane's address in its work-group's data share, int64[W, 64]; those of inactive lanes mean nothing."""
        offset, _ = self.parts[part]
        if self.areg < 0:
            return _lane_slots(wf, 4) + offset
        return wf.v[self.areg >> 1][:, :, self.areg & 1].astype(np.int64) + offset


@dataclass(frozen=True)
class CopyAccess:
    """A load to the local data share: ``global_load_lds_*``, ``buffer_load_* lds``. ``kind`` is ``copy``.

    Lane n copies ``size`` bytes from its global address, formed by ``address``, to M0 + ``offset`` + n * ``slot`` in
    the data share of its work-group; bytes and shorts are extended to a dword there (``signed``). A lane outside its
    buffer's range writes 0. ``site`` as in ``GlobalAccess``.
    """

    instruction: Instruction
    site: int
    size: int
    address: AddressForm
    offset: int
    signed: bool = False
    kind: str = COPY

    @property
    def scope(self) -> str:
        """That of the load: see ``GlobalAccess.scope``."""
        return _scope(self.instruction)

    @property
    def slot(self) -> int:
        """The bytes that a lane writes."""
        return max(4, self.size)

    def addresses(self, wf: Wavefronts) -> tuple[np.ndarray, np.ndarray]:
        """Where lanes read: as ``GlobalAccess.addresses``. An active lane that does not read writes 0."""
        return _global_addresses(wf, self.address, self.size)

    def lds_addresses(self, wf: Wavefronts) -> np.ndarray:
        """Where lanes write in their work-group's data share, int64[W, 64]."""
        return _lane_slots(wf, self.slot) + self.offset


@dataclass(frozen=True)
class ScratchAccess:
    """A ``scratch_*`` access to a lane's own private segment, at ``areg`` + ``sreg`` + ``offset`` (-1: left out).

    ``kind``, ``size``, ``data``, ``signed`` and ``half`` as in ``GlobalAccess``.
    """

    instruction: Instruction
    kind: str
    size: int
    areg: int
    sreg: int
    offset: int
    data: int
    signed: bool = False
    half: int = 0

    def addresses(self, wf: Wavefronts) -> np.ndarray:
        """Each lane's address in its private segment, int64[W, 64]."""
        lane = wf.v[self.areg >> 1][:, :, self.areg & 1].astype(np.int64) if self.areg >= 0 else 0
        scalar = wf.s[:, self.sreg].astype(np.int64)[:, None] if self.sreg >= 0 else 0
        return np.broadcast_to((lane + scalar + self.offset) & 0xFFFFFFFF, wf.exec_mask.shape)


@dataclass(frozen=True)
class FlatAccess(GlobalAccess):
    """A ``flat_*`` access: to global memory, but to LDS (``shared``) or scratch (``private``) in the lanes of which the
    upper half of the address is an aperture. Atomics have neither."""

    shared: LdsAccess | None = None
    private: ScratchAccess | None = None

    def apertures(self, wf: Wavefronts) -> tuple[np.ndarray, np.ndarray] | None:
        """Which active lanes mean LDS, and which scratch, bool[W, 64]; None where none does."""
        high = self.address.areg + 1
        upper = wf.v[high >> 1][:, :, high & 1]
        lds, scratch = wf.exec_mask & (upper == SHARED_APERTURE), wf.exec_mask & (upper == PRIVATE_APERTURE)
        return (lds, scratch) if lds.any() or scratch.any() else None

    def addresses(self, wf: Wavefronts) -> tuple[np.ndarray, np.ndarray]:
        """As ``GlobalAccess.addresses``, for who takes the access for one to global memory: refuses any other."""
        if self.apertures(wf) is not None:
            raise UnimplementedInstruction(f"{self.instruction.text!r} on LDS or scratch, in a watched mode")
        return super().addresses(wf)


@dataclass(frozen=True)
class ScalarAccess:
    """An ``s_load_*`` or ``s_buffer_load_*``: ``words`` dwords to scalar register ``target``.

    The address is that in the register pair ``base`` (48 bits of it in a descriptor), plus ``offset``, plus scalar
    register ``soffset`` (-1: left out).
    """

    instruction: Instruction
    target: int
    words: int
    base: int
    soffset: int
    offset: int

    def addresses(self, wf: Wavefronts) -> np.ndarray:
        """Each wavefront's address, uint64[W]."""
        mask = 0xFFFF if "buffer" in self.instruction.mnemonic else 0xFFFFFFFF
        low, high = wf.s[:, self.base].astype(np.uint64), wf.s[:, self.base + 1].astype(np.uint64)
        address = low + ((high & np.uint64(mask)) << np.uint64(32)) + np.uint64(self.offset & 0xFFFFFFFFFFFFFFFF)
        return address + wf.s[:, self.soffset].astype(np.uint64) if self.soffset >= 0 else address


Access = GlobalAccess | LdsAccess | CopyAccess | ScratchAccess | ScalarAccess


@dataclass(frozen=True)
class Effect:
    """What a builder of a memory instruction returns: see the module docstring."""

    access: Access
    step: Step


def _scope(instruction: Instruction) -> str:
    sc0, sc1 = ("sc0" in instruction.modifiers), ("sc1" in instruction.modifiers)
    return ("system" if sc0 else "agent") if sc1 else ("workgroup" if sc0 else "wave")


def _global_addresses(wf: Wavefronts, address: AddressForm, size: int) -> tuple[np.ndarray, np.ndarray]:
    out = np.zeros((len(wf), LANES), np.uint64)
    inside = np.zeros((len(wf), LANES), np.bool_)
    native.addresses(wf.v, wf.s, *address, size, out, inside)
    return out, inside & wf.exec_mask


def _lane_slots(wf: Wavefronts, size: int) -> np.ndarray:
    """M0 plus ``size`` bytes a lane.

    AMD "CDNA3 ISA", "Memory Buffer Load to LDS": the offset in M0 has 16 bits; a gfx950 addresses 160 KiB with 18.
    """
    bits = 18 if wf.chunk.launch.program.listing.arch == "gfx950" else 16
    base = wf.s[:, M0] & np.uint32((1 << bits) - 1)
    return base.astype(np.int64)[:, None] + size * np.arange(LANES)
