"""Scalar ALU: one value per wavefront, arrays of shape [W].

Source: AMD "CDNA3 ISA", chapters SOP1, SOP2, SOPC, SOPK. SCC is the carry, the borrow, "result is not zero", or a
comparison's outcome.
"""

from __future__ import annotations

import numpy as np

from harness.emulator.operations.table import BITWISE, EQUALITY, UPWARD, moves, scalar, upward
from harness.emulator.operations.vector import bit_count, first_one, leading_signs, leading_zeros, reverse

_U64 = np.uint64


def _nonzero(function):
    """Return the function with a second result: SCC = result is not zero."""

    def with_scc(*sources):
        result = function(*sources)
        return result, result != 0

    return with_scc


scalar("s_mov_b32", "u32 = u32", undefined=moves())(lambda a: a)
scalar("s_mov_b64", "u64 = u64", undefined=moves())(lambda a: a)
scalar("s_movk_i32", "i32 = imm", undefined=moves())(lambda a: a)


@scalar("s_add_u32", "u32 scc = u32 u32", undefined=UPWARD)
def add_u32(a, b):
    result = a + b
    return result, result < a


@scalar("s_addc_u32", "u32 scc = u32 u32 scc", undefined=UPWARD)
def addc_u32(a, b, carry):
    wide = a.astype(_U64) + b.astype(_U64) + carry.astype(_U64)
    return wide.astype(np.uint32), wide >> _U64(32) != 0


@scalar("s_sub_u32", "u32 scc = u32 u32", undefined=UPWARD)
def sub_u32(a, b):
    return a - b, b > a


@scalar("s_subb_u32", "u32 scc = u32 u32 scc", undefined=UPWARD)
def subb_u32(a, b, borrow):
    taken = b.astype(_U64) + borrow.astype(_U64)
    return (a.astype(_U64) - taken).astype(np.uint32), taken > a.astype(_U64)


@scalar("s_add_i32", "i32 scc = i32 i32", undefined=UPWARD)
def add_i32(a, b):
    result = a + b
    return result, ((a ^ result) & (b ^ result)) < 0


@scalar("s_sub_i32", "i32 scc = i32 i32", undefined=UPWARD)
def sub_i32(a, b):
    result = a - b
    return result, ((a ^ b) & (a ^ result)) < 0


def _saveexec(combine):
    """Return s_*_saveexec: EXEC = combine(source, EXEC); the result is the old EXEC, SCC = EXEC is not zero."""

    def function(mask, exec_):
        new = combine(mask, exec_)
        return exec_.copy(), new, new != 0

    return function


def _writeexec(combine):
    """Return s_*_wrexec: EXEC = combine(source, EXEC), which is the result too."""

    def function(mask, exec_):
        new = combine(mask, exec_)
        return new, new, new != 0

    return function


_COMBINE = {
    "and": lambda a, e: a & e,
    "or": lambda a, e: a | e,
    "xor": lambda a, e: a ^ e,
    "nand": lambda a, e: ~(a & e),
    "nor": lambda a, e: ~(a | e),
    "xnor": lambda a, e: ~(a ^ e),
    "andn1": lambda a, e: ~a & e,
    "andn2": lambda a, e: a & ~e,
    "orn1": lambda a, e: ~a | e,
    "orn2": lambda a, e: a | ~e,
}
for _name, _combine in _COMBINE.items():
    scalar(f"s_{_name}_saveexec_b64", "u64 exec scc = u64 exec", undefined=BITWISE)(_saveexec(_combine))
for _name in ("andn1", "andn2"):
    scalar(f"s_{_name}_wrexec_b64", "u64 exec scc = u64 exec")(_writeexec(_COMBINE[_name]))


for _suffix, _kind in (("b32", "u32"), ("b64", "u64")):
    _two = f"{_kind} scc = {_kind} {_kind}"
    scalar(f"s_and_{_suffix}", _two, undefined=BITWISE)(_nonzero(lambda a, b: a & b))
    scalar(f"s_or_{_suffix}", _two, undefined=BITWISE)(_nonzero(lambda a, b: a | b))
    scalar(f"s_xor_{_suffix}", _two, undefined=BITWISE)(_nonzero(lambda a, b: a ^ b))
    scalar(f"s_andn2_{_suffix}", _two, undefined=BITWISE)(_nonzero(lambda a, b: a & ~b))
    scalar(f"s_orn2_{_suffix}", _two, undefined=BITWISE)(_nonzero(lambda a, b: a | ~b))
    scalar(f"s_nand_{_suffix}", _two, undefined=BITWISE)(_nonzero(lambda a, b: ~(a & b)))
    scalar(f"s_nor_{_suffix}", _two, undefined=BITWISE)(_nonzero(lambda a, b: ~(a | b)))
    scalar(f"s_xnor_{_suffix}", _two, undefined=BITWISE)(_nonzero(lambda a, b: ~(a ^ b)))
    scalar(f"s_not_{_suffix}", f"{_kind} scc = {_kind}", undefined=BITWISE)(_nonzero(lambda a: ~a))
    scalar(f"s_cselect_{_suffix}", f"{_kind} = {_kind} {_kind} scc", undefined=moves(2))(
        lambda a, b, scc: np.where(scc, a, b)
    )
    scalar(f"s_cmov_{_suffix}", f"{_kind} = {_kind} @{_kind} scc", undefined=moves(2))(
        lambda a, old, scc: np.where(scc, a, old)
    )
    scalar(f"s_brev_{_suffix}", f"{_kind} = {_kind}", undefined=moves())(reverse)
    scalar(f"s_bcnt0_i32_{_suffix}", f"i32 scc = {_kind}")(_nonzero(lambda a: bit_count(~a).astype(np.int32)))
    scalar(f"s_bcnt1_i32_{_suffix}", f"i32 scc = {_kind}")(_nonzero(lambda a: bit_count(a).astype(np.int32)))
    scalar(f"s_ff0_i32_{_suffix}", f"i32 = {_kind}")(lambda a: first_one(~a))
    scalar(f"s_ff1_i32_{_suffix}", f"i32 = {_kind}")(first_one)
    scalar(f"s_flbit_i32_{_suffix}", f"i32 = {_kind}")(leading_zeros)


def _quads(a):
    """Return the OR of each group of four bits, in its lowest bit."""
    word = a.dtype.type
    pairs = a | a >> word(1)
    return (pairs | pairs >> word(2)) & word(0x1111111111111111 & (1 << 8 * a.dtype.itemsize) - 1)


def _gather_quads(a):
    """Return a value whose bit i is the lowest bit of the i-th group of four."""
    word, result = a.dtype.type, _quads(a)
    for shift, mask in ((3, 0x0303030303030303), (6, 0x000F000F000F000F), (12, 0x000000FF000000FF), (24, 0xFFFF)):
        if shift < 4 * a.dtype.itemsize:
            result = (result | result >> word(shift)) & word(mask & (1 << 8 * a.dtype.itemsize) - 1)
    return result


def _each_bit_twice(a):
    result = a.astype(_U64)
    for shift, mask in (
        (16, 0x0000FFFF0000FFFF), (8, 0x00FF00FF00FF00FF), (4, 0x0F0F0F0F0F0F0F0F), (2, 0x3333333333333333),
        (1, 0x5555555555555555),
    ):  # fmt: skip
        result = (result | result << _U64(shift)) & _U64(mask)
    return result | result << _U64(1)


for _suffix, _kind in (("b32", "u32"), ("b64", "u64")):
    scalar(f"s_wqm_{_suffix}", f"{_kind} scc = {_kind}")(_nonzero(lambda a: _quads(a) * a.dtype.type(15)))
    scalar(f"s_quadmask_{_suffix}", f"{_kind} scc = {_kind}")(_nonzero(_gather_quads))
scalar("s_bitreplicate_b64_b32", "u64 = u32")(_each_bit_twice)
scalar("s_flbit_i32", "i32 = i32")(leading_signs)
scalar("s_flbit_i32_i64", "i32 = i64")(leading_signs)

# A shift uses the low 5 or 6 bits of its count: a shift by 32 of a 32-bit value is a shift by 0.
scalar("s_lshl_b32", "u32 scc = u32 u32", undefined=moves(1))(_nonzero(lambda a, b: a << (b & np.uint32(31))))
scalar("s_lshr_b32", "u32 scc = u32 u32", undefined=moves(1))(_nonzero(lambda a, b: a >> (b & np.uint32(31))))
scalar("s_ashr_i32", "i32 scc = i32 i32", undefined=moves(1))(_nonzero(lambda a, b: a >> (b & np.int32(31))))
scalar("s_lshl_b64", "u64 scc = u64 u32", undefined=moves(1))(
    _nonzero(lambda a, b: a << (b & np.uint32(63)).astype(_U64))
)
scalar("s_lshr_b64", "u64 scc = u64 u32", undefined=moves(1))(
    _nonzero(lambda a, b: a >> (b & np.uint32(63)).astype(_U64))
)
scalar("s_ashr_i64", "i64 scc = i64 u32", undefined=moves(1))(
    _nonzero(lambda a, b: a >> (b & np.uint32(63)).astype(np.int64))
)

scalar("s_mul_i32", "i32 = i32 i32", undefined=UPWARD)(np.multiply)
scalar("s_mul_hi_u32", "u32 = u32 u32")(lambda a, b: (a.astype(_U64) * b.astype(_U64) >> _U64(32)).astype(np.uint32))
scalar("s_mul_hi_i32", "i32 = i32 i32")(lambda a, b: (a.astype(np.int64) * b.astype(np.int64) >> 32).astype(np.int32))
scalar("s_min_i32", "i32 scc = i32 i32")(lambda a, b: (np.minimum(a, b), a < b))
scalar("s_min_u32", "u32 scc = u32 u32")(lambda a, b: (np.minimum(a, b), a < b))
scalar("s_max_i32", "i32 scc = i32 i32")(lambda a, b: (np.maximum(a, b), a >= b))
scalar("s_max_u32", "u32 scc = u32 u32")(lambda a, b: (np.maximum(a, b), a >= b))
scalar("s_abs_i32", "i32 scc = i32")(_nonzero(np.abs))
scalar("s_sext_i32_i8", "i32 = i32", undefined=moves())(lambda a: a << 24 >> 24)
scalar("s_sext_i32_i16", "i32 = i32", undefined=moves())(lambda a: a << 16 >> 16)

scalar("s_absdiff_i32", "i32 scc = i32 i32")(_nonzero(lambda a, b: np.abs(a - b)))


def _shift_add(shift):
    """Return s_lshlN_add_u32: SCC is the carry out of 32 bits, including the shifted-out bits."""

    def function(a, b):
        wide = (a.astype(_U64) << _U64(shift)) + b
        return wide.astype(np.uint32), wide >> _U64(32) != 0

    return function


for _n in range(1, 5):
    scalar(f"s_lshl{_n}_add_u32", "u32 scc = u32 u32", undefined=upward(first_shift=_n))(_shift_add(_n))
scalar("s_pack_ll_b32_b16", "u32 = u32 u32", undefined=moves())(lambda a, b: a & np.uint32(0xFFFF) | b << np.uint32(16))
scalar("s_pack_lh_b32_b16", "u32 = u32 u32", undefined=moves())(
    lambda a, b: a & np.uint32(0xFFFF) | b & np.uint32(0xFFFF0000)
)
scalar("s_pack_hh_b32_b16", "u32 = u32 u32", undefined=moves())(
    lambda a, b: a >> np.uint32(16) | b & np.uint32(0xFFFF0000)
)


# -- bit fields: the offset in the low bits of the second source, the width in bits 16 to 22 ---------------------------


def _field(dtype, signed: bool):
    bits = 8 * np.dtype(dtype).itemsize
    unsigned = np.dtype(f"u{bits // 8}").type

    def function(a, where):
        offset = (where & np.uint32(bits - 1)).astype(dtype)
        width = np.minimum(where >> np.uint32(16) & np.uint32(127), np.uint32(bits))
        shifted = a >> offset
        if not signed:
            mask = np.where(width == bits, ~unsigned(0), (unsigned(1) << width.astype(unsigned)) - unsigned(1))
            return shifted & mask
        unused = (np.uint32(bits) - width).astype(dtype)
        unused = np.minimum(unused, dtype(bits - 1))
        return np.where(width == 0, dtype(0), shifted << unused >> unused)

    return function


scalar("s_bfe_u32", "u32 scc = u32 u32", undefined=moves(1))(_nonzero(_field(np.uint32, False)))
scalar("s_bfe_i32", "i32 scc = i32 u32", undefined=moves(1))(_nonzero(_field(np.int32, True)))
scalar("s_bfe_u64", "u64 scc = u64 u32", undefined=moves(1))(_nonzero(_field(np.uint64, False)))
scalar("s_bfe_i64", "i64 scc = i64 u32", undefined=moves(1))(_nonzero(_field(np.int64, True)))
for _suffix, _kind, _word in (("b32", "u32", np.uint32), ("b64", "u64", np.uint64)):
    _modulo = np.uint32(8 * _word(0).itemsize - 1)
    scalar(f"s_bfm_{_suffix}", f"{_kind} = u32 u32")(
        lambda width, offset, m=_modulo, w=_word: ((w(1) << (width & m).astype(w)) - w(1)) << (offset & m).astype(w)
    )
    scalar(f"s_bitset0_{_suffix}", f"{_kind} = u32 @{_kind}")(
        lambda bit, old, m=_modulo, w=_word: old & ~(w(1) << (bit & m).astype(w))
    )
    scalar(f"s_bitset1_{_suffix}", f"{_kind} = u32 @{_kind}")(
        lambda bit, old, m=_modulo, w=_word: old | w(1) << (bit & m).astype(w)
    )
    scalar(f"s_bitcmp0_{_suffix}", f"scc = {_kind} u32", undefined=moves(1))(
        lambda a, bit, m=_modulo, w=_word: a >> (bit & m).astype(w) & w(1) == 0
    )
    scalar(f"s_bitcmp1_{_suffix}", f"scc = {_kind} u32", undefined=moves(1))(
        lambda a, bit, m=_modulo, w=_word: a >> (bit & m).astype(w) & w(1) == 1
    )


# -- comparisons, and 16-bit immediates --------------------------------------------------------------------------------

for _name, _compare in (
    ("eq", np.equal), ("lg", np.not_equal), ("gt", np.greater),
    ("ge", np.greater_equal), ("lt", np.less), ("le", np.less_equal),
):  # fmt: skip
    scalar(f"s_cmp_{_name}_u32", "scc = u32 u32", undefined=EQUALITY if _name in ("eq", "lg") else None)(_compare)
    scalar(f"s_cmp_{_name}_i32", "scc = i32 i32", undefined=EQUALITY if _name in ("eq", "lg") else None)(_compare)
    scalar(f"s_cmpk_{_name}_i32", "scc = i32 imm", undefined=EQUALITY if _name in ("eq", "lg") else None)(_compare)
    scalar(f"s_cmpk_{_name}_u32", "scc = u32 uimm", undefined=EQUALITY if _name in ("eq", "lg") else None)(_compare)
scalar("s_cmp_eq_u64", "scc = u64 u64", undefined=EQUALITY)(np.equal)
scalar("s_cmp_lg_u64", "scc = u64 u64", undefined=EQUALITY)(np.not_equal)
scalar("s_cmovk_i32", "i32 = imm @i32 scc", undefined=moves(2))(lambda a, old, scc: np.where(scc, a, old))
scalar("s_mulk_i32", "i32 = imm @i32", undefined=UPWARD)(lambda a, old: old * a)


@scalar("s_addk_i32", "i32 scc = imm @i32", undefined=UPWARD)
def addk(a, old):
    return add_i32(old, a)
