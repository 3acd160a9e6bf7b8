"""Packed vector ALU (VOP3P): one function, called for each 16-bit half, or for each 32-bit register of a pair.

Source: AMD "CDNA3 ISA", chapter VOP3P. ``build`` handles op_sel, op_sel_hi, neg_lo and neg_hi.
"""

from __future__ import annotations

import numpy as np

from harness.emulator.native.fused import fma, narrow_once
from harness.emulator.operations.floating import maximum, minimum
from harness.emulator.operations.integer import RANGES, saturating
from harness.emulator.operations.table import UPWARD, Shift, moves, vector

for _type in ("u16", "i16"):
    _two = f"{_type} = {_type} {_type}"
    for _name, _function in (("add", np.add), ("sub", np.subtract)):
        vector(
            f"v_pk_{_name}_{_type}",
            _two,
            packed=True,
            saturated=saturating(_function, *RANGES[_type]),
            undefined=UPWARD,
        )(_function)
    vector(f"v_pk_min_{_type}", _two, packed=True)(np.minimum)
    vector(f"v_pk_max_{_type}", _two, packed=True)(np.maximum)
    vector(f"v_pk_mad_{_type}", f"{_type} = {_type} {_type} {_type}", packed=True, saturated=saturating(
        lambda a, b, c: a * b + c, *RANGES[_type]
    ), undefined=UPWARD)(lambda a, b, c: a * b + c)  # fmt: skip
vector("v_pk_mul_lo_u16", "u16 = u16 u16", packed=True, undefined=UPWARD)(np.multiply)
vector("v_pk_lshlrev_b16", "u16 = u16 u16", packed=True, undefined=moves(0))(Shift(np.left_shift))
vector("v_pk_lshrrev_b16", "u16 = u16 u16", packed=True, undefined=moves(0))(Shift(np.right_shift))
vector("v_pk_ashrrev_i16", "i16 = u16 i16", packed=True, undefined=moves(0))(Shift(np.right_shift))

for _type in ("f16", "f32"):
    vector(f"v_pk_add_{_type}", f"{_type} = {_type} {_type}", packed=True, rounds="result")(np.add)
    vector(f"v_pk_mul_{_type}", f"{_type} = {_type} {_type}", packed=True, rounds="result")(np.multiply)
    vector(f"v_pk_fma_{_type}", f"{_type} = {_type} {_type} {_type}", packed=True, rounds="result")(fma)
vector("v_pk_fmac_f16", "f16 = f16 f16 @f16", packed=True, rounds="result")(fma)
vector("v_pk_min_f16", "f16 = f16 f16", packed=True)(minimum)
vector("v_pk_max_f16", "f16 = f16 f16", packed=True)(maximum)


@vector("v_fma_mix_f32", "f32 = f32 f32 f32", mixed=True, rounds="steps")
def fma_mix(a, b, c):
    return fma(a, b, c)


@vector("v_fma_mixlo_f16 v_fma_mixhi_f16", "f16 = f32 f32 f32", mixed=True, rounds="steps")
def fma_mix_f16(a, b, c):
    """v_fma_mix*_f16: one rounding, to float16; the float64 product is exact, and the sum is rounded to odd first."""
    return narrow_once(a, b, c)
