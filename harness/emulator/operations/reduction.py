"""Argument reduction of sines and cosines of large numbers: ``v_trig_preop_f64``.

Source: CDNA3 ISA, VOP3 (V_TRIG_PREOP_F64). The result is a piece of 2 / pi, 53 bits long, chosen by the segment number
and by the exponent of the argument, so that the product with the argument keeps the bits that matter.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from harness.emulator.operations.table import vector

_BITS = 1201


@vector("v_trig_preop_f64", "f64 = f64 u32")
def trig_preop(a, segment):
    a, segment = np.broadcast_arrays(a, segment)
    exponent = (a.view(np.uint64) >> np.uint64(52)).astype(np.int64) & 0x7FF
    shift = (segment & np.uint32(31)).astype(np.int64) * 53 + np.maximum(exponent - 1077, 0)
    scale = -53 - shift + np.where(exponent >= 1968, 128, 0)
    pieces, place = np.unique(shift, return_inverse=True)
    values = np.array([float(_piece(int(s))) for s in pieces])
    return np.ldexp(values[place].reshape(a.shape), scale.astype(np.int32))


def _piece(shift: int) -> int:
    """Return bits ``shift`` to ``shift`` + 52 after the binary point of 2 / pi, of which 1,201 are kept."""
    return (_two_over_pi() << shift) >> (_BITS - 53) & ((1 << 53) - 1)


@lru_cache(maxsize=1)
def _two_over_pi() -> int:
    """Return floor(2 / pi * 2**1201), by Machin's formula for pi in integers."""
    guard = _BITS + 64

    def arctan_of_inverse(n: int) -> int:
        term = total = (1 << guard) // n
        k, sign = 1, 1
        while term:
            term //= n * n
            k, sign = k + 2, -sign
            total += sign * (term // k)
        return total

    pi = 4 * (4 * arctan_of_inverse(5) - arctan_of_inverse(239))
    return (1 << (_BITS + guard + 1)) // pi
