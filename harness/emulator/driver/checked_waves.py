"""A wavefront and a work-group of native code in mode ``check``, as the mode's steps see them."""

from __future__ import annotations

from typing import Any

import numpy as np

from harness.emulator.driver.arena import Wave
from harness.emulator.execution.launch import Chunk
from harness.emulator.native import checked
from harness.emulator.watch.check import shadow as registers
from harness.emulator.watch.check.queues import Queues
from harness.emulator.watch.check.shadow import Shadow, lane_bits
from harness.emulator.watch.check.share import Share
from harness.emulator.wavefront.state import LANES, SGPRS, Wavefronts

_ONES = np.uint32(0xFFFFFFFF)
_SCC = checked.SCALARS + SGPRS


def kept_in(memory: np.ndarray, offset: int) -> np.ndarray:
    """Return the definitions of a wavefront's registers, int64[REGISTERS], in its record."""
    return memory[offset : offset + 8 * checked.REGISTERS].view(np.int64)


class CheckedWave(Wave):
    """A wavefront in a slot. Between ``begin_exact`` and ``end_exact`` its shadow has its undefined bits.

    Native code keeps only in which lanes a register is defined. Where it is not, all bits are undefined, or those that
    the last ``end_exact`` saved.
    """

    def __init__(
        self, chunk: Chunk, memory: np.ndarray, pairs: int, share: GroupShare, definitions: np.ndarray
    ) -> None:
        super().__init__(chunk, memory, pairs)
        self.share = share
        self._definitions = definitions
        self._vectors = definitions[: 2 * pairs]
        self._scalars = definitions[checked.SCALARS : _SCC]
        self._saved: tuple[np.ndarray, np.ndarray] | None = None
        self._loaded = ""

    def begin_exact(self) -> None:
        wf = self.wavefronts
        v, s = np.zeros_like(wf.v), np.zeros_like(wf.s)
        lacking = np.flatnonzero(self._vectors != -1)
        lanes = np.unpackbits(np.ascontiguousarray(~self._vectors[lacking]).view(np.uint8), bitorder="little")
        where = lacking >> 1, 0, slice(None), lacking & 1
        undefined = _ONES if self._saved is None else self._saved[0][where]
        v[where] = np.where(lanes.reshape(-1, LANES).view(np.bool_), undefined, np.uint32(0))
        s[0] = np.where(self._scalars != -1, _ONES if self._saved is None else self._saved[1][0], np.uint32(0))
        scc = np.array([self._definitions[_SCC] != -1])
        bits = Wavefronts(wf.chunk, wf.wave, v, s, scc)
        dirty = int.from_bytes(np.packbits(self._definitions != -1, bitorder="little").tobytes(), "little")
        wf.shadow = Shadow(bits, dirty, Queues(), self._loaded)

    def has_undefined(self, names: int) -> bool:
        """Return whether one of these registers has an undefined bit, a vector register in an active lane."""
        shadow: Shadow = self.wavefronts.shadow
        left = names & shadow.dirty
        if shadow.undefined_scalar(left):
            return True
        left &= registers.EVERY_VECTOR
        while left:
            number = (left & -left).bit_length() - 1
            left &= left - 1
            if (lane_bits(shadow, number, 1) & self.wavefronts.exec_mask).any():
                return True
        return False

    def end_exact(self) -> None:
        shadow: Shadow = self.wavefronts.shadow
        v, s = shadow.bits.v, shadow.bits.s
        defined = np.packbits(np.moveaxis(v[:, 0], 2, 1) == 0, axis=-1, bitorder="little")
        self._vectors[:] = np.ascontiguousarray(defined).view(np.int64).reshape(-1)
        self._scalars[:] = -(s[0] == 0).astype(np.int64)
        self._definitions[_SCC] = -int(not shadow.bits.scc[0])
        partial = ((v - np.uint32(1)) < _ONES - np.uint32(1)).any() or ((s - np.uint32(1)) < _ONES - np.uint32(1)).any()
        self._saved = (v, s) if partial else None
        self._loaded = shadow.loaded
        self.wavefronts.shadow = None


class GroupShare(Share):
    """The state of a work-group's data share after it, see ``native.checked``, in the form that the mode's steps use.

    The arrays of ``Share`` are views, except ``undefined``, which is valid between ``begin_exact`` and ``end_exact``.
    """

    def __init__(self, waves: int, config: np.ndarray, memory: np.ndarray) -> None:
        size, group, defined, records = (int(config[i]) for i in range(checked.SHARE_BYTES, checked.RECORDS + 1))
        words = memory[group : group + 8 * checked.group_words(waves)].view(np.int64)
        arrays: dict[str, Any] = {}
        at = checked.PASSED
        for name, count in (("passed", 1), ("at", 1), ("issued", 2), ("published", 2), ("arriving", 4), ("arrived", 2)):
            arrays[name] = words[at : at + count * waves]
            at += count * waves
        self.passed, self.at = arrays["passed"], arrays["at"]
        self._released = words[checked.RELEASED : checked.RELEASED + 1]
        self.issued, self.published, self.arrived = (
            arrays[name].reshape(2, waves) for name in ("issued", "published", "arrived")
        )
        self.arriving = arrays["arriving"].reshape(2, 2, waves)
        self._private = None
        self._defined = memory[defined : defined + size]
        self.undefined = np.zeros(max(1, size), np.uint8)
        start = memory.ctypes.data
        self._places = start + group, start + records, size
        tables = (
            memory[records : records + 24 * size].view(np.int64).reshape(3, size)
            if waves > 1
            else np.zeros((3, 0), np.int64)
        )
        self.written, self.read, self.other_read = tables

    def begin_exact(self) -> None:
        """Keep records of bytes from now on, and find the undefined bits."""
        if len(self.written):
            checked.expand_records(*self._places)
        self.undefined[: len(self._defined)] = ~self._defined

    def end_exact(self) -> None:
        self._defined[:] = ~self.undefined[: len(self._defined)]

    @property
    def released(self) -> int:
        """Number of times that the work-group was released from an s_barrier."""
        return int(self._released[0])

    def release_all(self) -> None:
        """Release the work-group from an s_barrier."""
        self.at[self.at > 0] = 0
        self.arrived[...] = self.arriving[0]
        self.published[...] = self.arriving[1]
        self._released += 1
