"""A wavefront by itself, as modes execute it that choose the next wavefront at each access to memory.

Its registers are in a record (``native.record``), which native functions can use.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from harness.emulator.native import local, record
from harness.emulator.wavefront.state import EXEC, LANES, SGPRS, Wavefronts

_LINE = 64
# Lane masks by EXEC, which nothing changes: the mask, how many lanes are active, whether all are.
_masks: dict[bytes, tuple[np.ndarray, int, bool]] = {}
_MOST_MASKS = 4096
# Copies that are not used, by their pairs of vector registers.
_copies: dict[int, list[SingleWavefront]] = {}
_MOST_COPIES = 64


class SingleWavefront(Wavefronts):
    """A wavefront whose registers are in a record, at address ``record``.

    ``header``: int64[n], the fields of the record. ``place``: its rank and number, which order wavefronts.
    ``watched``: what the mode keeps of it, or None.
    """

    __slots__ = ("_memory", "header", "place", "record", "watched")
    record: int
    header: np.ndarray
    place: tuple[int, int]
    watched: Any
    _memory: np.ndarray

    @classmethod
    def of(cls, wavefronts: Wavefronts, row: int) -> SingleWavefront:
        """Return a copy of one of several wavefronts."""
        wf = cls._on(_memory_of(len(wavefronts.v)), wavefronts.chunk, len(wavefronts.v), wavefronts.wave[row : row + 1])
        wf.v[:, 0], wf.s[0], wf.scc[0] = wavefronts.v[:, row], wavefronts.s[row], wavefronts.scc[row]
        wf.block, wf.turn = wavefronts.block, wavefronts.turn
        wf.place = wf.chunk.launch.rank, int(wf.wave[0])
        wf.refresh_exec()
        if wavefronts.shadow is not None:
            wf.shadow = wavefronts.shadow.select(np.array([row]))
        return wf

    @classmethod
    def at(cls, memory: np.ndarray, chunk: Any, number: int) -> SingleWavefront:
        """Return wavefront ``number`` of the work-group ``chunk``, whose record is in ``memory``, uint8[n]."""
        pairs = (chunk.launch.program.vgprs + 1) // 2 + 1
        wf = cls._on(memory, chunk, pairs, np.array([number]))
        wf.place = chunk.launch.rank, number
        return wf

    def copy(self, pairs: local.Numbers) -> SingleWavefront:
        """Return a copy with these pairs of vector registers; the others are undefined. Call ``free`` after its use."""
        spare = _copies.setdefault(len(self.v), [])
        other = spare.pop() if spare else self._on(_memory_of(len(self.v)), self.chunk, len(self.v), self.wave)
        other.chunk, other.wave, other.block = self.chunk, self.wave, self.block
        local.take(other.record, self.record, pairs.address, pairs.count)
        other.exec_mask, other.exec_all, other.active = self.exec_mask, self.exec_all, self.active
        return other

    def free(self) -> None:
        """Make a copy's memory available again."""
        if len(_copies) > _MOST_COPIES:
            _copies.clear()
        spare = _copies.setdefault(len(self.v), [])
        if len(spare) < _MOST_COPIES:
            spare.append(self)

    @classmethod
    def _on(cls, memory: np.ndarray, chunk: Any, pairs: int, wave: np.ndarray) -> SingleWavefront:
        """Return a wavefront whose registers are in ``memory``."""
        s = memory[: 4 * SGPRS].view(np.uint32).reshape(1, SGPRS)
        scc = memory[record.SCC : record.SCC + 1].view(np.bool_)
        vectors = memory[record.VECTORS : record.VECTORS + pairs * record.PAIR_BYTES]
        v = vectors.view(np.uint32).reshape(pairs, 1, LANES, 2)
        wf = cls(chunk, wave, v, s, scc)
        wf.record, wf._memory, wf.watched = memory.ctypes.data, memory, None
        wf.header = memory[: record.VECTORS].view(np.int64)
        return wf

    def refresh_exec(self) -> None:
        # Kernels use few lane masks, and finding one takes less time than making it.
        word = self.s[0, EXEC : EXEC + 2].tobytes()
        known = _masks.get(word)
        if known is None:
            super().refresh_exec()
            if len(_masks) >= _MOST_MASKS:
                _masks.clear()
            _masks[word] = self.exec_mask, self.active, self.exec_all
        else:
            self.exec_mask, self.active, self.exec_all = known


def _memory_of(pairs: int) -> np.ndarray:
    """Return zeroed memory for a record with this number of pairs of vector registers, aligned to a cache line."""
    size = record.private_offset(pairs)
    memory = np.zeros(size + _LINE, np.uint8)
    first = -memory.ctypes.data % _LINE
    return memory[first : first + size]
