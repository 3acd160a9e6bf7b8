"""Descriptions of memory accesses as data: the interface between the ops tables and the watched modes.

A builder in ``memory``, ``atomics`` or ``lds`` returns an ``Effect``: the access, and the step that executes it on
coherent memory. ``fast`` runs the step; a watched mode inspects the access and runs the step, or replaces it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from harness.emulator.faults import UnimplementedInstruction
from harness.emulator.listing.instructions import Instruction
from harness.emulator.native import memory as native
from harness.emulator.operations import formats
from harness.emulator.operations.table import Step
from harness.emulator.wavefront.entry import PRIVATE_APERTURE, SHARED_APERTURE
from harness.emulator.wavefront.state import LANES, M0, Wavefronts

LOAD, STORE, ATOMIC, COPY = "load", "store", "atomic", "copy"


class AddressForm(NamedTuple):
    """The address form of a global or buffer instruction, in the encoding of ``native``.

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
    ``target``    register for the old value of an atomic, or -1
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
        """Return each lane's address, uint64[W, 64], and the accessing lanes: active, and inside a buffer's range."""
        return _global_addresses(wf, self.address, self.size)

    @property
    def words(self) -> int:
        """Number of data registers, of an atomic those of one operand."""
        return max(1, self.size // 4)

    @property
    def data_masks(self) -> list[int]:
        """The bits of each data register that a store writes to memory."""
        if self.size >= 4:
            return [0xFFFFFFFF] * self.words
        return [((1 << 8 * self.size) - 1) << (16 if self.half == 2 else 0)]

    @property
    def scope(self) -> str:
        """The scope of the access itself: ``wave``, ``workgroup``, ``agent`` or ``system``.

        LLVM AMDGPUUsage, "Memory Model gfx942": sc1:sc0 on loads and stores; on read-modify-writes sc0 requests the old
        value, and without sc1 they act at agent scope.
        """
        if self.kind == ATOMIC:
            return "system" if "sc1" in self.instruction.modifiers else "agent"
        return _scope(self.instruction)


@dataclass(frozen=True)
class TypedAccess(GlobalAccess):
    """An access to a buffer's elements in one format: see ``FormatAccess``, whose ``parts`` returns them.

    ``data_format``, ``number_format``: see ``formats``; ``select``: for each component of the element in registers
    what it is, as in a descriptor: 0, 1, or 4 to 7 for the components in memory.
    """

    components: int = 1
    halves: bool = False
    data_format: int = 0
    number_format: int = 0
    select: tuple[int, ...] = (4, 5, 6, 7)

    @property
    def words(self) -> int:
        return (self.components + 1) // 2 if self.halves else self.components

    @property
    def data_masks(self) -> list[int]:
        if not self.halves:
            return [0xFFFFFFFF] * self.words
        if self.components == 1:
            return [0xFFFF0000 if self.half == 2 else 0xFFFF]
        return [0xFFFFFFFF if 2 * i + 1 < self.components else 0xFFFF for i in range(self.words)]

    def loaded(self, words: np.ndarray) -> np.ndarray:
        """Return the registers for elements, uint32[..., words of an element]; a single half is in the lower bits."""
        fields, bits = formats.unpack(words, self.data_format), formats.LAYOUTS[self.data_format]
        one = np.full(words.shape[:-1], formats.one(self.number_format, self.halves), np.uint32)
        memory = [formats.decode(f, b, self.number_format, self.halves) for f, b in zip(fields, bits, strict=True)]
        memory += [np.zeros_like(one)] * (3 - len(memory)) + [one] * (len(memory) < 4)
        values = [memory[s - 4] if s > 3 else one if s == 1 else np.zeros_like(one) for s in self.select]
        if self.halves:
            values = [*values[: self.components], np.zeros_like(one)]
            values = [values[i] | values[i + 1] << np.uint32(16) for i in range(0, self.components, 2)]
        return np.stack(values[: self.words], axis=-1)

    def element(self, words: np.ndarray) -> np.ndarray:
        """Return the elements that registers are stored as: the inverse of ``loaded``."""
        if self.halves:
            values = [words[..., i // 2] >> np.uint32(16 * (i % 2)) & np.uint32(0xFFFF) for i in range(self.components)]
        else:
            values = [words[..., i] for i in range(self.components)]
        bits = formats.LAYOUTS[self.data_format]
        fields = []
        for i, width in enumerate(bits):
            # The component that the descriptor reads from here.
            chosen = next((n for n, s in enumerate(self.select[: self.components]) if s == 4 + i), -1)
            value = values[chosen] if chosen >= 0 else np.zeros_like(values[0])
            fields.append(formats.encode(value, width, self.number_format, self.halves))
        return formats.pack(fields, self.data_format)


@dataclass(frozen=True)
class FormatAccess:
    """A ``buffer_load_format_*``, ``buffer_store_format_*``, ``tbuffer_*``: the element's format is known when it runs.

    ``site``, ``kind``, ``address``, ``data`` and ``half`` as in ``GlobalAccess``. ``components`` of an element are in
    registers, as 16 bits each if ``halves``. ``fixed``: the format in the instruction, DATA_FORMAT | NUM_FORMAT << 4,
    or -1: the one in the descriptor, which also selects components.
    """

    instruction: Instruction
    site: int
    kind: str
    address: AddressForm
    data: int
    components: int
    halves: bool
    half: int
    fixed: int

    @property
    def scope(self) -> str:
        """The scope of the access: see ``GlobalAccess.scope``."""
        return _scope(self.instruction)

    @property
    def words(self) -> int:
        """Number of data registers."""
        return (self.components + 1) // 2 if self.halves else self.components

    def parts(self, wf: Wavefronts) -> list[tuple[np.ndarray, TypedAccess]]:
        """Return the accesses by format, with the wavefronts of each, bool[W].

        Raises ``UnimplementedInstruction`` for a format that ``formats`` does not convert.
        """
        words = wf.s[:, self.address.sreg + 3] & np.uint32(0x7FFFF)
        if self.fixed >= 0:
            words = np.full_like(words, (self.fixed & 15) << 15 | self.fixed >> 4 << 12 | 0o7654)
        out = []
        for word in np.unique(words).tolist():
            data_format, number_format = word >> 15, word >> 12 & 7
            formats.check(data_format, number_format, self.components, self.kind == STORE)
            select = tuple(word >> 3 * i & 7 for i in range(4))
            typed = TypedAccess(
                self.instruction, self.site, self.kind, formats.size_of(data_format), self.address, self.data,
                half=self.half, components=self.components, halves=self.halves, data_format=data_format,
                number_format=number_format, select=select,
            )  # fmt: skip
            out.append((words == word, typed))
        return out


@dataclass(frozen=True)
class LdsAccess:
    """A ``ds_*`` access to the local data share: ``parts`` are (offset in bytes, data register), at address ``areg``.

    ``kind``, ``size``, ``target``, ``operation``, ``signed`` and ``half`` as in ``GlobalAccess``; ``size`` is that
    of one part, and the old values of an atomic's parts go to successive registers from ``target`` on. ``areg`` -1: the
    address is M0 plus 4 bytes per lane (``ds_read_addtid_b32``).

    ``second``      an atomic's second data register, or -1
    ``counts``      the active lanes access one dword at M0 together, and ``parts`` have no data (``ds_append``)
    ``aligned``     the address is rounded down to a multiple of it
    ``transposed``  bits of an element that ``ds_read_*_tr_*`` passes to another lane of its 16; 0: a lane keeps the
    data
                    that it reads
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
    counts: bool = False
    aligned: int = 1

    def addresses(self, wf: Wavefronts, part: int = 0) -> np.ndarray:
        """Return each lane's address in its work-group's data share, int64[W, 64], undefined for inactive lanes."""
        offset, _ = self.parts[part]
        if self.areg < 0:
            return _lane_slots(wf, 0 if self.counts else 4) + offset
        return wf.v[self.areg >> 1][:, :, self.areg & 1].astype(np.int64) + offset & -self.aligned

    @property
    def loaded(self) -> list[int]:
        """The first register that each part writes, empty for a store or an atomic that returns nothing."""
        if self.kind == LOAD:
            return [register for _, register in self.parts]
        words = max(1, self.size // 4)
        return [self.target + i * words for i in range(len(self.parts))] if self.target >= 0 else []

    @property
    def stored(self) -> list[int]:
        """The first register of each part's data, then an atomic's second data register."""
        if self.kind == LOAD or self.counts:
            return []
        return [register for _, register in self.parts] + ([self.second] if self.second >= 0 else [])


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
        """The scope of the load: see ``GlobalAccess.scope``."""
        return _scope(self.instruction)

    @property
    def slot(self) -> int:
        """Number of bytes that a lane writes."""
        return max(4, self.size)

    def addresses(self, wf: Wavefronts) -> tuple[np.ndarray, np.ndarray]:
        """Return the global addresses that lanes read, and those lanes, as ``GlobalAccess.addresses``.

        An active lane outside the buffer's range reads nothing, and 0 is written to its place in LDS.
        """
        return _global_addresses(wf, self.address, self.size)

    def lds_addresses(self, wf: Wavefronts) -> np.ndarray:
        """Return the addresses that lanes write in their work-group's data share, int64[W, 64]."""
        return _lane_slots(wf, self.slot) + self.offset


@dataclass(frozen=True)
class ScratchAccess:
    """A ``scratch_*`` access to a lane's own private segment, at ``areg`` + ``sreg`` + ``offset`` (-1: omitted).

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
        """Return each lane's address in its private segment, int64[W, 64]."""
        lane = wf.v[self.areg >> 1][:, :, self.areg & 1].astype(np.int64) if self.areg >= 0 else 0
        scalar = wf.s[:, self.sreg].astype(np.int64)[:, None] if self.sreg >= 0 else 0
        return np.broadcast_to((lane + scalar + self.offset) & 0xFFFFFFFF, wf.exec_mask.shape)


@dataclass(frozen=True)
class FlatAccess(GlobalAccess):
    """A ``flat_*`` access: to global memory, or lane by lane to LDS (``shared``) or scratch (``private``).

    The latter happens in lanes whose address has an aperture as its upper half. Atomics have no ``private``.
    """

    shared: LdsAccess | None = None
    private: ScratchAccess | None = None

    def apertures(self, wf: Wavefronts) -> tuple[np.ndarray, np.ndarray] | None:
        """Return the active lanes that access LDS, and those that access scratch, bool[W, 64]; None if none do."""
        high = self.address.areg + 1
        upper = wf.v[high >> 1][:, :, high & 1]
        lds, scratch = wf.exec_mask & (upper == SHARED_APERTURE), wf.exec_mask & (upper == PRIVATE_APERTURE)
        return (lds, scratch) if lds.any() or scratch.any() else None

    def addresses(self, wf: Wavefronts) -> tuple[np.ndarray, np.ndarray]:
        """Return the addresses as ``GlobalAccess.addresses``; raises if any lane accesses LDS or scratch."""
        if self.apertures(wf) is not None:
            raise UnimplementedInstruction(f"{self.instruction.text!r} on LDS or scratch, in this watched mode")
        return super().addresses(wf)


@dataclass(frozen=True)
class ScalarAccess:
    """An ``s_load_*``, ``s_store_*``, ``s_atomic_*``, or their ``s_buffer_*``: ``words`` dwords, register ``target``.

    The address is that in the register pair ``base`` (48 bits of it in a descriptor), plus ``offset``, plus scalar
    register ``soffset`` (-1: omitted). ``kind`` and ``operation`` as in ``GlobalAccess``; ``returns``: the instruction
    writes ``target``.
    """

    instruction: Instruction
    target: int
    words: int
    base: int
    soffset: int
    offset: int
    kind: str = LOAD
    operation: int = -1
    returns: bool = True

    @property
    def data(self) -> int:
        """Number of dwords that the instruction reads from ``target`` on."""
        return 0 if self.kind == LOAD else self.words * (2 if self.operation == native.CMPSWAP else 1)

    def addresses(self, wf: Wavefronts) -> np.ndarray:
        """Return each wavefront's address, uint64[W]."""
        mask = 0xFFFF if "buffer" in self.instruction.mnemonic else 0xFFFFFFFF
        low, high = wf.s[:, self.base].astype(np.uint64), wf.s[:, self.base + 1].astype(np.uint64)
        address = low + ((high & np.uint64(mask)) << np.uint64(32)) + np.uint64(self.offset & 0xFFFFFFFFFFFFFFFF)
        return address + wf.s[:, self.soffset].astype(np.uint64) if self.soffset >= 0 else address


Access = GlobalAccess | FormatAccess | LdsAccess | CopyAccess | ScratchAccess | ScalarAccess


@dataclass(frozen=True)
class Effect:
    """A decoded memory instruction: ``access`` describes what it reads or writes, ``step`` executes it.

    Mode ``fast`` calls ``step``. A watched mode inspects ``access``, and calls ``step`` or does the access itself.
    """

    access: Access
    step: Step


def at_one(access: GlobalAccess | CopyAccess | FormatAccess, wf: Wavefronts) -> GlobalAccess | CopyAccess:
    """Return the access of a single wavefront, in the format that its descriptor names."""
    return access.parts(wf)[0][1] if isinstance(access, FormatAccess) else access


def _scope(instruction: Instruction) -> str:
    sc0, sc1 = ("sc0" in instruction.modifiers), ("sc1" in instruction.modifiers)
    return ("system" if sc0 else "agent") if sc1 else ("workgroup" if sc0 else "wave")


def _global_addresses(wf: Wavefronts, address: AddressForm, size: int) -> tuple[np.ndarray, np.ndarray]:
    out = np.zeros((len(wf), LANES), np.uint64)
    inside = np.zeros((len(wf), LANES), np.bool_)
    native.addresses(wf.v, wf.s, *address, size, out, inside)
    return out, inside & wf.exec_mask


def _lane_slots(wf: Wavefronts, size: int) -> np.ndarray:
    """Return M0 plus ``size`` bytes per lane.

    AMD "CDNA3 ISA", "Memory Buffer Load to LDS": the offset in M0 has 16 bits; gfx950 addresses 160 KiB with 18 bits.
    """
    bits = 18 if wf.chunk.launch.program.listing.arch == "gfx950" else 16
    base = wf.s[:, M0] & np.uint32((1 << bits) - 1)
    return base.astype(np.int64)[:, None] + size * np.arange(LANES)
