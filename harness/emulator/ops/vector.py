"""Vector ALU: one value per lane, arrays of shape [W, 64].

Source: AMD "CDNA3 ISA", chapters VOP1, VOP2, VOP3, VOPC.
"""

from __future__ import annotations

import numpy as np

from harness.emulator.ops.table import vector

_U64 = np.uint64

vector("v_mov_b32", "u32 = u32")(np.positive)
vector("v_mov_b64", "u64 = u64")(np.positive)
vector("v_not_b32", "u32 = u32")(np.invert)
vector("v_and_b32", "u32 = u32 u32")(np.bitwise_and)
vector("v_or_b32", "u32 = u32 u32")(np.bitwise_or)
vector("v_xor_b32", "u32 = u32 u32")(np.bitwise_xor)
vector("v_add_u32", "u32 = u32 u32")(np.add)
vector("v_sub_u32", "u32 = u32 u32")(np.subtract)
vector("v_subrev_u32", "u32 = u32 u32")(lambda a, b: b - a)
vector("v_lshlrev_b32", "u32 = u32 u32")(lambda a, b: b << (a & np.uint32(31)))
vector("v_lshrrev_b32", "u32 = u32 u32")(lambda a, b: b >> (a & np.uint32(31)))
vector("v_ashrrev_i32", "i32 = i32 i32")(lambda a, b: b >> (a & np.int32(31)))
vector("v_lshlrev_b64", "u64 = u32 u64")(lambda a, b: b << (a & np.uint32(63)).astype(_U64))
vector("v_lshrrev_b64", "u64 = u32 u64")(lambda a, b: b >> (a & np.uint32(63)).astype(_U64))
vector("v_ashrrev_i64", "i64 = u32 i64")(lambda a, b: b >> (a & np.uint32(63)).astype(np.int64))
vector("v_and_or_b32", "u32 = u32 u32 u32")(lambda a, b, c: a & b | c)
vector("v_or3_b32", "u32 = u32 u32 u32")(lambda a, b, c: a | b | c)
vector("v_lshl_or_b32", "u32 = u32 u32 u32")(lambda a, b, c: a << (b & np.uint32(31)) | c)
vector("v_lshl_add_u32", "u32 = u32 u32 u32")(lambda a, b, c: (a << (b & np.uint32(31))) + c)
vector("v_add_lshl_u32", "u32 = u32 u32 u32")(lambda a, b, c: (a + b) << (c & np.uint32(31)))
vector("v_lshl_add_u64", "u64 = u64 u32 u64")(lambda a, b, c: (a << (b & np.uint32(7)).astype(_U64)) + c)
vector("v_add3_u32", "u32 = u32 u32 u32")(lambda a, b, c: a + b + c)
vector("v_cndmask_b32", "u32 = u32 u32 mask")(lambda a, b, mask: np.where(mask, b, a))


@vector("v_add_co_u32", "u32 mask = u32 u32")
def add_co(a, b):
    result = a + b
    return result, result < a


@vector("v_addc_co_u32", "u32 mask = u32 u32 mask")
def addc_co(a, b, carry):
    wide = a.astype(_U64) + b + carry
    return wide.astype(np.uint32), wide >> _U64(32) != 0


@vector("v_sub_co_u32", "u32 mask = u32 u32")
def sub_co(a, b):
    return a - b, b > a


@vector("v_subrev_co_u32", "u32 mask = u32 u32")
def subrev_co(a, b):
    return b - a, a > b


@vector("v_subb_co_u32", "u32 mask = u32 u32 mask")
def subb_co(a, b, borrow):
    taken = b.astype(_U64) + borrow
    return (a - taken).astype(np.uint32), taken > a


@vector("v_subbrev_co_u32", "u32 mask = u32 u32 mask")
def subbrev_co(a, b, borrow):
    return subb_co(b, a, borrow)


for _name, _compare in (
    ("eq", np.equal), ("ne", np.not_equal), ("gt", np.greater),
    ("ge", np.greater_equal), ("lt", np.less), ("le", np.less_equal),
):  # fmt: skip
    for _type in ("u16", "i16", "u32", "i32", "u64", "i64"):
        vector(f"v_cmp_{_name}_{_type}", f"mask = {_type} {_type}")(_compare)
