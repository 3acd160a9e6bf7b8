"""A wavefront and a work-group of native code in mode ``check``, as the mode's steps see them."""

from __future__ import annotations

import numpy as np

from harness.emulator.driver.arena import Wave
from harness.emulator.execution.launch import Chunk
from harness.emulator.native import checked, checked_share
from harness.emulator.watch.check import shadow as registers
from harness.emulator.watch.check.compiled import COUNT, COUNT_MASK
from harness.emulator.watch.check.queues import Queues
from harness.emulator.watch.check.shadow import Shadow, lane_bits
from harness.emulator.watch.check.share import Share
from harness.emulator.wavefront.state import LANES, SGPRS, Wavefronts

_ONES = np.uint32(0xFFFFFFFF)
_SCC = SGPRS
_SIGN = np.int64(-1 << 63)


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
        self._vectors = definitions[checked.VECTORS :]
        self._scalars = definitions[:SGPRS]
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
        dirty = _set_of(self._vectors != -1) | _set_of(self._definitions[: _SCC + 1] != -1) << checked.SCALARS
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
        self._definitions[checked.SAVED] = int(partial)
        self._loaded = shadow.loaded
        self.wavefronts.shadow = None


def _set_of(members: np.ndarray) -> int:
    """Return bool[n] as a set of registers."""
    return int.from_bytes(np.packbits(members, bitorder="little").tobytes(), "little")


class GroupShare(Share):
    """The state of a work-group's data share after it, in the form that the mode's steps use.

    See ``native.checked_share``. The arrays of ``Share`` are valid between ``begin_exact`` and ``end_exact``.
    """

    def __init__(self, waves: int, config: np.ndarray, memory: np.ndarray) -> None:
        size, group, defined, records = (int(config[i]) for i in range(checked.SHARE_BYTES, checked.RECORDS + 1))
        self._state = memory[group : group + 8 * checked.group_words(waves)].view(np.int64)
        self.passed, self.at = self._state[checked.PASSED :].reshape(2, waves)
        self.issued, self.published, self.arrived = (np.zeros((2, waves), np.int64) for _ in range(3))
        self._private = None
        self._defined = memory[defined : defined + size]
        self.undefined = np.full(max(1, size), 0xFF, np.uint8)
        start = memory.ctypes.data
        self._places = start + group, start + records, size
        count = size if waves > 1 else 0
        self.written, self.read, self.other_read = memory[records : records + 24 * count].view(np.int64).reshape(3, -1)

    def begin_exact(self) -> None:
        """Keep records of bytes from now on, and find the undefined bits."""
        if len(self.written):
            checked_share.expand_records(*self._places)
            old = self.written >> COUNT & COUNT_MASK <= self._state[checked.FIRST]
            self.undefined[:] = np.where(old, np.uint8(0xFF), np.where(self.written < 0, self.undefined, np.uint8(0)))
            self.written &= ~_SIGN
        else:
            self.undefined[: len(self._defined)] = ~self._defined
        self.issued[...] = self._state[checked.ACCESSES]
        self.published[...] = self.arrived[...] = self._state[checked.PUBLISHED]

    def end_exact(self) -> None:
        if len(self.written):
            self.written[self.undefined != 0] |= _SIGN
        else:
            self._defined[:] = ~self.undefined[: len(self._defined)]
        self._state[checked.ACCESSES] = self.issued.max()

    @property
    def released(self) -> int:
        """Number of times that the work-group was released from an s_barrier."""
        return int(self._state[checked.RELEASED])

    def release_all(self) -> None:
        """Release the work-group from an s_barrier."""
        self.at[self.at > 0] = 0
        self._state[checked.PUBLISHED] = self._state[checked.ACCESSES]
        self._state[checked.RELEASED] += 1
