"""Dot products within a lane, ``v_dot2_*``, ``v_dot4_*`` and ``v_dot8_*``: used for a tl.dot that no MFMA fits.

Source: AMD "CDNA3 ISA" and "CDNA4 ISA", VOP3P and VOP2 opcodes. D = C + a0 * b0 + a1 * b1 ...; the ``c`` forms add to
D. Float products are added to C one after the other, the low half first, each with one rounding; only v_dot2_f32_bf16
adds C last (CDNA4 ISA, its pseudocode). The float16 forms read a denormal C as 0 and return 0 for a denormal result, in
any MODE (LLVM SIISelLowering, performFMACombine, and pull request 205101, which specifies +0). Integers wrap, and
saturate under ``clamp``.
"""

from __future__ import annotations

import numpy as np

from harness.emulator.faults import UnimplementedInstruction
from harness.emulator.native.fused import fma
from harness.emulator.operations.integer import RANGES
from harness.emulator.operations.table import instruction
from harness.emulator.wavefront.operands import result_key

# Number of elements in a register, and whether they are signed.
_INTEGERS = {
    "v_dot2_i32_i16": (2, True), "v_dot2_u32_u16": (2, False), "v_dot4_i32_i8": (4, True),
    "v_dot4_u32_u8": (4, False), "v_dot8_i32_i4": (8, True), "v_dot8_u32_u4": (8, False),
    "v_dot2c_i32_i16": (2, True), "v_dot4c_i32_i8": (4, True), "v_dot8c_i32_i4": (8, True),
}  # fmt: skip
_FLOATS = "v_dot2_f32_f16 v_dot2c_f32_f16 v_dot2_f32_bf16@gfx950 v_dot2c_f32_bf16@gfx950"


@instruction(_FLOATS, klass="valu")
def float_dot(instruction, context):
    halves, finish = (_bf16, np.positive) if "bf16" in instruction.mnemonic else (_f16, _flush)
    a, b, c, out = _keys(instruction, context, "f32", set())
    last = instruction.mnemonic.startswith("v_dot2_f32_bf16")

    def step(wf):
        view = wf.view
        (a0, a1), (b0, b1) = halves(view[a]), halves(view[b])
        total = fma(a1, b1, a0 * b0) + view[c] if last else finish(fma(a1, b1, fma(a0, b0, finish(view[c]))))
        np.copyto(view[out], total, where=wf.exec_mask)

    return step


@instruction(" ".join(_INTEGERS), klass="valu")
def integer_dot(instruction, context):
    count, signed = _INTEGERS[instruction.mnemonic.removesuffix("_e32").removesuffix("_e64")]
    kind = "i32" if signed else "u32"
    a, b, c, out = _keys(instruction, context, kind, {"clamp"})
    saturates = "clamp" in instruction.modifiers

    def step(wf):
        view = wf.view
        total = np.asarray(view[c], np.int64)
        for n in range(count):
            total = total + _element(view[a], n, count, signed) * _element(view[b], n, count, signed)
        if saturates:
            total = np.clip(total, *RANGES[kind])
        np.copyto(view[out], total.astype(view[out].dtype), where=wf.exec_mask)

    return step


def _keys(instruction, context, kind, modifiers):
    """Return the views of A, B, C and D: C is D if it is not an operand."""
    unknown = instruction.modifiers.keys() - modifiers
    if unknown or instruction.mnemonic.endswith("_dpp"):
        raise UnimplementedInstruction(f"{instruction.mnemonic} with modifiers {sorted(unknown)} is not implemented")
    d, a, b, *c = (context.operand(text) for text in instruction.operands)
    for source in (a, b):
        if isinstance(source.value, float) or source.negate or source.absolute:
            raise UnimplementedInstruction(f"operand {source.text!r} of a dot product is not implemented")
    addend = context.source(c[0] if c else d, kind)
    return context.source(a, "u32"), context.source(b, "u32"), addend, result_key(d, kind)


def _flush(values):
    return np.where((np.abs(values) < np.finfo(np.float32).tiny) & (values != 0), np.float32(0), values)


def _f16(words):
    return ((words >> np.uint32(shift)).astype(np.uint16).view(np.float16).astype(np.float32) for shift in (0, 16))


def _bf16(words):
    return (words << np.uint32(16)).view(np.float32), (words & np.uint32(0xFFFF0000)).view(np.float32)


def _element(words, n, count, signed):
    bits = 32 // count
    word = words.astype(np.int64) >> bits * n & (1 << bits) - 1
    return word - (word >> bits - 1 << bits) if signed else word
