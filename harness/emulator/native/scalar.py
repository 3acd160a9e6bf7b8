"""Scalar loads through a buffer descriptor, compiled by numba. Shapes and results are those of ``native``."""

from __future__ import annotations

from typing import Any

import numpy as np

from harness.emulator import compilation
from harness.emulator.native import memory as native
from harness.emulator.native.memory import _jit, find_allocation
from harness.emulator.native.words import peek32


@_jit
def load_buffer(s, dst, words, descriptor, soffset, offset, starts, ends):
    """s_buffer_load_dword*: load ``words`` dwords per wavefront; return the wavefront of a bad address, or -1.

    Each dword that is out of range is 0 (AMD "CDNA3 ISA", scalar memory): num_records counts bytes, or records of
    ``stride`` bytes. The two low bits of the offset are ignored.
    """
    loaded = np.zeros(16, np.uint32)
    for w in range(s.shape[0]):
        word1 = np.uint64(s[w, descriptor + 1])
        base = np.uint64(s[w, descriptor]) | (word1 & np.uint64(0xFFFF)) << np.uint64(32)
        stride = (word1 >> np.uint64(16)) & np.uint64(0x3FFF)
        limit = np.uint64(s[w, descriptor + 2]) * (stride or np.uint64(1))
        inner = np.uint64(offset)
        if soffset >= 0:
            inner += np.uint64(s[w, soffset])
        inner &= ~np.uint64(3)
        for i in range(words):
            at = inner + np.uint64(4 * i)
            loaded[i] = 0
            if at + np.uint64(4) > limit:
                continue
            if find_allocation(starts, ends, base + at, np.uint64(4), 0) < 0:
                return w
            loaded[i] = peek32(base + at)
        for i in range(words):
            s[w, dst + i] = loaded[i]
    return -1


_I = native._I
_SIGNATURES: dict[Any, tuple[Any, ...]] = {load_buffer: (native._S, _I, _I, _I, _I, _I, *native._TABLE[:2])}


def prepare() -> None:
    """Compile the functions above, or load them from the cache."""
    compilation.compile_now(_SIGNATURES)
