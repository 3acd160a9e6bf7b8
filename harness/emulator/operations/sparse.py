"""Sparse matrix products: ``v_smfmac_*``, D = A * B + D, where two of each four successive k of A are stored.

A fourth operand holds the positions of the stored elements: 4 bits for two of them, in the lane that holds them, so 8,
16 or 32 bits a lane. Where its register has room for several sets of a lane's bits, abid selects one, if cbsz is 0;
otherwise the first one is used. EXEC and the float mode are ignored.

Sources: AMD "CDNA3 ISA" and "CDNA4 ISA", "Sparse Matrices": A is stored as the A of a dense product with half of the K;
tables "Matrix B Layout" and "Index Layout". The forms with K = 64 (32 with 32 rows) of 16 bits and K = 128 (64) of 8
bits are gfx950's: B consists of two halves along k there. ``native.sparse`` describes the rounding.
"""

from __future__ import annotations

import re
from functools import cache

import numpy as np

from harness.emulator.faults import UnimplementedInstruction
from harness.emulator.native import mfma, sparse
from harness.emulator.operations.matrix import Shape, _form, a_map, b_map, output_map
from harness.emulator.operations.table import instruction
from harness.emulator.wavefront.state import LANES

_NAME = re.compile(r"v_smfmac_(f32|i32)_(\d+)x(\d+)x(\d+)_(\w+)")
_HALVES = ("16x16x32 32x32x16", "16x16x64 32x32x32")
_BYTES = ("16x16x64 32x32x32", "16x16x128 32x32x64")
_GROUPS = {16: (8, 1), 8: (16, 2)}


def _names(d: str, types: str, shapes: tuple[str, str]) -> str:
    """Return the mnemonics of the shapes of both archs, and those of gfx950."""
    return " ".join(
        f"v_smfmac_{d}_{shape}_{t}{only}"
        for t in types.split()
        for group, only in zip(shapes, ("", "@gfx950"), strict=True)
        for shape in group.split()
    )


@instruction(_names("i32", "i8", _BYTES), klass="valu")
def i8(instruction, context):
    registers, shape, maps = decode(instruction, context, 8)
    return lambda wf: sparse.wrapping_i8(wf.v, registers, shape, *maps)


@instruction(
    _names("f32", "f16 bf16", _HALVES) + " " + _names("f32", "fp8_fp8 fp8_bf8 bf8_fp8 bf8_bf8", _BYTES), klass="valu"
)
def narrow(instruction, context):
    a_type, _, b_type = kinds(instruction).partition("_")
    a_form, b_form = _form(a_type, context), _form(b_type or a_type, context)
    registers, shape, maps = decode(instruction, context, a_form.bits)
    rounding = tuple(a_form), tuple(b_form), *_GROUPS[a_form.bits]
    return lambda wf: sparse.fused_sum(wf.v, registers, shape, *maps, *rounding)


def kinds(instruction) -> str:
    """Return the types of A and B as in the mnemonic."""
    match = _NAME.fullmatch(instruction.mnemonic.removesuffix("_e64"))
    assert match is not None  # sanity check
    return match[5]


def decode(instruction, context, bits):
    """Return the first registers of D, A, B and the index, the shape, and the positions of all their elements."""
    unknown = instruction.modifiers.keys() - {"cbsz", "abid"}
    if unknown:
        raise UnimplementedInstruction(f"{instruction.mnemonic} with modifiers {sorted(unknown)} is not implemented")
    match = _NAME.fullmatch(instruction.mnemonic.removesuffix("_e64"))
    assert match is not None  # sanity check
    shape = Shape(1, *(int(match[i]) for i in (2, 3, 4)))
    cbsz, abid = (int(instruction.modifiers.get(name, "0"), 0) for name in ("cbsz", "abid"))
    if cbsz not in range(8) or abid not in range(16):
        raise UnimplementedInstruction(f"cbsz:{cbsz} abid:{abid}: expected numbers below 8 and 16")
    sparse.prepare()
    mfma.prepare()
    maps = (a_map(shape._replace(k=shape.k // 2), bits), dense_map(shape, bits), output_map(shape, "f32"),
            index_map(shape, abid if cbsz & 3 == 0 else 0))  # fmt: skip
    registers = []
    for text, (at, width) in zip(
        instruction.operands, ((maps[2], 32), (maps[0], bits), (maps[1], bits), (maps[3], 32)), strict=True
    ):
        operand = context.operand(text)
        words = 1 if at is maps[3] else len(at) * width // (32 * LANES)
        if operand.space != "v" or operand.count != words:
            raise UnimplementedInstruction(f"operand {text!r} is not a range of {words} vector registers")
        registers.append(operand.register)
    return tuple(registers), tuple(shape), maps


@cache
def dense_map(shape: Shape, bits: int) -> np.ndarray:
    """Return the positions of B's elements in the order [k, j], as ``matrix.b_map``: in runs of 8 or 16 bytes."""
    run = min(shape.n * shape.k // LANES, 128 // bits)
    return b_map(shape, bits, run)


@cache
def index_map(shape: Shape, chosen: int) -> np.ndarray:
    """Return the positions of the 4 bits of each two stored elements, in the order [row, group of 4 k].

    ``chosen``: the set of a lane's bits, modulo the number of sets in a register.
    """
    row, group = (x.reshape(-1) for x in np.indices((shape.m, shape.k // 4)))
    per_lane = shape.m * shape.k // (4 * LANES)
    first = 4 * per_lane * (chosen % (8 // per_lane))
    lane, bit = row + shape.m * (group // per_lane), first + 4 * (group % per_lane)
    return np.stack([np.zeros_like(lane), lane, bit], axis=-1).astype(np.int32)
