"""The matrix unit on a sparse A: one SMFMAC on the registers of every wavefront, compiled by numba.

``operations.sparse`` describes the instruction. Each element of the result is the sum of the products of a row's K / 2
stored elements with the elements of B that their indices select. No measurement of this sum is published: it is assumed
to be that of the dense instructions (``native.mfma``) over the K / 2 products in the order of k.

Parameters are those of ``native.mfma``, where K is that of B, and ``registers`` are the first ones of D, A, B and the
index; C is D. ``index_at`` int32[rows * K / 4, 3] places the 4 bits of each pair of stored elements, in the order [row,
group of 4 k], as (0, lane, lowest bit): the positions of the two elements in their group, the first in the lower bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from harness.emulator import compilation
from harness.emulator.native import memory as native
from harness.emulator.native.mfma import (
    _AT,
    _FORM,
    _I,
    _ZERO,
    _add,
    _align,
    _careful,
    _fields,
    _helper,
    _jit,
    _places,
    _unpack,
    _unusual,
    _whole,
    _write,
)


@_helper
def _positions(flat, w, places, at, out):
    """Write the k that each stored element of A is multiplied with, int64[rows, K / 2]."""
    words = np.empty(len(at), np.uint32)
    _fields(flat, w, places, at, 4, words)
    groups = out.shape[1] // 2
    for n in range(len(at)):
        row, group = n // groups, n % groups
        out[row, 2 * group] = 4 * group + np.int64(words[n] & np.uint32(3))
        out[row, 2 * group + 1] = 4 * group + np.int64(words[n] >> np.uint32(2))


@_jit
def fused_sum(v, registers, shape, a_at, b_at, d_at, index_at, a_form, b_form, group, ways):
    """Compute D = A * B + D of floats of up to 16 bits into f32."""
    d, a, b, index = registers
    _, rows, columns, depth = shape
    stored = depth // 2
    group = min(group, stored)
    eight_bits = ways == 2
    flat = v.ravel()
    a_places, b_places = _places(v, a_at, a), _places(v, b_at, b)
    d_places, index_places = _places(v, d_at, d), _places(v, index_at, index)
    words = np.empty(max(len(a_at), len(b_at)), np.uint32)
    a_part, a_exponent = np.empty((rows, stored), np.float32), np.empty((rows, stored), np.int32)
    b_part, b_exponent = np.empty((depth, columns), np.float32), np.empty((depth, columns), np.int32)
    chosen, chosen_exponent = np.empty((stored, columns), np.float32), np.empty((stored, columns), np.int32)
    where = np.empty((rows, stored), np.int64)
    sums, tops = np.zeros((2, columns), np.int32), np.full((2, columns), np.int32(2 * _ZERO))
    out = np.empty((rows, columns), np.float32)
    for w in range(v.shape[1]):
        _fields(flat, w, a_places, a_at, a_form[0], words[: len(a_at)])
        _unpack(words[: len(a_at)], a_form, a_part.ravel(), a_exponent.ravel())
        _fields(flat, w, b_places, b_at, b_form[0], words[: len(b_at)])
        _unpack(words[: len(b_at)], b_form, b_part.ravel(), b_exponent.ravel())
        _positions(flat, w, index_places, index_at, where)
        _whole(flat, w, d_places, True, np.uint32(0), out.ravel().view(np.uint32))
        for i in range(rows):
            for k in range(stored):
                chosen[k] = b_part[where[i, k]]
                chosen_exponent[k] = b_exponent[where[i, k]]
            for first in range(0, stored, group):
                for way in range(ways):
                    _align(sums, tops, way, a_part, a_exponent, chosen, chosen_exponent, i, first, group, ways)
                for j in range(columns):
                    c = out[i, j]
                    if _unusual(tops[0, j], tops[1, j], np.int32(0), c, eight_bits):
                        out[i, j] = _careful(
                            a_part, a_exponent, chosen, chosen_exponent, i, j, first, group, ways, np.int32(0), c
                        )  # fmt: skip
                    else:
                        one, other = np.float64(sums[0, j]), np.float64(sums[1, j])
                        out[i, j] = _add(one, tops[0, j], other, tops[1, j], c, eight_bits)
        _write(flat, w, d_places, out.ravel().view(np.uint32))


@_jit
def wrapping_i8(v, registers, shape, a_at, b_at, d_at, index_at):
    """Compute D = A * B + D of signed bytes into i32, modulo 2**32."""
    d, a, b, index = registers
    _, rows, columns, depth = shape
    flat = v.ravel()
    a_places, b_places = _places(v, a_at, a), _places(v, b_at, b)
    d_places, index_places = _places(v, d_at, d), _places(v, index_at, index)
    left, right = np.empty((rows, depth // 2), np.int8), np.empty((depth, columns), np.int8)
    where = np.empty((rows, depth // 2), np.int64)
    out = np.empty((rows, columns), np.int32)
    for w in range(v.shape[1]):
        _fields(flat, w, a_places, a_at, 8, left.ravel())
        _fields(flat, w, b_places, b_at, 8, right.ravel())
        _positions(flat, w, index_places, index_at, where)
        _whole(flat, w, d_places, True, np.uint32(0), out.ravel().view(np.uint32))
        for i in range(rows):
            for k in range(depth // 2):
                x = np.int32(left[i, k])
                for j in range(columns):
                    out[i, j] += np.int32(x * np.int32(right[where[i, k], j]))
        _write(flat, w, d_places, out.ravel().view(np.uint32))


_COMMON = (native._V, types.UniTuple(_I, 4), types.UniTuple(_I, 4), _AT, _AT, _AT, _AT)
_SIGNATURES: dict[Any, tuple[Any, ...]] = {
    fused_sum: (*_COMMON, _FORM, _FORM, _I, _I),
    wrapping_i8: _COMMON,
}


def prepare() -> None:
    """Compile the functions above, or load them; a process without sparse products skips this."""
    compilation.compile_now(_SIGNATURES)
