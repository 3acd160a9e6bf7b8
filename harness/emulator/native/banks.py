"""Bank conflicts of the local data share: cycles of an access beyond those that its width needs.

The data share serves an instruction in passes of some lanes each. In a pass, each bank, 4 bytes wide, delivers one
dword: lanes that access the same dword share it, and each further dword of a bank costs a cycle.

==================  =====  =============================================
access              banks  lanes of a pass
==================  =====  =============================================
up to 4 bytes       32     32
8 bytes             32     16; gfx950 reads: 32 lanes, 64 banks
12 bytes            32     8; reads: four and four others, 0-3 with 20-23
16 bytes            32     as 12 bytes; gfx950 reads: 16 lanes, 64 banks
==================  =====  =============================================

Sources: AMD's documentation of CK-Tile, "Understanding AMD GPU LDS and Bank Conflicts" (phases, 32 or 64 banks);
measurements by HipKittens on gfx950 (64-, 96-, 128-bit reads, 64-bit writes) and by pyhip on an MI300 (128-bit reads).
There are no published measurements of narrow reads and wide writes of gfx950: they are assumed to equal those of
gfx942, except for the 64 banks of a narrow read.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from harness.emulator import compilation
from harness.emulator.native.memory import _jit


def bank_conflicts(addresses: np.ndarray, mask: np.ndarray, size: int, arch: str, stores: bool = False) -> int:
    """Return the extra cycles of one access of ``size`` bytes per lane, summed over wavefronts.

    ``addresses`` int64[W, 64] in bytes, within the work-group's data share; ``mask`` bool[W, 64] the active lanes. A
    two-address instruction is two accesses. ``stores``: writes and atomics.
    """
    banks, lanes = passes(size, arch, stores)
    compilation.compile_now(_SIGNATURES)
    words = max(1, size // 4)
    return int(_extra(np.ascontiguousarray(addresses), np.ascontiguousarray(mask), words, banks, lanes))


def _consecutive(lanes: int) -> list[list[int]]:
    return [list(range(first, first + lanes)) for first in range(0, 64, lanes)]


def _fours(*firsts: tuple[int, ...]) -> list[list[int]]:
    """Return passes made of runs of four lanes, given for the first half of the wavefront."""
    return [[half + first + i for first in run for i in range(4)] for half in (0, 32) for run in firsts]


_WIDE = _fours((0, 20), (4, 16), (8, 28), (12, 24))
_WIDER = _fours((0, 12, 20, 24), (4, 8, 16, 28))


def passes(size: int, arch: str, stores: bool) -> tuple[int, np.ndarray]:
    """Return the number of banks, and the lanes of each pass, int64[passes, lanes], of an access of ``size`` bytes."""
    doubled = arch == "gfx950" and not stores
    if size <= 4:
        banks, lanes = (64 if doubled else 32), _consecutive(32)
    elif size == 8:
        banks, lanes = (64, _consecutive(32)) if doubled else (32, _consecutive(16))
    elif stores:
        banks, lanes = 32, _consecutive(8)
    else:
        banks, lanes = (64, _WIDER) if doubled and size == 16 else (32, _WIDE)
    return banks, np.array(lanes, np.int64)


@_jit
def _extra(addresses: Any, mask: Any, words: int, banks: int, lanes: Any) -> int:
    total = 0
    seen, count = np.empty(64, np.int64), np.zeros(64, np.int64)
    for w in range(addresses.shape[0]):
        for row in lanes:
            distinct, largest = 0, 1
            count[:] = 0
            for lane in row:
                if not mask[w, lane]:
                    continue
                for k in range(words):
                    word = (addresses[w, lane] >> 2) + k
                    known = False
                    for i in range(distinct):
                        known |= seen[i] == word
                    if not known:
                        seen[distinct] = word
                        distinct += 1
                        count[word % banks] += 1
                        largest = max(largest, count[word % banks])
            total += largest - 1
    return total


_SIGNATURES: dict[Any, tuple[Any, ...]] = {
    _extra: (types.int64[:, ::1], types.boolean[:, ::1], types.int64, types.int64, types.int64[:, ::1])
}
