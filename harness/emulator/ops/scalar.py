"""Scalar ALU: one value per wavefront, arrays of shape [W].

Source: AMD "CDNA3 ISA", chapters SOP1, SOP2, SOPC, SOPK. SCC is the carry, the borrow, "result is not zero", or a comparison's outcome.
"""

from __future__ import annotations

import numpy as np

from harness.emulator.ops.table import scalar

_U64 = np.uint64


def _nonzero(function):
    """The function's result and SCC = result is not zero."""

    def with_scc(*sources):
        result = function(*sources)
        return result, result != 0

    return with_scc


scalar("s_mov_b32", "u32 = u32")(lambda a: a)
scalar("s_mov_b64", "u64 = u64")(lambda a: a)
scalar("s_movk_i32", "i32 = imm")(lambda a: a)


@scalar("s_add_u32", "u32 scc = u32 u32")
def add_u32(a, b):
    result = a + b
    return result, result < a


@scalar("s_addc_u32", "u32 scc = u32 u32 scc")
def addc_u32(a, b, carry):
    wide = a.astype(_U64) + b.astype(_U64) + carry.astype(_U64)
    return wide.astype(np.uint32), wide >> _U64(32) != 0


@scalar("s_sub_u32", "u32 scc = u32 u32")
def sub_u32(a, b):
    return a - b, b > a


@scalar("s_subb_u32", "u32 scc = u32 u32 scc")
def subb_u32(a, b, borrow):
    taken = b.astype(_U64) + borrow.astype(_U64)
    return (a.astype(_U64) - taken).astype(np.uint32), taken > a.astype(_U64)


@scalar("s_add_i32", "i32 scc = i32 i32")
def add_i32(a, b):
    result = a + b
    return result, ((a ^ result) & (b ^ result)) < 0


@scalar("s_sub_i32", "i32 scc = i32 i32")
def sub_i32(a, b):
    result = a - b
    return result, ((a ^ b) & (a ^ result)) < 0


@scalar("s_and_saveexec_b64", "u64 exec scc = u64 exec")
def and_saveexec(mask, exec_):
    new = mask & exec_
    return exec_.copy(), new, new != 0


@scalar("s_andn2_saveexec_b64", "u64 exec scc = u64 exec")
def andn2_saveexec(mask, exec_):
    new = mask & ~exec_
    return exec_.copy(), new, new != 0


@scalar("s_or_saveexec_b64", "u64 exec scc = u64 exec")
def or_saveexec(mask, exec_):
    new = mask | exec_
    return exec_.copy(), new, new != 0


@scalar("s_xor_saveexec_b64", "u64 exec scc = u64 exec")
def xor_saveexec(mask, exec_):
    new = mask ^ exec_
    return exec_.copy(), new, new != 0


for _suffix, _kind in (("b32", "u32"), ("b64", "u64")):
    _two = f"{_kind} scc = {_kind} {_kind}"
    scalar(f"s_and_{_suffix}", _two)(_nonzero(lambda a, b: a & b))
    scalar(f"s_or_{_suffix}", _two)(_nonzero(lambda a, b: a | b))
    scalar(f"s_xor_{_suffix}", _two)(_nonzero(lambda a, b: a ^ b))
    scalar(f"s_andn2_{_suffix}", _two)(_nonzero(lambda a, b: a & ~b))
    scalar(f"s_orn2_{_suffix}", _two)(_nonzero(lambda a, b: a | ~b))
    scalar(f"s_nand_{_suffix}", _two)(_nonzero(lambda a, b: ~(a & b)))
    scalar(f"s_nor_{_suffix}", _two)(_nonzero(lambda a, b: ~(a | b)))
    scalar(f"s_xnor_{_suffix}", _two)(_nonzero(lambda a, b: ~(a ^ b)))
    scalar(f"s_not_{_suffix}", f"{_kind} scc = {_kind}")(_nonzero(lambda a: ~a))
    scalar(f"s_cselect_{_suffix}", f"{_kind} = {_kind} {_kind} scc")(lambda a, b, scc: np.where(scc, a, b))

# A shift uses the low 5 or 6 bits of its count: a shift by 32 of a 32-bit value is a shift by 0.
scalar("s_lshl_b32", "u32 scc = u32 u32")(_nonzero(lambda a, b: a << (b & np.uint32(31))))
scalar("s_lshr_b32", "u32 scc = u32 u32")(_nonzero(lambda a, b: a >> (b & np.uint32(31))))
scalar("s_ashr_i32", "i32 scc = i32 i32")(_nonzero(lambda a, b: a >> (b & np.int32(31))))
scalar("s_lshl_b64", "u64 scc = u64 u32")(_nonzero(lambda a, b: a << (b & np.uint32(63)).astype(_U64)))
scalar("s_lshr_b64", "u64 scc = u64 u32")(_nonzero(lambda a, b: a >> (b & np.uint32(63)).astype(_U64)))
scalar("s_ashr_i64", "i64 scc = i64 u32")(_nonzero(lambda a, b: a >> (b & np.uint32(63)).astype(np.int64)))

scalar("s_mul_i32", "i32 = i32 i32")(np.multiply)
scalar("s_mul_hi_u32", "u32 = u32 u32")(lambda a, b: (a.astype(_U64) * b.astype(_U64) >> _U64(32)).astype(np.uint32))
scalar("s_mul_hi_i32", "i32 = i32 i32")(lambda a, b: (a.astype(np.int64) * b.astype(np.int64) >> 32).astype(np.int32))
scalar("s_min_i32", "i32 scc = i32 i32")(lambda a, b: (np.minimum(a, b), a < b))
scalar("s_min_u32", "u32 scc = u32 u32")(lambda a, b: (np.minimum(a, b), a < b))
scalar("s_max_i32", "i32 scc = i32 i32")(lambda a, b: (np.maximum(a, b), a > b))
scalar("s_max_u32", "u32 scc = u32 u32")(lambda a, b: (np.maximum(a, b), a > b))
scalar("s_abs_i32", "i32 scc = i32")(_nonzero(np.abs))
scalar("s_sext_i32_i8", "i32 = i32")(lambda a: a << 24 >> 24)
scalar("s_sext_i32_i16", "i32 = i32")(lambda a: a << 16 >> 16)

for _name, _compare in (
    ("eq", np.equal), ("lg", np.not_equal), ("gt", np.greater),
    ("ge", np.greater_equal), ("lt", np.less), ("le", np.less_equal),
):  # fmt: skip
    scalar(f"s_cmp_{_name}_u32", "scc = u32 u32")(_compare)
    scalar(f"s_cmp_{_name}_i32", "scc = i32 i32")(_compare)
scalar("s_cmp_eq_u64", "scc = u64 u64")(np.equal)
scalar("s_cmp_lg_u64", "scc = u64 u64")(np.not_equal)
