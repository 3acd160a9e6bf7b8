"""Vector ALU, conversions between integers and floats, and between float formats. Arrays of shape [W, 64].

Source: AMD "CDNA3 ISA", chapter VOP1 and the pack instructions of VOP2 and VOP3. Float to integer truncates, limits to
the integer's range and turns NaN into 0. Integer to float and float to a narrower float round to nearest even.
"""

from __future__ import annotations

import numpy as np

from harness.emulator.operations.table import HALVES, byte, moves, vector

_F16, _F32, _F64 = np.float16, np.float32, np.float64


def _to(dtype):
    return lambda a: a.astype(dtype)


def to_integer(a, dtype, rounding=np.trunc):
    """Return ``a`` rounded by ``rounding`` and limited to the range of ``dtype``; NaN gives 0."""
    limits = np.iinfo(dtype)
    # float64 holds every 32-bit integer exactly, so the limits themselves are not rounded.
    wide = rounding(a.astype(_F64))
    return np.where(np.isnan(wide), 0.0, np.clip(wide, limits.min, limits.max)).astype(np.int64).astype(dtype)


for _source in ("u32", "i32"):
    vector(f"v_cvt_f32_{_source}", f"f32 = {_source}", rounds="result")(_to(_F32))
    vector(f"v_cvt_f64_{_source}", f"f64 = {_source}")(_to(_F64))
vector("v_cvt_f16_u16", "f16 = u16", rounds="result")(_to(_F16))
vector("v_cvt_f16_i16", "f16 = i16", rounds="result")(_to(_F16))
vector("v_cvt_f16_f32", "f16 = f32", rounds="result")(_to(_F16))
vector("v_cvt_f32_f16", "f32 = f16")(_to(_F32))
vector("v_cvt_f64_f32", "f64 = f32")(_to(_F64))
vector("v_cvt_f32_f64", "f32 = f64", rounds="result")(_to(_F32))
for _type in ("f32", "f64"):
    vector(f"v_cvt_u32_{_type}", f"u32 = {_type}")(lambda a: to_integer(a, np.uint32))
    vector(f"v_cvt_i32_{_type}", f"i32 = {_type}")(lambda a: to_integer(a, np.int32))
vector("v_cvt_u16_f16", "u16 = f16")(lambda a: to_integer(a, np.uint16))
vector("v_cvt_i16_f16", "i16 = f16")(lambda a: to_integer(a, np.int16))
vector("v_cvt_rpi_i32_f32", "i32 = f32")(lambda a: to_integer(a, np.int32, lambda x: np.floor(x + 0.5)))
vector("v_cvt_flr_i32_f32", "i32 = f32")(lambda a: to_integer(a, np.int32, np.floor))


def _byte(number: int):
    shift = np.uint32(8 * number)
    return lambda a: (a >> shift & np.uint32(0xFF)).astype(_F32)


for _i in range(4):
    vector(f"v_cvt_f32_ubyte{_i}", "f32 = u32", undefined=byte(_i))(_byte(_i))


# -- two values into one register --------------------------------------------------------------------------------------


def _pack(low, high):
    """Combine two arrays of 16-bit values as the halves of one register."""
    low, high = (x.view(np.uint16).astype(np.uint32) for x in (low, high))
    return low | high << np.uint32(16)


def toward_zero_f16(a):
    """Convert float32 to float16, rounded toward zero: a finite value never becomes infinite."""
    with np.errstate(over="ignore"):
        near = a.astype(_F16)
    too_far = np.abs(near.astype(_F32)) > np.abs(a)
    return np.where(too_far, np.nextafter(near, _F16(0)), near)


vector("v_cvt_pkrtz_f16_f32", "u32 = f32 f32", undefined=HALVES)(
    lambda a, b: _pack(toward_zero_f16(a), toward_zero_f16(b))
)
vector("v_pack_b32_f16", "u32 = u16 u16", undefined=moves(), constants="f16 f16")(_pack)
vector("v_cvt_pk_u16_u32", "u32 = u32 u32", undefined=HALVES)(
    lambda a, b: _pack(*(np.minimum(x, 0xFFFF).astype(np.uint16) for x in (a, b)))
)
vector("v_cvt_pk_i16_i32", "u32 = i32 i32", undefined=HALVES)(
    lambda a, b: _pack(*(np.clip(x, -0x8000, 0x7FFF).astype(np.int16) for x in (a, b)))
)
