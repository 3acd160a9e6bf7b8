"""Global memory: red zones, alignment, undefined addresses and data, and memory that was never written."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from harness.emulator.execution.launch import Launch
from harness.emulator.listing.instructions import Instruction
from harness.emulator.native import memory as native
from harness.emulator.operations.access import (
    ATOMIC,
    LOAD,
    STORE,
    CopyAccess,
    FormatAccess,
    GlobalAccess,
    ScalarAccess,
    TypedAccess,
)
from harness.emulator.operations.table import Step
from harness.emulator.program.decode import Program
from harness.emulator.watch.check import compiled, report
from harness.emulator.watch.check import shadow as registers
from harness.emulator.watch.check.shadow import Shadow, first_of, lane_bits
from harness.emulator.wavefront import operands
from harness.emulator.wavefront.state import LANES, Wavefronts

Body = Callable[[Wavefronts, Shadow], None]


@dataclass(frozen=True)
class Region:
    """Forgotten memory: ``state`` is 1 for a byte not written since, ``pattern`` is what was filled in then."""

    start: int
    state: np.ndarray
    memory: np.ndarray
    pattern: np.ndarray

    @property
    def arrays(self) -> tuple[int, np.ndarray, np.ndarray, np.ndarray]:
        """Return the arguments for ``compiled.forgotten_bits``."""
        return self.start, self.state, self.memory, self.pattern


class Heap:
    """The part of mode ``check`` for global memory; one per driver."""

    def __init__(self, strict_alignment: bool) -> None:
        self.strict_alignment = strict_alignment
        self._forgotten: list[Region] = []
        self._random = np.random.default_rng(0x1715)
        self._swaps_dwords: WeakKeyDictionary[Program, bool] = WeakKeyDictionary()

    def forget(self, address: int, size: int) -> None:
        """Overwrite the bytes with a pattern, and treat them as undefined until they are written."""
        if size <= 0:
            return
        memory = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))
        pattern = self._random.integers(0, 256, size, np.uint8)
        memory[:] = pattern
        overlaps = [r for r in self._forgotten if r.start < address + size and address < r.start + len(r.state)]
        for region in overlaps:
            low, high = max(address, region.start), min(address + size, region.start + len(region.state))
            region.state[low - region.start : high - region.start] = 0
        self._forgotten = [r for r in self._forgotten if r.state.any()]
        self._forgotten.append(Region(address, np.ones(size, np.uint8), memory, pattern))

    @property
    def regions(self) -> list[Region]:
        """The forgotten regions."""
        return self._forgotten

    def start(self, launch: Launch) -> None:
        """Note whether the launch's kernel swaps dwords, and drop forgotten regions that are fully written."""
        program = launch.program
        if program not in self._swaps_dwords:
            self._swaps_dwords[program] = _swaps_dwords(program)
        if self._forgotten:
            self._forgotten = [region for region in self._forgotten if region.state.any()]

    # -- vector memory -------------------------------------------------------------------------------------------------

    def access(self, access: GlobalAccess, plain: Step) -> tuple[int, Body]:
        """Return the registers that the instruction writes, and the step in place of ``plain``."""
        instruction, size = access.instruction, access.size
        vector, scalar = _address_registers(access)
        words = access.words
        stored = 0 if access.kind == LOAD else words * (2 if access.operation == native.CMPSWAP else 1)
        target = access.data if access.kind == LOAD else access.target
        results = registers.vectors(target, words) if target >= 0 else 0
        reads = registers.vectors(access.data, stored) | registers.vectors(*vector) | scalar
        # The native step checks an atomic's alignment itself.
        aligned = self.strict_alignment and size >= 4 and access.kind != ATOMIC

        def step(wf: Wavefronts, shadow: Shadow) -> None:
            addresses, lanes = access.addresses(wf)
            if shadow.dirty & reads:
                _check_address(wf, shadow, instruction, vector, scalar)
                if stored and shadow.dirty & registers.vectors(access.data, stored):
                    _check_data(wf, shadow, access, stored, addresses, lanes)
            if aligned:
                _check_alignment(wf, instruction, addresses, lanes, size)
            if self._forgotten and access.kind == ATOMIC and lanes.any():
                # Before it changes the bytes, by which memory that was never written is recognized.
                self._use_forgotten(wf, shadow, access, target, words, addresses, lanes)
            chunk = wf.chunk
            swaps = self._swaps_dwords[chunk.launch.program]
            table = chunk.table
            if access.kind == STORE or (access.kind == LOAD and not swaps):
                chunk.table = chunk.launch.table.exact
            try:
                plain(wf)
            finally:
                chunk.table = table
            if shadow.dirty & results:
                _define(wf, shadow, access, target, words)
            if self._forgotten and access.kind != ATOMIC and lanes.any():
                self._use_forgotten(wf, shadow, access, target, words, addresses, lanes)

        return results, step

    def formatted(self, access: FormatAccess, plain: Step) -> tuple[int, Body]:
        """Return the registers that the instruction writes, and the step in place of ``plain``, format by format."""
        results = registers.vectors(access.data, access.words) if access.kind == LOAD else 0
        bodies: dict[tuple[object, ...], Body] = {}

        def step(wf: Wavefronts, shadow: Shadow) -> None:
            saved = wf.exec_mask, wf.exec_all
            # A format that the emulator lacks is reported before anything is checked.
            for rows, part in access.parts(wf):
                wf.exec_mask, wf.exec_all = np.ascontiguousarray(saved[0] & rows[:, None]), False
                try:
                    form = part.data_format, part.number_format, part.select
                    if form not in bodies:
                        bodies[form] = self.access(part, plain)[1]
                    bodies[form](wf, shadow)
                finally:
                    wf.exec_mask, wf.exec_all = saved

        return results, step

    def copy(self, access: CopyAccess, plain: Body) -> Body:
        """Return the step that replaces a copy to LDS: it also reports an undefined address, and a read of memory that
        was never written."""
        vector, scalar = _address_registers(access)
        reads = registers.vectors(*vector) | scalar
        aligned = self.strict_alignment and access.size >= 4

        def step(wf: Wavefronts, shadow: Shadow) -> None:
            if shadow.dirty & reads:
                _check_address(wf, shadow, access.instruction, vector, scalar)
            addresses, lanes = access.addresses(wf)
            if aligned:
                _check_alignment(wf, access.instruction, addresses, lanes, access.size)
            chunk = wf.chunk
            table, chunk.table = chunk.table, chunk.launch.table.exact
            try:
                plain(wf, shadow)
            finally:
                chunk.table = table
            for region in self._near(addresses, lanes, access.size):
                lane = compiled.forgotten_bits(addresses, lanes, access.size, *region.arrays, shadow.bits.v, -1, False)
                if lane >= 0:
                    _unwritten(wf, access.instruction, lane, addresses)

        return step

    def _near(self, addresses: np.ndarray, lanes: np.ndarray, size: int) -> list[Region]:
        """Return the forgotten regions that the access may touch."""
        if not self._forgotten or not lanes.any():
            return []
        chosen = addresses[lanes]
        low, high = int(chosen.min()), int(chosen.max()) + size
        return [r for r in self._forgotten if r.start < high and low < r.start + len(r.state)]

    def _use_forgotten(
        self, wf: Wavefronts, shadow: Shadow, access: GlobalAccess, target: int, words: int,
        addresses: np.ndarray, lanes: np.ndarray,
    ) -> None:  # fmt: skip
        """Process an access to memory that was never written: a store defines it, a load makes its result undefined.

        An atomic, a load into half a register and one that converts raise, because they use the bytes.
        """
        for region in self._near(addresses, lanes, access.size):
            moves = access.kind == LOAD and not access.half and not isinstance(access, TypedAccess)
            into = target if moves else -1
            lane = compiled.forgotten_bits(
                addresses, lanes, access.size, *region.arrays, shadow.bits.v, into, access.kind == STORE
            )
            if lane >= 0 and into >= 0:
                shadow.settle(registers.vectors(target, words))
                shadow.loaded = _position(wf, access.instruction, int(addresses.reshape(-1)[lane]))
            elif lane >= 0:
                _unwritten(wf, access.instruction, lane, addresses)

    # -- scalar memory -------------------------------------------------------------------------------------------------

    def scalar(self, access: ScalarAccess, plain: Step, reads: int) -> Body:
        """Return the step in place of ``plain``; ``reads`` is the set of the address registers."""
        instruction = access.instruction
        _, base, where = (operands.parse(text) for text in instruction.operands)
        offset = int(instruction.modifiers.get("offset", "0"), 0) + (int(where.value) if where.space == "const" else 0)
        data = registers.scalars(access.target, access.data)

        def step(wf: Wavefronts, shadow: Shadow) -> None:
            if shadow.dirty & reads and (undefined := shadow.undefined_scalar(reads)):
                wave, name = undefined
                report.undefined(
                    wf, instruction, LANES * wave, f"the address depends on an undefined value in {first_of(name)}"
                )
            start = wf.s[:, base.register + 1].astype(np.uint64) << np.uint64(32) | wf.s[:, base.register]
            start = start + np.uint64(offset & (1 << 64) - 1)
            if where.space == "s":
                start = start + wf.s[:, where.register]
            if (start & np.uint64(3)).any():
                wave = int((start & np.uint64(3) != 0).argmax())
                address = int(start[wave])
                message = f"misaligned scalar {access.kind} at address {address:#x}, whose two low bits are ignored"
                wf.chunk.raise_fault(message, wf, instruction, LANES * wave, address=address)
            if shadow.dirty & data and (undefined := shadow.undefined_scalar(data)):
                wave, name = undefined
                message = f"an undefined value in {first_of(name)} is stored to {int(start[wave]):#x}"
                report.undefined(wf, instruction, LANES * wave, message, address=int(start[wave]))
            if self._forgotten and access.kind == ATOMIC:
                self._scalars_forgotten(wf, shadow, access, start)
            plain(wf)
            if access.returns:
                shadow.define_scalars(access.target, access.words)
            if self._forgotten and access.kind != ATOMIC:
                self._scalars_forgotten(wf, shadow, access, start)

        return step

    def _scalars_forgotten(self, wf: Wavefronts, shadow: Shadow, access: ScalarAccess, start: np.ndarray) -> None:
        """Process ``start`` (uint64[W]) as a vector load of one lane."""
        addresses = np.zeros((len(start), LANES), np.uint64)
        lanes = np.zeros(addresses.shape, np.bool_)
        addresses[:, 0], lanes[:, 0] = start, True
        size = 4 * access.words
        for region in self._near(addresses, lanes, size):
            bits = np.zeros((max(1, access.words // 2), len(start), LANES, 2), np.uint32)
            into = 0 if access.kind == LOAD else -1
            lane = compiled.forgotten_bits(addresses, lanes, size, *region.arrays, bits, into, access.kind == STORE)
            if lane >= 0 and access.kind == ATOMIC:
                _unwritten(wf, access.instruction, lane, addresses)
            if lane >= 0 and access.kind == LOAD:
                shadow.loaded = _position(wf, access.instruction, int(start[lane // LANES]))
                words = np.moveaxis(bits[:, :, 0], 0, 1).reshape(len(start), -1)[:, : access.words]
                shadow.bits.s[:, access.target : access.target + access.words] |= words
                shadow.settle(registers.scalars(access.target, access.words))


def _address_registers(access: GlobalAccess | CopyAccess) -> tuple[tuple[int, int], int]:
    """Return (first, count) of the vector registers of the address, and the set of its scalar registers."""
    form, areg, sreg, soffset, _ = access.address
    base = {native.GLOBAL: 0, native.GLOBAL_SADDR: 2}.get(form, 4)
    pair = form in (native.GLOBAL, native.BUFFER_INDEX_OFFSET)
    scalar = registers.scalars(max(sreg, 0), base) | registers.scalars(max(soffset, 0), int(soffset >= 0))
    return ((areg, 2 if pair else 1) if areg >= 0 else (0, 0)), scalar


def _check_address(
    wf: Wavefronts, shadow: Shadow, instruction: Instruction, vector: tuple[int, int], scalar: int
) -> None:
    bad = lane_bits(shadow, *vector) & wf.exec_mask
    if undefined := shadow.undefined_scalar(scalar):
        bad[undefined[0]] |= wf.exec_mask[undefined[0]]
    if bad.any():
        report.undefined(wf, instruction, int(bad.argmax()), "the address depends on an undefined value")


def _check_data(
    wf: Wavefronts, shadow: Shadow, access: GlobalAccess, stored: int, addresses: np.ndarray, lanes: np.ndarray
) -> None:
    masks = access.data_masks
    bad = np.zeros(lanes.shape, np.bool_)
    for i in range(stored):
        word = shadow.bits.v[(access.data + i) >> 1][:, :, (access.data + i) & 1]
        bad |= word & np.uint32(masks[i % len(masks)]) != 0
    bad &= lanes
    if bad.any():
        lane = int(bad.argmax())
        address = int(addresses.reshape(-1)[lane])
        near = wf.chunk.launch.table.nearest(address)
        message = f"an undefined value is stored to {address:#x} ({near})"
        report.undefined(wf, access.instruction, lane, message, address=address, nearest=near)


def _check_alignment(
    wf: Wavefronts, instruction: Instruction, addresses: np.ndarray, lanes: np.ndarray, size: int
) -> None:
    bad = (addresses & np.uint64(3) != 0) & lanes
    if bad.any():
        lane = int(bad.argmax())
        address = int(addresses.reshape(-1)[lane])
        near = wf.chunk.launch.table.nearest(address)
        message = f"misaligned {size}-byte access at address {address:#x} ({near}): expected a multiple of 4"
        wf.chunk.raise_fault(message, wf, instruction, lane, address=address, nearest=near)


def _define(wf: Wavefronts, shadow: Shadow, access: GlobalAccess, target: int, words: int) -> None:
    """Mark loaded registers as defined in the active lanes; for a register that keeps a half, only the other half."""
    if not access.half:
        shadow.define(wf, target, words)
        return
    bits = shadow.bits.v[target >> 1][:, :, target & 1]
    kept = np.uint32(0xFFFF0000 if access.half == 1 else 0xFFFF)
    np.copyto(bits, bits & kept, where=wf.exec_mask)
    shadow.settle(registers.vectors(target))


def _position(wf: Wavefronts, instruction: Instruction, address: int) -> str:
    return f"{address:#x} ({wf.chunk.launch.table.nearest(address)}) by {instruction.text!r}, at {instruction.source}"


def _unwritten(wf: Wavefronts, instruction: Instruction, lane: int, addresses: np.ndarray) -> None:
    address = int(addresses.reshape(-1)[lane])
    near = wf.chunk.launch.table.nearest(address)
    message = f"memory that was never written is used at {address:#x} ({near})"
    report.undefined(wf, instruction, lane, message, address=address, nearest=near)


def _swaps_dwords(program: Program) -> bool:
    """Return whether the kernel has a 32-bit compare-and-swap.

    An atomic on a 16-bit element is a loop around one, and begins by loading the dword that holds the element, which
    may be the odd, last one.
    """
    return any("_atomic_cmpswap" in i.mnemonic and "_x2" not in i.mnemonic for i in program.listing.instructions)
