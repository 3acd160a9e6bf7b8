"""Matrix products: ``v_mfma_*`` and ``v_mfma_scale_*``, D = A * B + C over the 64 lanes of a wavefront.

The positions of elements in lanes and registers, and the effects of cbsz, abid and blgp: AMD "CDNA3 ISA" and "CDNA4
ISA", chapter "Matrix arithmetic instructions"; AMD's matrix instruction calculator has the maps as formulas, and AMD's
blog "Matrix Core Programming on CDNA3 and CDNA4" those of the f8f6f4 forms. EXEC and the float mode are ignored.
``harness.emulator.native.mfma`` describes the rounding of results.

``operations.sparse`` has the sparse forms.
"""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

import numpy as np

from harness.emulator.faults import UnimplementedInstruction
from harness.emulator.native import mfma, steps
from harness.emulator.operations.table import instruction, with_native
from harness.emulator.wavefront.operands import constant
from harness.emulator.wavefront.state import LANES

_NAME = re.compile(r"v_mfma_(?:scale_)?(f32|f64|i32)_(\d+)x(\d+)x(\d+)_(?:(\d+)b_)?(\w+)")
_D_BITS = {"f32": 32, "i32": 32, "f64": 64}
# Number of successive k that are added before rounding, and whether even and odd k are added separately: see ``mfma``.
_GROUPS = {"f16": (8, 1), "bf16": (8, 1), "xf32": (4, 1)}
_GROUP_OF_8_BITS = (16, 2)
# In the f8f6f4 forms cbsz and blgp are the numbers of the formats of A and B.
_F8F6F4 = ("fp8", "bf8", "fp6", "bf6", "fp4")
_UNSCALED = np.zeros((0, LANES), np.int32)


class Shape(NamedTuple):
    """``blocks`` products of an M x K by a K x N matrix."""

    blocks: int
    m: int
    n: int
    k: int


def _names(start: str, types: str, shapes: str) -> str:
    """Return mnemonics for ``types`` and ``shapes``: M x N x K, the number of blocks, the arch if only one has it."""
    parts = [shape.partition("@") for shape in shapes.split()]
    return " ".join(f"v_mfma_{start}_{shape}_{t}{at}{arch}" for t in types.split() for shape, at, arch in parts)


@instruction(_names("f32", "f32", "32x32x1_2b 16x16x1_4b 4x4x1_16b 32x32x2 16x16x4"), klass="valu")
def f32(instruction, context):
    common = _decode(instruction, context, 32, 32)
    return _native(lambda wf: mfma.chain_f32(wf.v, *common), steps.chain_f32, common)


@instruction(_names("f64", "f64", "16x16x4 4x4x4_4b"), klass="valu")
def f64(instruction, context):
    common = _decode(instruction, context, 64, 64, {"neg"})
    negate = sum(bit << i for i, bit in enumerate(_flags(instruction, "neg")))
    return _native(lambda wf: mfma.chain_f64(wf.v, *common, negate), steps.chain_f64, common, negate)


@instruction(
    _names("i32", "i8", "32x32x4_2b 16x16x4_4b 4x4x4_16b 32x32x16 16x16x32 32x32x32@gfx950 16x16x64@gfx950"),
    klass="valu",
)
def i8(instruction, context):
    common = _decode(instruction, context, 8, 8)
    return _native(lambda wf: mfma.wrapping_i8(wf.v, *common), steps.wrapping_i8, common)


@instruction(
    _names("f32", "f16 bf16", "32x32x4_2b 16x16x4_4b 4x4x4_16b 32x32x8 16x16x16 32x32x16@gfx950 16x16x32@gfx950")
    + " " + _names("f32", "xf32", "16x16x8@gfx942 32x32x4@gfx942")
    + " " + _names("f32", "fp8_fp8 fp8_bf8 bf8_fp8 bf8_bf8", "16x16x32 32x32x16"),
    klass="valu",
)  # fmt: skip
def narrow(instruction, context):
    a_type, _, b_type = _taken_apart(instruction)[-1].partition("_")
    a_form, b_form = _form(a_type, context), _form(b_type or a_type, context)
    common = _decode(instruction, context, a_form.bits, b_form.bits)
    return _fused_sum(common, a_form, b_form, _GROUPS.get(a_type, _GROUP_OF_8_BITS))


@instruction(_names("f32", "f8f6f4", "16x16x128@gfx950 32x32x64@gfx950"), klass="valu")
def f8f6f4(instruction, context):
    (a_form, b_form), common = _decode_f8f6f4(instruction, context, {"cbsz", "blgp"})
    return _fused_sum(common, a_form, b_form, _GROUP_OF_8_BITS)


@instruction(_names("scale_f32", "f8f6f4", "16x16x128@gfx950 32x32x64@gfx950"), klass="valu")
def scaled(instruction, context):
    """Multiply A and B by 2**(scale - 127), with one scale per row of A or column of B and 32 elements along k.

    op_sel and op_sel_hi select the byte of the register that holds the scale.
    """
    (a_form, b_form), common = _decode_f8f6f4(instruction, context, {"cbsz", "blgp", "op_sel", "op_sel_hi"})
    rounding = tuple(a_form), tuple(b_form), *_GROUP_OF_8_BITS
    low, high = _flags(instruction, "op_sel"), _flags(instruction, "op_sel_hi")
    scales = [
        (context.source(context.operand(text), "u32"), np.uint32(8 * (low[i] + 2 * high[i])))
        for i, text in enumerate(instruction.operands[4:])
    ]

    def step(wf):
        exponents = [_scale(np.broadcast_to(wf.view[k], (len(wf), LANES)) >> shift) for k, shift in scales]
        mfma.fused_sum(wf.v, *common, *rounding, *exponents)

    return step


def _fused_sum(common, a_form, b_form, groups):
    rounding = tuple(a_form), tuple(b_form), *groups, _UNSCALED, _UNSCALED
    forms = np.array([*a_form, *b_form], np.int64)
    return _native(
        lambda wf: mfma.fused_sum(wf.v, *common, *rounding), steps.fused_sum, common, forms.ctypes.data, *groups,
        keeps=(forms,),
    )  # fmt: skip


def _native(step, function, common, *more, keeps=()):
    registers, shape, *places, constant = common
    maps = [word for at in places for word in (at.ctypes.data, len(at))]
    constant = int(constant) - (int(constant) >> 63 << 64)
    return with_native(step, function, *registers, *shape, *maps, constant, *more, keeps=(*places, *keeps))


def _scale(words):
    """Return the exponents of E8M0 scales; 255 is NaN (OCP "Microscaling Formats", 5.4.1)."""
    octets = (words & np.uint32(0xFF)).astype(np.int32)
    return np.where(octets == 255, np.int32(mfma.NAN_SCALE), octets - np.int32(127))


# -- operands ----------------------------------------------------------------------------------------------------------


def _form(kind, context):
    return mfma.FORMS.get(kind) or mfma.FORMS[f"{kind}@{context.arch}"]


def _decode(instruction, context, a_bits, b_bits, modifiers=frozenset({"cbsz", "abid", "blgp"})):
    """Return the arguments that all functions of ``mfma`` take after the registers."""
    _check_modifiers(instruction, modifiers)
    d_type, shape = _shape(instruction)
    cbsz, abid, blgp = (int(instruction.modifiers.get(name, "0"), 0) for name in ("cbsz", "abid", "blgp"))
    if 1 << cbsz > shape.blocks or abid >> cbsz or blgp > 7:
        raise UnimplementedInstruction(f"cbsz:{cbsz} abid:{abid} blgp:{blgp} with {shape.blocks} blocks")
    a, b = (a_map(shape, a_bits, 0, cbsz, abid), a_bits), (b_map(shape, b_bits, 0, blgp), b_bits)
    return _with_registers(instruction, context, d_type, shape, a, b)


def _decode_f8f6f4(instruction, context, modifiers):
    _check_modifiers(instruction, modifiers)
    d_type, shape = _shape(instruction)
    numbers = [int(instruction.modifiers.get(name, "0"), 0) for name in ("cbsz", "blgp")]
    if max(numbers) >= len(_F8F6F4):
        raise UnimplementedInstruction(f"f8f6f4 format number {max(numbers)} does not exist")
    forms = [_form(_F8F6F4[number], context) for number in numbers]
    # A lane's 32 elements are successive k, except for the 8-bit formats, with two runs of 16.
    (a_bits, a_run), (b_bits, b_run) = ((form.bits, 16 if form.bits == 8 else 32) for form in forms)
    a, b = (a_map(shape, a_bits, a_run), a_bits), (b_map(shape, b_bits, b_run), b_bits)
    return forms, _with_registers(instruction, context, d_type, shape, a, b)


def _with_registers(instruction, context, d_type, shape, a, b):
    mfma.prepare()
    d_at = output_map(shape, d_type)
    parsed = [context.operand(text) for text in instruction.operands[:4]]
    registers, bits = [], 0
    for operand, (at, width) in zip(parsed, ((d_at, _D_BITS[d_type]), a, b, (d_at, _D_BITS[d_type])), strict=True):
        words = len(at) * width // (32 * LANES)
        if operand.space == "const" and operand is parsed[3]:
            registers.append(-1)
            value = constant(operand, "f64" if d_type == "f64" else "f32" if d_type == "f32" else "u32")
            bits = int(value.view(f"u{value.dtype.itemsize}"))
        elif operand.space != "v" or operand.count != words:
            raise UnimplementedInstruction(f"operand {operand.text!r} is not a range of {words} vector registers")
        else:
            registers.append(operand.register)
    # Of the type for which the functions were compiled.
    return tuple(registers), tuple(shape), a[0], b[0], d_at, np.uint64(bits)


def _taken_apart(instruction):
    """Return D's type, M, N, K, the number of blocks or None, and the types of A and B, from the mnemonic."""
    match = _NAME.fullmatch(instruction.mnemonic)
    assert match is not None  # sanity check
    return match.groups()


def _shape(instruction):
    d_type, m, n, k, blocks, _ = _taken_apart(instruction)
    return d_type, Shape(int(blocks or 1), int(m), int(n), int(k))


def _check_modifiers(instruction, known):
    unknown = instruction.modifiers.keys() - known
    if unknown:
        raise UnimplementedInstruction(f"{instruction.mnemonic} with modifiers {sorted(unknown)} is not implemented")


def _flags(instruction, name):
    bits = [int(bit) for bit in instruction.modifiers.get(name, "[]").strip("[]").split(",") if bit.strip()]
    return bits + [0] * (3 - len(bits))


# -- positions of elements ---------------------------------------------------------------------------------------------


@cache
def a_map(shape: Shape, bits: int, run: int = 0, cbsz: int = 0, abid: int = 0) -> np.ndarray:
    """Return int32[n, 3]: (register, lane, lowest bit) of A's elements in the order [block, i, k].

    cbsz broadcasts block ``abid`` of each 2**cbsz blocks to all of them.
    """
    block, i, k = np.indices((shape.blocks, shape.m, shape.k))
    return _input(shape, shape.m, (block >> cbsz << cbsz) + abid, i, k, bits, run)


@cache
def b_map(shape: Shape, bits: int, run: int = 0, blgp: int = 0) -> np.ndarray:
    """Return the positions of B's elements, like ``a_map``, in the order [block, k, j].

    blgp makes all lanes read those of one half (1, 2) or one quarter (4 to 7), or the lanes 16 further on (3).
    """
    block, k, j = np.indices((shape.blocks, shape.k, shape.n))
    at = _input(shape, shape.n, block, j, k, bits, run)
    lane = at[:, 1]
    if blgp == 3:
        at[:, 1] = (lane + 16) % LANES
    elif blgp:
        at[:, 1] = lane % 32 + 32 * (blgp - 1) if blgp < 3 else lane % 16 + 16 * (blgp - 4)
    return at


def _input(shape, side, block, i, k, bits, run):
    """Lanes count first the rows (or columns), then the blocks, then k; a lane holds successive k, or runs of them."""
    per_lane = shape.blocks * side * shape.k // LANES
    run = run or per_lane
    groups = shape.k // per_lane
    lane = i + side * (block + shape.blocks * (k // run % groups))
    bit = (k // (run * groups) * run + k % run) * bits
    return np.stack([bit // 32, lane, bit % 32], axis=-1).reshape(-1, 3).astype(np.int32)


@cache
def output_map(shape: Shape, kind: str) -> np.ndarray:
    """Like ``a_map`` for C and D, in the order [block, i, j]; a 32-bit lane holds four successive rows, then skips."""
    block, i, j = np.indices((shape.blocks, shape.m, shape.n))
    if kind == "f64":
        register, lane = 2 * (i // 4), 16 * (i % 4) + shape.n * block + j
    elif shape.m == 4:
        register, lane = i, shape.n * block + j
    else:
        quads = LANES // shape.n  # number of groups of four rows next to each other
        register = shape.m // (4 * quads) * 4 * block + i // (4 * quads) * 4 + i % 4
        lane = shape.n * (i // 4 % quads) + j
    return np.stack([register, lane, np.zeros_like(lane)], axis=-1).reshape(-1, 3).astype(np.int32)
