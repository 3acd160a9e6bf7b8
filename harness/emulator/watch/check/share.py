"""The local data share: alignment, undefined addresses and data, and races between the wavefronts of a work-group.

Two wavefronts race when they access the same byte, at least one of them writes, they are not both atomics, and there is
no s_barrier between at which the first access was complete: accesses of different wavefronts reach the share in any
order, and s_barrier waits for none of them (LLVM AMDGPUUsage, "Memory Model gfx942"). Wavefronts that write the same
value are not reported: Triton lets all wavefronts that hold an element write it.
"""

from __future__ import annotations

from collections.abc import Callable
from weakref import WeakKeyDictionary

import numpy as np

from harness.emulator.execution.launch import Chunk
from harness.emulator.faults import LdsRace
from harness.emulator.listing.instructions import Instruction
from harness.emulator.operations.access import ATOMIC, LOAD, STORE, CopyAccess, LdsAccess
from harness.emulator.operations.table import Step
from harness.emulator.watch.check import compiled, report
from harness.emulator.watch.check import shadow as registers
from harness.emulator.watch.check.queues import DATA_SHARE
from harness.emulator.watch.check.shadow import Shadow, lane_bits
from harness.emulator.wavefront.state import LANES, M0, Wavefronts

_M0 = registers.scalars(M0)
_KINDS = {LOAD: compiled.READ, STORE: compiled.WRITE, ATOMIC: compiled.ATOMIC}


class Share:
    """State, byte by byte, of the data share of a chunk's work-groups, and of its lanes' private segments."""

    def __init__(self, chunk: Chunk) -> None:
        waves = len(chunk.wavefronts)
        self.undefined = np.full(len(chunk.lds), 0xFF, np.uint8)
        races = chunk.launch.waves_per_group > 1
        records = np.zeros((3, len(chunk.lds) if races else 0), np.int64)
        self.written, self.read, self.other_read = records
        # Numbers of accesses by unit (the share's own instructions, copies from global memory) and wavefront.
        self.issued, self.published, self.arrived = (np.zeros((2, waves), np.int64) for _ in range(3))
        self.arriving = np.zeros((2, 2, waves), np.int64)
        self._private: np.ndarray | None = None

    def private(self, size: int) -> np.ndarray:
        """Return the undefined bits of the lanes' private segments, allocated on first use."""
        if self._private is None:
            self._private = np.full(size, 0xFF, np.uint8)
        return self._private

    def touch(
        self, wf: Wavefronts, instruction: Instruction, at: np.ndarray, size: int, kind: int,
        data: int = -1, high: bool = False, copy: bool = False,
    ) -> None:  # fmt: skip
        """Record an access of each active lane to ``at`` int64[W, 64]; raises ``LdsRace``."""
        if not len(self.written):
            return
        chunk: Chunk = wf.chunk
        conflict = np.zeros(2, np.int64)
        lane = compiled.touch_lds(
            wf.v, at, wf.exec_mask, wf.wave, *chunk.groups, chunk.lds_bytes, size, kind, int(copy), instruction.index,
            data, high, chunk.lds, self.written, self.read, self.other_read,
            self.issued, self.published, conflict,
        )  # fmt: skip
        if lane >= 0:
            self._race(wf, instruction, lane, kind, int(conflict[0]), int(conflict[1]))

    def _race(self, wf: Wavefronts, instruction: Instruction, lane: int, kind: int, record: int, at: int) -> None:
        chunk: Chunk = wf.chunk
        wave, index, copied = compiled.parts_of(record)
        other = chunk.launch.program.listing.instructions[index]
        inner = wave % chunk.launch.waves_per_group
        wrote = copied or "_read" not in other.mnemonic
        passed = compiled.count_of(record) <= self.arrived[int(copied), wave]
        why = (
            f"it was not waited for ({'vmcnt' if copied else 'lgkmcnt'}) before the s_barrier"
            if passed
            else "there is no s_barrier between"
        )
        chunk.raise_fault(
            f"LDS race: {'read' if kind == compiled.READ else 'write'} at {at:#x}, which wavefront {inner} "
            f"{'wrote' if wrote else 'read'} by {other.text!r} (at {other.source}), and {why}; the second access is",
            wf,
            instruction,
            lane,
            kind=LdsRace,
            address=at,
            other=other.text,
            other_wavefront=inner,
            other_source=[str(frame) for frame in other.frames],
        )

    # -- s_barrier -----------------------------------------------------------------------------------------------------

    def arrive(self, wf: Wavefronts) -> None:
        """Record the arrival of wavefronts at an s_barrier with their outstanding operations."""
        first = wf.chunk.groups[0] * wf.chunk.groups[1]
        waves = wf.wave - first
        complete = self.issued[:, waves].copy()
        for path in wf.shadow.queues.paths:
            rows = slice(None) if path.rows is None else path.rows
            complete[0, rows] -= sum(o.writes_lds and o.unit == DATA_SHARE for o in path.lgkm)
            complete[1, rows] -= sum(o.writes_lds for o in path.vm)
        self.arriving[0][:, waves] = self.issued[:, waves]
        self.arriving[1][:, waves] = complete

    def end(self, wf: Wavefronts) -> None:
        """Record the end of wavefronts: they have nothing outstanding at the others' next s_barrier."""
        waves = wf.wave - wf.chunk.groups[0] * wf.chunk.groups[1]
        self.arriving[:, :, waves] = self.issued[:, waves]

    def release(self, chunk: Chunk, groups: list[int]) -> None:
        """Release these work-groups from the s_barrier."""
        per_group, first = chunk.groups
        # ``groups`` are in ascending order; usually they are neighbours.
        neighbours = groups[-1] - groups[0] < len(groups)
        for low, high in [(groups[0], groups[-1])] if neighbours else [(group, group) for group in groups]:
            waves = slice((low - first) * per_group, (high - first + 1) * per_group)
            self.arrived[:, waves] = self.arriving[0][:, waves]
            self.published[:, waves] = self.arriving[1][:, waves]


Body = Callable[[Wavefronts, Shadow], None]
ShareByChunk = WeakKeyDictionary[Chunk, Share]


def access(access: LdsAccess, plain: Step, share_by_chunk: ShareByChunk, strict: bool) -> tuple[int, Body]:
    """Return the registers that an LDS instruction writes, and the step in place of ``plain``.

    ``strict``: wide accesses must be aligned.
    """
    instruction, areg, size, kind = access.instruction, access.areg, access.size, _KINDS[access.kind]
    words = max(1, size // 4)
    alignment = {8: 8, 12: 16, 16: 16}.get(size, size) if strict else 1
    loaded, stored = access.loaded, access.stored
    results = 0
    for register in loaded:
        results |= registers.vectors(register, words)

    def step(wf: Wavefronts, shadow: Shadow) -> None:
        chunk: Chunk = wf.chunk
        share = share_by_chunk[chunk]
        if areg < 0 and shadow.dirty & _M0 and (undefined := shadow.undefined_scalar(_M0)):
            report.undefined(wf, instruction, LANES * undefined[0], "the LDS address in m0 is undefined")
        if areg >= 0 and shadow.dirty >> areg & 1:
            bad = lane_bits(shadow, areg, 1) & wf.exec_mask
            if bad.any():
                report.undefined(wf, instruction, int(bad.argmax()), f"the LDS address in v{areg} is undefined")
        places = [access.addresses(wf, part) for part in range(len(access.parts))]
        share.issued[0, wf.wave - chunk.groups[0] * chunk.groups[1]] += 1
        for at, (_, register) in zip(places, access.parts, strict=True):
            if alignment > 1:
                bad = (at & (alignment - 1) != 0) & wf.exec_mask
                if bad.any():
                    _misaligned(wf, instruction, int(bad.argmax()), at, size, alignment)
            data = register if access.kind == STORE else -1
            share.touch(wf, instruction, at, size, kind, data, access.half == 2)
        bits = shadow.bits.v
        common = (wf.exec_mask, wf.wave, *chunk.groups, share.undefined, chunk.lds_bytes)
        for at, register in zip([*places, places[0]], stored, strict=False):
            compiled.store_bits(at, bits, *common, register, size, access.half == 2, access.kind == ATOMIC)
        for at, register in zip(places, loaded, strict=False):
            compiled.load_bits(at, bits, *common, register, size, access.signed, access.half)
        if access.transposed:
            _transpose(wf, bits, loaded[0], size, access.transposed)
        plain(wf)
        if loaded:
            shadow.settle(results)

    return results, step


def copy(access: CopyAccess, plain: Step, share_by_chunk: ShareByChunk) -> Body:
    """Return the step in place of a copy from global memory to the share: a write that vmcnt counts."""

    def step(wf: Wavefronts, shadow: Shadow) -> None:
        chunk: Chunk = wf.chunk
        share = share_by_chunk[chunk]
        at = access.lds_addresses(wf)
        share.issued[1, wf.wave - chunk.groups[0] * chunk.groups[1]] += 1
        share.touch(wf, access.instruction, at, access.slot, compiled.WRITE, copy=True)
        plain(wf)
        zeros = np.zeros((2, *wf.exec_mask.shape, 2), np.uint32)
        common = (wf.exec_mask, wf.wave, *chunk.groups, share.undefined, chunk.lds_bytes)
        compiled.store_bits(at, zeros, *common, 0, access.slot, False, False)

    return step


def _transpose(wf: Wavefronts, bits: np.ndarray, target: int, size: int, element: int) -> None:
    """Distribute the values read by 16 lanes among them: see ``operations.lds``."""
    words = [bits[r >> 1][:, :, r & 1] for r in range(target, target + size // 4)]
    octets = np.ascontiguousarray(np.stack(words, axis=-1)).view(np.uint8)
    count = 8 * size // element
    bits_of = np.unpackbits(octets, axis=-1, bitorder="little").reshape(len(wf), -1, 16 * count, element)
    flags = np.asarray(bits_of.any(axis=-1))
    # Lane i gets the elements (k, i) of a matrix of which every lane read ``count`` elements.
    moved = flags[:, :, (16 * np.arange(count) + np.arange(16)[:, None])]
    back = np.packbits(np.repeat(moved, element, axis=-1), axis=-1, bitorder="little")
    result = np.ascontiguousarray(back).view(np.uint32).reshape(len(wf), -1, size // 4)
    for i, word in enumerate(words):
        np.copyto(word, result[:, :, i], where=wf.exec_mask)


def _misaligned(wf: Wavefronts, instruction: Instruction, lane: int, at: np.ndarray, size: int, alignment: int) -> None:
    address = int(at.reshape(-1)[lane])
    wf.chunk.raise_fault(
        f"misaligned {size}-byte LDS access at {address:#x}: expected a multiple of {alignment}",
        wf,
        instruction,
        lane,
        address=address,
    )
