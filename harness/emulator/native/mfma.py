"""The matrix unit: one MFMA on the registers of every wavefront, compiled by numba.

``operations.matrix`` defines which elements are multiplied (shapes, lanes, broadcasts); this module multiplies and adds
them. A result never depends on how many wavefronts are executed together, nor on the host's BLAS.

f32, f64    a chain of fused multiply-adds in the order of k, each rounded to nearest even; denormals are kept
i8          exact products, sums that wrap at 32 bits: there is no saturation
the rest    ``fused_sum`` below: several products are aligned, truncated and added to C with one rounding

No manual states the arithmetic of the last row. It has been measured on an MI300X: Xie, Wang, Yang and Yang,
"Bit-Accurate Modeling of GPU Matrix Multiply-Accumulate Units", arXiv:2511.10909, whose models reproduce every CDNA3
instruction bit for bit. A group is 8 successive k for f16 and bf16 (all k where there are fewer), 4 for xf32, 16 for
fp8 and bf8; the groups of an instruction follow one another.

1. Each product is exact, with the exponent ea + eb (denormals are kept, at the least exponent of their type); but for
   the 8-bit types a product of 2**128 or more becomes infinite.
2. The products are aligned to the greatest exponent e, truncated toward zero at 2**(e - 24) and added exactly. Of the
   8-bit types, products with even and with odd k are added separately, and the two sums rounded down at 2**(e - 24).
3. Sum and C are aligned to the greater exponent E of the two: the sum is rounded down at 2**(E - 31), C at 2**(E - 24)
   (for the 8-bit types, a C below that counts as 0), and their sum is rounded to nearest even in f32.

So small negative terms decrease results where small positive ones vanish, as on the hardware. An exact zero is +0, a
NaN is the canonical one, and an xf32 input is the upper 19 bits of an f32.

There are no published measurements of gfx950. It is assumed to compute like gfx942. Its f8f6f4 formats follow the rule
of the 8-bit types, with the block scales added to the exponents of a group: "AMD CDNA4 ISA", chapter 7, applies scales
after the dot product, before accumulation.

Every function takes ``v``, the registers of W wavefronts as in ``state``; ``registers``, the first ones of D, A, B and
C (-1: C is the bit pattern ``constant``); ``shape``, that is blocks, M, N and K; and ``a_at``, ``b_at``, ``d_at``
int32[n, 3], which place the elements, in the order [block, row, column], as (register, lane, lowest bit).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit, types

from harness.emulator import compilation
from harness.emulator.native.fused import fma32, fma64

# Meaning of the patterns with the largest exponent: numbers, infinities and NaNs, one NaN (all ones), or NaN 0x80.
FINITE, IEEE, OCP, FNUZ = range(4)


class Form(NamedTuple):
    """A float format in a register field: its width, the bits below it that are dropped, and its parts."""

    bits: int
    drop: int
    exponent: int
    mantissa: int
    bias: int
    special: int


FORMS = {
    "f16": Form(16, 0, 5, 10, 15, IEEE),
    "bf16": Form(16, 0, 8, 7, 127, IEEE),
    "xf32": Form(32, 13, 8, 10, 127, IEEE),
    "fp8@gfx942": Form(8, 0, 4, 3, 8, FNUZ),
    "bf8@gfx942": Form(8, 0, 5, 2, 16, FNUZ),
    "fp8@gfx950": Form(8, 0, 4, 3, 7, OCP),
    "bf8@gfx950": Form(8, 0, 5, 2, 15, IEEE),
    "fp6": Form(6, 0, 2, 3, 1, FINITE),
    "bf6": Form(6, 0, 3, 2, 3, FINITE),
    "fp4": Form(4, 0, 2, 1, 1, FINITE),
}

# Exponents that represent a zero, and an infinity or NaN: beyond all sums of real exponents, also after additions.
_ZERO, _SPECIAL = -4000, 12000
# The exponent that represents a block scale of NaN.
NAN_SCALE = 1 << 20

_jit = njit(cache=True, nogil=True)
_helper = njit(nogil=True)
_inline = njit(inline="always")


# -- registers ---------------------------------------------------------------------------------------------------------


@_helper
def _places(v, at, base):
    """int64[2, n]: positions of elements in the flat registers of the first wavefront, and of their upper bits.

    The second row is used for 6-bit elements that extend into the next register. The positions for the next wavefront
    are 128 further.
    """
    out = np.empty((2, len(at)), np.int64)
    for n in range(len(at)):
        for next_one in range(2):
            register = max(base, 0) + at[n, 0] + (next_one if at[n, 2] > 26 else 0)
            out[next_one, n] = (register >> 1) * v.shape[1] * 128 + at[n, 1] * 2 + (register & 1)
    return out


@_helper
def _fields(flat, w, places, at, bits, out):
    """Read the elements of an operand unchanged, up to 32 bits each."""
    mask = np.uint32((1 << bits) - 1)
    for n in range(out.size):
        shift = np.uint32(at[n, 2])
        low, high = flat[places[0, n] + 128 * w], flat[places[1, n] + 128 * w]
        out[n] = (low >> shift | high << np.uint32(1) << (np.uint32(31) - shift)) & mask


@_helper
def _whole(flat, w, places, from_register, constant, out):
    """Read 32-bit elements, or ``constant`` for all."""
    if from_register:
        for n in range(out.size):
            out[n] = flat[places[0, n] + 128 * w]
    else:
        out[:] = constant


@_helper
def _write(flat, w, places, values):
    for n in range(values.size):
        flat[places[0, n] + 128 * w] = values[n]


# -- floats of up to 19 bits -------------------------------------------------------------------------------------------


@_inline
def _pow2(exponent):
    """Return 2**exponent in float64, where that is a normal number."""
    return np.int64((np.int64(exponent) + 1023) << 52).view(np.float64)


@_helper
def _unpack(words, form, significand, exponent):
    """Split elements into significand * 2**exponent, with significands below 2 that are not normalised.

    An infinity is 1, and a NaN 1.5, times a special power.
    """
    _, drop, exponent_bits, mantissa_bits, bias, special = form
    top, mask = np.int32((1 << exponent_bits) - 1), np.int32((1 << mantissa_bits) - 1)
    one, scale = np.int32(1 << mantissa_bits), np.float32(_pow2(-mantissa_bits))
    sign = np.int32(1 << (exponent_bits + mantissa_bits))
    for n in range(words.size):
        word = np.int32(words[n] >> np.uint32(drop))
        e, m = np.int32(word >> np.int32(mantissa_bits) & top), np.int32(word & mask)
        whole = np.int32(m + (one if e != 0 else 0))
        power = np.int32(max(e, 1) - bias)
        power = np.int32(_ZERO if whole == 0 else power)
        infinite = special == IEEE and e == top and m == 0
        nan = (special == IEEE and e == top and m != 0) or (special == OCP and e == top and m == mask)
        nan = nan or (special == FNUZ and word == sign)
        part = np.float32(1.0 if infinite else 1.5 if nan else np.float32(whole) * scale)
        significand[n] = -part if word & sign else part
        exponent[n] = _SPECIAL if infinite or nan else power


@_inline
def _add(sum0, top0, sum1, top1, c, eight_bits):
    """Add C and two sums in units of 2**(top - 24): the end of step 2, and step 3, of the module's description."""
    c_exponent = max(np.int32((np.float32(c).view(np.int32) >> np.int32(23) & np.int32(0xFF)) - 127), np.int32(-126))
    top = max(top0, top1)
    both = max(top, c_exponent)
    # A sum of zeros has an exponent far below all others, represented by 2**-1000.
    total = np.floor(sum0 * _pow2(max(top0 - top, -1000))) + np.floor(sum1 * _pow2(max(top1 - top, -1000)))
    total = np.floor(total * _pow2(max(top - both, -1000) + 7))
    addend = 0.0 if eight_bits and c_exponent < both - 25 else np.floor(np.float64(c) * _pow2(24 - both))
    return np.float32((total + addend * 128.0) * _pow2(both - 31))


@_inline
def _unusual(top0, top1, shift, c, eight_bits):
    """Return True if ``_careful`` must decide: infinities, NaNs, overflow, and products below f32's range."""
    if eight_bits:
        return max(top0, top1) >= _SPECIAL // 2 or shift >= NAN_SCALE // 2 or not np.isfinite(c)
    return top0 >= 127 or (_ZERO // 2 < top0 < -126) or not np.isfinite(c)


@_jit
def _careful(a, a_exponent, b, b_exponent, i, j, first, group, ways, shift, c):
    """Compute one group of one element, product by product: every case of the module's description."""
    eight_bits = ways == 2
    infinite = 0.0 if np.isfinite(c) else np.float64(c)
    sums, tops = np.zeros(2), np.full(2, np.int32(2 * _ZERO))
    for k in range(first, first + group):
        e, product = np.int32(a_exponent[i, k] + b_exponent[k, j]), np.float64(a[i, k]) * np.float64(b[k, j])
        if e >= _SPECIAL // 2:
            for part, power in ((a[i, k], a_exponent[i, k]), (b[k, j], b_exponent[k, j])):
                if power == _SPECIAL and abs(part) == 1.5:
                    product = np.nan
            infinite += product * np.inf
        elif e > 127 - (abs(product) >= 2) and not eight_bits:
            infinite += product * np.inf
        elif e > _ZERO // 2:
            tops[k % ways] = max(tops[k % ways], e)
        elif not eight_bits:
            tops[0] = max(tops[0], np.int32(-126))  # a product of zero has the least exponent of f32
    if shift >= NAN_SCALE // 2 or np.isnan(infinite):
        return np.float32(np.nan)
    if infinite != 0:
        return np.float32(infinite)
    for k in range(first, first + group):
        e, product = np.int32(a_exponent[i, k] + b_exponent[k, j]), np.float64(a[i, k]) * np.float64(b[k, j])
        if product != 0:
            sums[k % ways] += np.trunc(product * _pow2(max(e - tops[k % ways], -1000) + 24))
    return _add(sums[0], np.int32(tops[0] + shift), sums[1], np.int32(tops[1] + shift), c, eight_bits)


@_inline
def _align(sums, tops, way, a, a_exponent, b, b_exponent, i, first, group, ways):
    """Steps 1 and 2 for a row of elements: align, truncate and add the products of every ``ways``-th k."""
    for j in range(tops.shape[1]):
        tops[way, j] = 2 * _ZERO
        sums[way, j] = 0
    for k in range(first + way, first + group, ways):
        e = a_exponent[i, k]
        for j in range(tops.shape[1]):
            tops[way, j] = max(tops[way, j], np.int32(e + b_exponent[k, j]))
    for k in range(first + way, first + group, ways):
        e, x = a_exponent[i, k], a[i, k]
        for j in range(tops.shape[1]):
            # Alignment by 100 or more leaves nothing; with this limit the power of two is a normal number.
            below = max(np.int32(e + b_exponent[k, j] - tops[way, j]), np.int32(-100))
            power = np.int32((below + (24 + 127)) << 23).view(np.float32)
            sums[way, j] += np.int32(x * b[k, j] * power)


@_jit
def fused_sum(v, registers, shape, a_at, b_at, d_at, constant, a_form, b_form, group, ways, a_scale, b_scale):
    """Compute D = A * B + C of floats of up to 19 bits into f32; the module's description has the arithmetic.

    ``group`` k form a group; ``ways`` is 2 for types of 8 bits or fewer, else 1. ``a_scale`` and ``b_scale`` int32[W,
    64] are the exponents of the block scales (or [0, 64]: none): the scale of row or column i for the 32 k from 32 * s
    on is in lane i + s * M, as for all operands of 32 columns or rows.
    """
    d, a, b, c = registers
    blocks, rows, columns, depth = shape
    group = min(group, depth)
    eight_bits = ways == 2
    flat = v.ravel()
    a_places, b_places = _places(v, a_at, a), _places(v, b_at, b)
    c_places, d_places = _places(v, d_at, c), _places(v, d_at, d)
    words = np.empty(max(len(a_at), len(b_at)), np.uint32)
    a_part, a_exponent = np.empty((blocks, rows, depth), np.float32), np.empty((blocks, rows, depth), np.int32)
    b_part, b_exponent = np.empty((blocks, depth, columns), np.float32), np.empty((blocks, depth, columns), np.int32)
    sums, tops = np.zeros((2, columns), np.int32), np.full((2, columns), np.int32(2 * _ZERO))
    shifts, unusual = np.zeros(columns, np.int32), np.zeros(columns, np.bool_)
    out, row = np.empty((blocks, rows, columns), np.float32), np.empty(columns, np.float32)
    for w in range(v.shape[1]):
        _fields(flat, w, a_places, a_at, a_form[0], words[: len(a_at)])
        _unpack(words[: len(a_at)], a_form, a_part.ravel(), a_exponent.ravel())
        _fields(flat, w, b_places, b_at, b_form[0], words[: len(b_at)])
        _unpack(words[: len(b_at)], b_form, b_part.ravel(), b_exponent.ravel())
        _whole(flat, w, c_places, c >= 0, np.uint32(constant), out.ravel().view(np.uint32))
        for block in range(blocks):
            x, x_exponent, y, y_exponent = a_part[block], a_exponent[block], b_part[block], b_exponent[block]
            for first in range(0, depth, group):
                for i in range(rows):
                    for way in range(ways):
                        _align(sums, tops, way, x, x_exponent, y, y_exponent, i, first, group, ways)
                    if len(a_scale):
                        for j in range(columns):
                            lane = rows * (first // 32)
                            shifts[j] = a_scale[w, i + lane] + b_scale[w, j + lane]
                    some = False
                    for j in range(columns):
                        c_value, shift = out[block, i, j], shifts[j]
                        top0, top1 = np.int32(tops[0, j] + shift), np.int32(tops[1, j] + shift)
                        row[j] = _add(np.float64(sums[0, j]), top0, np.float64(sums[1, j]), top1, c_value, eight_bits)
                        unusual[j] = _unusual(tops[0, j], tops[1, j], shift, c_value, eight_bits)
                        some |= unusual[j]
                    for j in range(columns):
                        if some and unusual[j]:
                            c_value = out[block, i, j]
                            row[j] = _careful(
                                x, x_exponent, y, y_exponent, i, j, first, group, ways, shifts[j], c_value
                            )  # fmt: skip
                    out[block, i] = row
        _write(flat, w, d_places, out.ravel().view(np.uint32))


# -- f32, f64 and i8 ---------------------------------------------------------------------------------------------------


@_jit
def chain_f32(v, registers, shape, a_at, b_at, d_at, constant):
    """Compute D = A * B + C of f32, by fused multiply-adds in the order of k."""
    d, a, b, c = registers
    blocks, rows, columns, depth = shape
    flat = v.ravel()
    a_places, b_places = _places(v, a_at, a), _places(v, b_at, b)
    c_places, d_places = _places(v, d_at, c), _places(v, d_at, d)
    left, right = np.empty((blocks, rows, depth), np.float32), np.empty((blocks, depth, columns), np.float32)
    out = np.empty((blocks, rows, columns), np.float32)
    for w in range(v.shape[1]):
        _whole(flat, w, a_places, True, np.uint32(0), left.ravel().view(np.uint32))
        _whole(flat, w, b_places, True, np.uint32(0), right.ravel().view(np.uint32))
        _whole(flat, w, c_places, c >= 0, np.uint32(constant), out.ravel().view(np.uint32))
        for block in range(blocks):
            for k in range(depth):
                for i in range(rows):
                    for j in range(columns):
                        out[block, i, j] = fma32(left[block, i, k], right[block, k, j], out[block, i, j])
        _write(flat, w, d_places, out.ravel().view(np.uint32))


@_jit
def chain_f64(v, registers, shape, a_at, b_at, d_at, constant, negate):
    """Compute D = A * B + C of f64, by fused multiply-adds in the order of k; ``negate`` flips signs of A, B, C."""
    d, a, b, c = registers
    blocks, rows, columns, depth = shape
    pairs = v.ravel().view(np.float64)  # a 64-bit operand begins at an even register
    a_places, b_places = _places(v, a_at, a)[0] >> 1, _places(v, b_at, b)[0] >> 1
    c_places, d_places = _places(v, d_at, c)[0] >> 1, _places(v, d_at, d)[0] >> 1
    signs = [-1.0 if negate >> i & 1 else 1.0 for i in range(3)]
    left, right = np.empty((blocks, rows, depth), np.float64), np.empty((blocks, depth, columns), np.float64)
    out = np.empty((blocks, rows, columns), np.float64)
    a_values, b_values, values = left.ravel(), right.ravel(), out.ravel()
    for w in range(v.shape[1]):
        for n in range(a_values.size):
            a_values[n] = signs[0] * pairs[a_places[n] + 64 * w]
        for n in range(b_values.size):
            b_values[n] = signs[1] * pairs[b_places[n] + 64 * w]
        for n in range(values.size):
            values[n] = signs[2] * (pairs[c_places[n] + 64 * w] if c >= 0 else np.uint64(constant).view(np.float64))
        for block in range(blocks):
            for k in range(depth):
                for i in range(rows):
                    for j in range(columns):
                        out[block, i, j] = fma64(left[block, i, k], right[block, k, j], out[block, i, j])
        for n in range(values.size):
            pairs[d_places[n] + 64 * w] = values[n]


@_jit
def wrapping_i8(v, registers, shape, a_at, b_at, d_at, constant):
    """Compute D = A * B + C of signed bytes into i32, modulo 2**32."""
    d, a, b, c = registers
    blocks, rows, columns, depth = shape
    flat = v.ravel()
    a_places, b_places = _places(v, a_at, a), _places(v, b_at, b)
    c_places, d_places = _places(v, d_at, c), _places(v, d_at, d)
    left, right = np.empty((blocks, rows, depth), np.int8), np.empty((blocks, depth, columns), np.int8)
    out = np.empty((blocks, rows, columns), np.int32)
    for w in range(v.shape[1]):
        _fields(flat, w, a_places, a_at, 8, left.ravel())
        _fields(flat, w, b_places, b_at, 8, right.ravel())
        _whole(flat, w, c_places, c >= 0, np.uint32(constant), out.ravel().view(np.uint32))
        for block in range(blocks):
            for i in range(rows):
                for k in range(depth):
                    x = np.int32(left[block, i, k])
                    for j in range(columns):
                        out[block, i, j] += np.int32(x * np.int32(right[block, k, j]))
        _write(flat, w, d_places, out.ravel().view(np.uint32))


_I = types.int64
_AT = types.int32[:, ::1]
_COMMON = (types.uint32[:, :, :, ::1], types.UniTuple(_I, 4), types.UniTuple(_I, 4), _AT, _AT, _AT, types.uint64)
_FORM = types.UniTuple(_I, len(Form._fields))
_SIGNATURES: dict[Any, tuple[Any, ...]] = {
    fused_sum: (*_COMMON, _FORM, _FORM, _I, _I, types.int32[:, ::1], types.int32[:, ::1]),
    chain_f32: _COMMON,
    chain_f64: (*_COMMON, _I),
    wrapping_i8: _COMMON,
}


def prepare() -> None:
    """Compile the functions above, or load them; a process that multiplies no matrices skips this."""
    compilation.compile_now(_SIGNATURES)
