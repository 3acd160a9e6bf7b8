"""Vector ALU, bits: moves, logic, shifts, bit fields, counts, selection. One value per lane, arrays of shape [W, 64].

Source: AMD "CDNA3 ISA", chapters VOP1, VOP2, VOP3. A shift uses the low 5 or 6 bits of its count: a shift by 32 of a
32-bit value is a shift by 0.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np

from harness.emulator.faults import UnimplementedInstruction
from harness.emulator.operations.table import BITWISE, UPWARD, Chain, Select, Shift, instruction, moves, vector
from harness.emulator.wavefront.state import LANES, VECTOR, key

_U32, _U64 = np.uint32, np.uint64

vector("v_mov_b32", "u32 = u32", undefined=moves())(np.positive)
vector("v_mov_b64", "u64 = u64", undefined=moves())(np.positive)
vector("v_accvgpr_read_b32 v_accvgpr_write_b32 v_accvgpr_mov_b32", "u32 = u32", undefined=moves())(np.positive)
vector("v_not_b32", "u32 = u32", undefined=BITWISE)(np.invert)
vector("v_and_b32", "u32 = u32 u32", undefined=BITWISE)(np.bitwise_and)
vector("v_or_b32", "u32 = u32 u32", undefined=BITWISE)(np.bitwise_or)
vector("v_xor_b32", "u32 = u32 u32", undefined=BITWISE)(np.bitwise_xor)
vector("v_xnor_b32", "u32 = u32 u32", undefined=BITWISE)(lambda a, b: ~(a ^ b))
vector("v_lshlrev_b32", "u32 = u32 u32", undefined=moves(0))(Shift(np.left_shift))
vector("v_lshrrev_b32", "u32 = u32 u32", undefined=moves(0))(Shift(np.right_shift))
vector("v_ashrrev_i32", "i32 = u32 i32", undefined=moves(0))(Shift(np.right_shift))
vector("v_lshlrev_b64", "u64 = u32 u64", undefined=moves(0))(Shift(np.left_shift))
vector("v_lshrrev_b64", "u64 = u32 u64", undefined=moves(0))(Shift(np.right_shift))
vector("v_ashrrev_i64", "i64 = u32 i64", undefined=moves(0))(Shift(np.right_shift))
vector("v_lshlrev_b16", "u16 = u16 u16", undefined=moves(0))(Shift(np.left_shift))
vector("v_lshrrev_b16", "u16 = u16 u16", undefined=moves(0))(Shift(np.right_shift))
vector("v_ashrrev_i16", "i16 = u16 i16", undefined=moves(0))(Shift(np.right_shift))
vector("v_and_or_b32", "u32 = u32 u32 u32", undefined=BITWISE)(Chain(np.bitwise_and, np.bitwise_or))
vector("v_or3_b32", "u32 = u32 u32 u32", undefined=BITWISE)(Chain(np.bitwise_or, np.bitwise_or))
vector("v_lshl_or_b32", "u32 = u32 u32 u32", undefined=moves(1))(Chain(np.left_shift, np.bitwise_or, count=1))
vector("v_lshl_add_u32", "u32 = u32 u32 u32", undefined=UPWARD)(Chain(np.left_shift, np.add, count=1))
vector("v_add_lshl_u32", "u32 = u32 u32 u32", undefined=UPWARD)(Chain(np.add, np.left_shift, count=2))
vector("v_lshl_add_u64", "u64 = u64 u32 u64", undefined=UPWARD)(Chain(np.left_shift, np.add, count=1, modulo=8))
vector("v_add3_u32", "u32 = u32 u32 u32", undefined=UPWARD)(Chain(np.add, np.add))
vector("v_xad_u32", "u32 = u32 u32 u32", undefined=UPWARD)(Chain(np.bitwise_xor, np.add))
vector("v_cndmask_b32", "u32 = u32 u32 mask")(Select())
vector("v_bfi_b32", "u32 = u32 u32 u32", undefined=BITWISE)(lambda a, b, c: a & b | ~a & c)


# -- bit fields --------------------------------------------------------------------------------------------------------


@vector("v_bfe_u32", "u32 = u32 u32 u32", undefined=moves(1, 2))
def bfe_u32(a, offset, width):
    return a >> (offset & _U32(31)) & ((_U32(1) << (width & _U32(31))) - _U32(1))


@vector("v_bfe_i32", "i32 = i32 u32 u32", undefined=moves(1, 2))
def bfe_i32(a, offset, width):
    """v_bfe_i32: the field, extended by its highest bit; 0 for a width of 0."""
    width = (width & _U32(31)).astype(np.int32)
    unused = np.int32(32) - width
    shifted = a >> (offset & _U32(31)).astype(np.int32)
    return np.where(width == 0, np.int32(0), shifted << (unused & np.int32(31)) >> (unused & np.int32(31)))


@vector("v_bfm_b32", "u32 = u32 u32")
def bfm(width, offset):
    return ((_U32(1) << (width & _U32(31))) - _U32(1)) << (offset & _U32(31))


@vector("v_alignbit_b32", "u32 = u32 u32 u32", undefined=moves(2))
def alignbit(high, low, count):
    joined = high.astype(_U64) << _U64(32) | low
    return (joined >> (count & _U32(31)).astype(_U64)).astype(_U32)


@vector("v_alignbyte_b32", "u32 = u32 u32 u32", undefined=moves(2))
def alignbyte(high, low, count):
    return alignbit(high, low, (count & _U32(3)) << _U32(3))


@vector("v_perm_b32", "u32 = u32 u32 u32", undefined=moves(2))
def perm(high, low, selector):
    """v_perm_b32: each byte of ``selector`` selects a byte of the result.

    0 to 3: a byte of ``low``, 4 to 7: of ``high``, 8 to 11: a byte's sign, 12: zero, more: 0xff.
    """
    if selector.size == 1 or (selector.shape[-1] == 1 and (selector == selector[0]).all()):
        return _perm_uniform(high, low, int(selector.reshape(-1)[0]))
    joined = high.astype(_U64) << _U64(32) | low
    result = np.zeros(np.broadcast_shapes(joined.shape, selector.shape), _U32)
    for i in range(4):
        pick = selector >> _U32(8 * i) & _U32(0xFF)
        byte = joined >> ((pick & _U32(7)) << _U32(3)).astype(_U64) & _U64(0xFF)
        # 8, 9, 10, 11: the signs of bytes 1, 3, 5, 7.
        sign = joined >> (((pick & _U32(3)) << _U32(4)) + _U32(15)).astype(_U64) & _U64(1)
        byte = np.where(
            pick < 8, byte, np.where(pick < 12, sign * _U64(0xFF), np.where(pick == 12, _U64(0), _U64(0xFF)))
        )
        result |= byte.astype(_U32) << _U32(8 * i)
    return result


def _perm_uniform(high, low, selector: int):
    """Compute ``perm`` with one selector for all lanes, as compilers use it: a few shifts and masks."""
    moves, constant, signs = _perm_plan(selector)
    result = _U32(constant)
    for from_high, shift, mask in moves:
        source = high if from_high else low
        part = source << _U32(shift) if shift > 0 else source >> _U32(-shift) if shift < 0 else source
        result = result | (part & _U32(mask))
    for from_high, bit, mask in signs:
        source = high if from_high else low
        result = result | (source >> _U32(bit) & _U32(1)) * _U32(mask)
    return result


@lru_cache(maxsize=1024)
def _perm_plan(selector: int):
    """Return moves (from the high source, left shift, mask in place), constant bits, and signs.

    A sign is (from the high source, bit, mask).
    """
    moves: dict[tuple[bool, int], int] = {}
    constant, signs = 0, []
    for i in range(4):
        pick = selector >> 8 * i & 0xFF
        field = 0xFF << 8 * i
        if pick < 8:
            move = pick >= 4, 8 * (i - pick % 4)
            moves[move] = moves.get(move, 0) | field
        elif pick < 12:
            byte = 2 * (pick - 8) + 1
            signs.append((byte >= 4, 8 * (byte % 4) + 7, field))
        elif pick > 12:
            constant |= field
    return [(*move, mask) for move, mask in moves.items()], constant, signs


# -- counting bits -----------------------------------------------------------------------------------------------------


def bit_count(words: np.ndarray) -> np.ndarray:
    """Return the number of set bits, in the words' own dtype."""
    if hasattr(np, "bitwise_count"):
        return np.bitwise_count(words).astype(words.dtype)
    octets = np.ascontiguousarray(words)[..., None].view(np.uint8)
    return np.unpackbits(octets, axis=-1).sum(axis=-1, dtype=words.dtype)


def bit_length(words: np.ndarray) -> np.ndarray:
    """Return the position of the highest set bit plus 1, 0 for 0, as int32; for uint32 or uint64."""
    if words.dtype.itemsize == 8:
        high = bit_length((words >> _U64(32)).astype(_U32))
        return np.where(high > 0, high + 32, bit_length(words.astype(_U32))).astype(np.int32)
    return np.frexp(words.astype(np.float64))[1].astype(np.int32)


def first_one(words: np.ndarray) -> np.ndarray:
    """Return the position of the lowest set bit, -1 for 0, as int32."""
    return bit_length(words & -words) - np.int32(1)


def leading_zeros(words: np.ndarray) -> np.ndarray:
    """Return the number of zeros above the highest set bit, -1 for 0, as int32."""
    length = bit_length(words)
    return np.where(length > 0, np.int32(8 * words.dtype.itemsize) - length, np.int32(-1)).astype(np.int32)


def leading_signs(words: np.ndarray) -> np.ndarray:
    """Return the number of top bits that equal the sign, -1 if all do, as int32; for int32 or int64."""
    flipped = words ^ (words >> words.dtype.type(8 * words.dtype.itemsize - 1))
    return leading_zeros(flipped.view(f"u{words.dtype.itemsize}"))


def reverse(words: np.ndarray) -> np.ndarray:
    """Return the bits in reverse order."""
    kind, bits = words.dtype.type, 8 * words.dtype.itemsize
    width = 1
    while width < bits:  # exchange neighbours of 1, 2, 4, ... bits
        low = kind(sum(((1 << width) - 1) << at for at in range(0, bits, 2 * width)))
        words = (words & low) << kind(width) | (words >> kind(width) & low)
        width *= 2
    return words


vector("v_bcnt_u32_b32", "u32 = u32 u32")(lambda a, b: bit_count(a) + b)
vector("v_ffbh_u32", "i32 = u32")(leading_zeros)
vector("v_ffbh_i32", "i32 = i32")(leading_signs)
vector("v_ffbl_b32", "i32 = u32")(first_one)
vector("v_bfrev_b32", "u32 = u32", undefined=moves())(reverse)


# -- two destinations --------------------------------------------------------------------------------------------------


@instruction("v_swap_b32", klass="valu")
def swap(instruction, context):
    """v_swap_b32: exchange two registers in the active lanes."""
    one, other = (key(VECTOR, context.operand(text).register, "u32") for text in instruction.operands)

    def step(wf):
        a, b = wf.view[one], wf.view[other]
        kept = a.copy()
        np.copyto(a, b, where=wf.exec_mask)
        np.copyto(b, kept, where=wf.exec_mask)

    return step


@instruction("v_pk_mov_b32", klass="valu")
def pk_mov(instruction, context):
    """v_pk_mov_b32: the low result is a half of the first source, the high one of the second; op_sel selects them."""
    if instruction.modifiers.keys() - {"op_sel", "op_sel_hi"}:
        raise UnimplementedInstruction(f"v_pk_mov_b32 with {sorted(instruction.modifiers)} is not implemented")
    target, *sources = (context.operand(text) for text in instruction.operands)
    picks = [int(n) for n in instruction.modifiers.get("op_sel", "[0,0]").strip("[]").split(",")]
    getters = []
    for source, pick in zip(sources, picks, strict=True):
        register = source if source.space == "const" else replace(source, register=source.register + pick, count=1)
        getters.append(context.source(register, "u32"))
    low, high = (key(VECTOR, target.register + i, "u32") for i in (0, 1))

    def step(wf):
        values = [np.broadcast_to(wf.view[k], (len(wf), LANES)).copy() for k in getters]
        np.copyto(wf.view[low], values[0], where=wf.exec_mask)
        np.copyto(wf.view[high], values[1], where=wf.exec_mask)

    return step


# -- gfx950 ------------------------------------------------------------------------------------------------------------


@vector("v_bitop3_b32@gfx950", "u32 = u32 u32 u32 %bitop3", undefined=BITWISE)
def bitop3(a, b, c, table):
    """v_bitop3: any function of three bits; bit 4a + 2b + c of ``table`` is its value (LLVM AMDGPU, bitop3)."""
    ones = a ^ ~a
    result = None
    for term in _polynomial(int(table)):
        product = ones
        for bit, source in ((4, a), (2, b), (1, c)):
            if term & bit:
                product = source if product is ones else product & source
        result = product if result is None else result ^ product
    return a ^ a if result is None else result


vector("v_bitop3_b16@gfx950", "u16 = u16 u16 u16 %bitop3", keeps_high=True, undefined=BITWISE)(bitop3)


@lru_cache(maxsize=256)
def _polynomial(table: int) -> list[int]:
    """Return the terms of the function as a sum modulo 2 of products (its algebraic normal form).

    In a term, the bits 4, 2, 1 select the factors.
    """
    coefficients = [table >> i & 1 for i in range(8)]
    for bit in (1, 2, 4):
        for i in range(8):
            if i & bit:
                coefficients[i] ^= coefficients[i ^ bit]
    return [i for i in range(8) if coefficients[i]]


@vector("v_prng_b32@gfx950", "u32 = u32")
def prng(a):
    """v_prng_b32: one step of a linear feedback shift register (CDNA4 ISA, VOP1)."""
    return (a << _U32(1)) ^ ((a >> _U32(31)) * _U32(197))


def _shift_and_saturate(low: int, high: int):
    """Return the op that shifts two values right, limits them to [low, high], and packs them as bytes of a half."""

    def function(a, b, count):
        by = (count & _U32(31)).astype(np.int32)
        first, second = (
            np.minimum(np.maximum(x >> by, np.int32(low)), np.int32(high)) & np.int32(0xFF) for x in (a, b)
        )
        return (first | second << np.int32(8)).astype(np.uint16)

    return function


vector("v_ashr_pk_i8_i32@gfx950", "u16 = i32 i32 u32", keeps_high=True)(_shift_and_saturate(-0x80, 0x7F))
vector("v_ashr_pk_u8_i32@gfx950", "u16 = i32 i32 u32", keeps_high=True)(_shift_and_saturate(0, 0xFF))
