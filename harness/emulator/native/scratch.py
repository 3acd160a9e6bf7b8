"""The private segment: ``scratch_*`` instructions for each lane, compiled by numba.

``scratch`` uint8[lanes * lane_bytes] holds the segments of a chunk's lanes one after the other (hardware interleaves
them by dwords, which kernels cannot observe); ``first`` is the number of the chunk's first wavefront. A lane's address
is its register ``areg`` plus scalar register ``sreg`` plus ``offset``, modulo 2**32; a register of -1 is omitted.
Functions return the flat lane of the first access outside its segment, or -1; shapes as in ``native``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from harness.emulator import compilation
from harness.emulator.native import memory as native
from harness.emulator.native.lds import _narrow
from harness.emulator.native.memory import _inline, _jit
from harness.emulator.native.words import peek8, peek16, peek32, poke8, poke16, poke32


@_inline
def _inner(v, s, w, lane, areg, sreg, offset):
    inner = np.int64(offset)
    if areg >= 0:
        inner += np.int64(v[areg >> 1, w, lane, areg & 1])
    if sreg >= 0:
        inner += np.int64(s[w, sreg])
    return inner & np.int64(0xFFFFFFFF)


@_jit
def load(v, s, mask, wave, first, scratch, lane_bytes, areg, sreg, offset, dst, size, signed, half):
    """Load ``size`` bytes (1, 2 or 4n) to ``dst``."""
    data = np.uint64(scratch.ctypes.data)
    for w in range(mask.shape[0]):
        for lane in range(64):
            if not mask[w, lane]:
                continue
            inner = _inner(v, s, w, lane, areg, sreg, offset)
            if inner + size > lane_bytes:
                return w * 64 + lane
            at = data + np.uint64(((wave[w] - first) * 64 + lane) * lane_bytes + inner)
            if size >= 4:
                for i in range(size >> 2):
                    v[(dst + i) >> 1, w, lane, (dst + i) & 1] = peek32(at + np.uint64(4 * i))
                continue
            value = np.uint32(peek8(at)) if size == 1 else np.uint32(peek16(at))
            v[dst >> 1, w, lane, dst & 1] = _narrow(value, size, signed, half, v[dst >> 1, w, lane, dst & 1])
    return -1


@_jit
def store(v, s, mask, wave, first, scratch, lane_bytes, areg, sreg, offset, src, size, high):
    """Store: the counterpart of ``load``; ``high``: a narrow store takes bits 16 and up."""
    data = np.uint64(scratch.ctypes.data)
    for w in range(mask.shape[0]):
        for lane in range(64):
            if not mask[w, lane]:
                continue
            inner = _inner(v, s, w, lane, areg, sreg, offset)
            if inner + size > lane_bytes:
                return w * 64 + lane
            at = data + np.uint64(((wave[w] - first) * 64 + lane) * lane_bytes + inner)
            if size >= 4:
                for i in range(size >> 2):
                    poke32(at + np.uint64(4 * i), v[(src + i) >> 1, w, lane, (src + i) & 1])
                continue
            value = v[src >> 1, w, lane, src & 1]
            if high:
                value = np.uint32(value >> np.uint32(16))
            if size == 1:
                poke8(at, np.uint8(value & np.uint32(0xFF)))
            else:
                poke16(at, np.uint16(value & np.uint32(0xFFFF)))
    return -1


_I, _B = native._I, native._B
_SEGMENT = (native._V, native._S, native._MASK, types.int64[::1], _I, types.uint8[::1], _I)
_SIGNATURES: dict[Any, tuple[Any, ...]] = {
    load: (*_SEGMENT, _I, _I, _I, _I, _I, _B, _I),
    store: (*_SEGMENT, _I, _I, _I, _I, _I, _B),
}


def prepare() -> None:
    """Compile the functions above, or load them; a process without spills skips this."""
    compilation.compile_now(_SIGNATURES)
