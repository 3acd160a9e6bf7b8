"""Sums of absolute differences, bytes and normalised integers: the remaining media instructions.

Source: CDNA3 ISA, VOP1, VOP2 and VOP3. LLVM selects ``v_sad_u32`` by itself, and the others for intrinsics. Conversions
to a byte or a normalised integer round to nearest even and limit to the range; NaN gives 0.
"""

from __future__ import annotations

import numpy as np

from harness.emulator.operations.convert import to_integer
from harness.emulator.operations.table import instruction, vector
from harness.emulator.wavefront.operands import result_key
from harness.emulator.wavefront.state import VECTOR, key

_U8, _U16, _U32, _U64 = np.uint8, np.uint16, np.uint32, np.uint64


def _fields(words, bits: int):
    """Return the fields of a register, the lowest first."""
    return [words >> _U32(shift) & _U32((1 << bits) - 1) for shift in range(0, 32, bits)]


def _difference(a, b):
    return np.maximum(a, b) - np.minimum(a, b)


def _sad(bits: int, masked: bool = False):
    """Return c plus the differences field by field; ``masked``: skip fields that are 0 in the second source."""

    def function(a, b, c):
        total = c
        for x, y in zip(_fields(a, bits), _fields(b, bits), strict=True):
            difference = _difference(x, y)
            total = total + (np.where(y == 0, _U32(0), difference) if masked else difference)
        return total

    return function


_sad_u8, _msad_u8 = _sad(8), _sad(8, masked=True)
vector("v_sad_u8", "u32 = u32 u32 u32")(_sad_u8)
vector("v_msad_u8", "u32 = u32 u32 u32")(_msad_u8)
vector("v_sad_u16", "u32 = u32 u32 u32")(_sad(16))
vector("v_sad_u32", "u32 = u32 u32 u32")(lambda a, b, c: _difference(a, b) + c)
vector("v_sad_hi_u8", "u32 = u32 u32 u32")(lambda a, b, c: (_sad_u8(a, b, _U32(0)) << _U32(16)) + c)


def _windows(a):
    """Return the four words that begin at the bytes 0 to 3 of a register pair."""
    return [(a >> _U64(8 * i)).astype(_U32) for i in range(4)]


def _four_sums(sad):
    """Return the sums for each window of ``a`` against ``b``, added to the 16-bit fields of ``c``."""

    def function(a, b, c):
        result = _U64(0)
        for i, window in enumerate(_windows(a)):
            total = sad(window, b, (c >> _U64(16 * i) & _U64(0xFFFF)).astype(_U32))
            result = result | (total & _U32(0xFFFF)).astype(_U64) << _U64(16 * i)
        return result

    return function


vector("v_qsad_pk_u16_u8", "u64 = u64 u32 u64")(_four_sums(_sad_u8))
vector("v_mqsad_pk_u16_u8", "u64 = u64 u32 u64")(_four_sums(_msad_u8))


@instruction("v_mqsad_u32_u8", klass="valu")
def mqsad(instruction, context):
    """v_mqsad_u32_u8: like ``v_mqsad_pk_u16_u8``, with sums in four registers."""
    target, a, b, c = (context.operand(text) for text in instruction.operands)
    sources = context.source(a, "u64"), context.source(b, "u32")
    addends, outs = ([key(VECTOR, o.register + i, "u32") for i in range(4)] for o in (c, target))
    result_key(target, "u32")

    def step(wf):
        view = wf.view
        first, second = (np.array(view[k]) for k in sources)
        sums = [_msad_u8(w, second, view[k]) for w, k in zip(_windows(first), addends, strict=True)]
        for k, total in zip(outs, sums, strict=True):
            np.copyto(view[k], total, where=wf.exec_mask)

    return step


@vector("v_lerp_u8", "u32 = u32 u32 u32")
def lerp(a, b, rounding):
    """v_lerp_u8: the average of each byte, rounded up where the third source's byte is odd."""
    result = _U32(0)
    for i, (x, y, r) in enumerate(zip(*(_fields(words, 8) for words in (a, b, rounding)), strict=True)):
        result = result | (x + y + (r & _U32(1)) >> _U32(1)) << _U32(8 * i)
    return result


@vector("v_sat_pk_u8_i16", "u16 = u32")
def sat_pk(a):
    low, high = ((a >> _U32(shift)).astype(_U16).view(np.int16) for shift in (0, 16))
    low, high = (np.minimum(np.maximum(x, np.int16(0)), np.int16(255)).view(_U16) for x in (low, high))
    return low | high << _U16(8)


def _byte(a):
    return to_integer(a, _U8, np.rint).astype(_U32)


def _with_byte(a, which, old):
    shift = (which & _U32(3)) << _U32(3)
    return old & ~(_U32(0xFF) << shift) | _byte(a) << shift


vector("v_cvt_pk_u8_f32", "u32 = f32 u32 u32")(_with_byte)
vector("v_cvt_pkaccum_u8_f32", "u32 = f32 u32 @u32")(_with_byte)


def _normalised(dtype):
    """Return the conversion of [-1, 1] or [0, 1] to the integer's range."""
    largest = np.iinfo(dtype).max

    def function(a):
        low = 0.0 if dtype is _U16 else -1.0
        limited = np.minimum(np.maximum(a.astype(np.float64), low), 1.0)
        return to_integer(limited * float(largest), dtype, np.rint).view(_U16)

    return function


for _type, _dtype in (("i16", np.int16), ("u16", np.uint16)):
    _norm = _normalised(_dtype)
    vector(f"v_cvt_norm_{_type}_f16", "u16 = f16")(_norm)
    for _source in ("f16", "f32"):
        vector(f"v_cvt_pknorm_{_type}_{_source}", f"u32 = {_source} {_source}")(
            lambda a, b, norm=_norm: norm(a).astype(_U32) | norm(b).astype(_U32) << _U32(16)
        )


@vector("v_cvt_off_f32_i4", "f32 = u32")
def offset(a):
    """v_cvt_off_f32_i4: a signed 4-bit integer in sixteenths."""
    signed = ((a & _U32(15)) ^ _U32(8)).astype(np.int32) - np.int32(8)
    return signed.astype(np.float32) * np.float32(1 / 16)
