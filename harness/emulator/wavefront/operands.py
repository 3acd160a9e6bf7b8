"""Operands as written in a listing: registers, constants and their input modifiers."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from harness.emulator.faults import UnimplementedInstruction
from harness.emulator.wavefront import state
from harness.emulator.wavefront.entry import PRIVATE_APERTURE, SHARED_APERTURE
from harness.emulator.wavefront.state import BROADCAST, DTYPES, SCALAR, VECTOR

_NAMED = {
    "vcc": (106, 2), "vcc_lo": (106, 1), "vcc_hi": (107, 1),
    "exec": (126, 2), "exec_lo": (126, 1), "exec_hi": (127, 1),
    "m0": (124, 1), "mode": (125, 1),
    "flat_scratch": (102, 2), "flat_scratch_lo": (102, 1), "flat_scratch_hi": (103, 1),
    "xnack_mask": (104, 2), "xnack_mask_lo": (104, 1), "xnack_mask_hi": (105, 1),
}  # fmt: skip
_REGISTER = re.compile(r"([vsa])(?:(\d+)|\[(\d+):(\d+)\])$")
_INLINE_FLOATS = {"0.5", "-0.5", "1.0", "-1.0", "2.0", "-2.0", "4.0", "-4.0", "0.15915494", "0.15915494309189532"}
# High halves of flat addresses in the local data share and the private segment, 4 GiB each.
_APERTURES = {
    "src_shared_base": SHARED_APERTURE << 32, "src_shared_limit": SHARED_APERTURE << 32 | 0xFFFFFFFF,
    "src_private_base": PRIVATE_APERTURE << 32, "src_private_limit": PRIVATE_APERTURE << 32 | 0xFFFFFFFF,
}  # fmt: skip


@dataclass(frozen=True)
class Operand:
    """One operand: ``space`` is ``v``, ``s``, ``const``, ``off`` or ``scc``.

    ``register`` is the flat index (accumulation registers follow the vector registers), ``count`` its width in dwords.
    """

    text: str
    space: str
    register: int = 0
    count: int = 1
    value: int | float = 0
    literal: bool = False
    negate: bool = False
    absolute: bool = False
    sext: bool = False


@lru_cache(maxsize=65536)
def parse(text: str, accum_offset: int = 0) -> Operand:
    """Parse one operand; ``accum_offset`` is the position of a0 in the unified register file."""
    body, negate, absolute, sext = text, False, False, False
    if body.startswith("-") and not body[1:2].isdigit():
        negate, body = True, body[1:]
    for opening, closing in (("|", "|"), ("abs(", ")")):
        if body.startswith(opening) and body.endswith(closing):
            absolute, body = True, body[len(opening) : -len(closing)]
    if body.startswith("neg(") and body.endswith(")"):
        negate, body = True, body[4:-1]
    if body.startswith("sext(") and body.endswith(")"):
        sext, body = True, body[5:-1]
    flags = {"negate": negate, "absolute": absolute, "sext": sext}
    if match := _REGISTER.match(body):
        first = int(match.group(2) or match.group(3))
        last = int(match.group(4) or first)
        space = "s" if match.group(1) == "s" else "v"
        offset = accum_offset if match.group(1) == "a" else 0
        return Operand(text, space, first + offset, last - first + 1, **flags)
    if body in _NAMED:
        register, count = _NAMED[body]
        return Operand(text, "s", register, count, **flags)
    if body in ("off", "null"):
        return Operand(text, "off")
    if body in ("scc", "src_scc"):
        return Operand(text, "scc")
    if body in _APERTURES:
        return Operand(text, "const", value=_APERTURES[body], **flags)
    if body in _INLINE_FLOATS:
        return Operand(text, "const", value=float(body), **flags)
    try:
        return Operand(text, "const", value=int(body, 0), literal=body.lower().lstrip("-").startswith("0x"), **flags)
    except ValueError:
        raise UnimplementedInstruction(f"operand {text!r} has a form that the emulator does not support") from None


def constant(operand: Operand, kind: str) -> np.ndarray:
    """Return the value of an inline constant or a 32-bit literal as an operand of type ``kind``.

    Source: LLVM AMDGPU operand syntax. Inline integers are sign-extended to the operand, inline floats take the
    operand's float format, a literal is zero-extended for unsigned, sign-extended for signed, and is the high half of a
    64-bit float. A 16-bit operand is a half of ``constant_word``: the upper one for the types ``h16``, ``hi16`` and
    ``hf16``.
    """
    dtype = DTYPES[kind]
    bits = dtype.itemsize * 8
    value = operand.value
    if bits < 64:
        word = constant_word(operand, kind) >> (16 if kind[0] == "h" else 0)
    elif isinstance(value, float):
        word = struct.unpack("<Q", struct.pack("<d", value))[0]
    elif operand.literal and kind == "f64":
        word = (value & 0xFFFFFFFF) << 32
    elif operand.literal and kind == "i64" and value >> 31 & 1 and value < 1 << 32:
        word = value | 0xFFFFFFFF00000000
    else:
        word = value
    unsigned = np.dtype(f"u{dtype.itemsize}")
    return np.array(word & ((1 << bits) - 1), dtype=unsigned).view(dtype)


def constant_word(operand: Operand, kind: str) -> int:
    """Return the 32 bits that a constant puts in place of a register read as ``kind``, a type of 16 or 32 bits.

    An integer is sign-extended. A float is the bits of the single-precision value, also for 16-bit integer operations:
    they read 0 in the lower half of 0.5, and 0x3F00 in the upper one. Only a float16 operation gets the half-precision
    value, with 0 in the upper half. Sources: LLVM AMDGPUBaseInfo, ``getInlineEncodingV216`` (packed operations), and
    AMDGPUAsmParser, ``getOpFltSemantics`` (others: "the 32-bit representation of the constant truncated to the 16 LSBs"
    for type i16).
    """
    if not isinstance(operand.value, float):
        return operand.value & 0xFFFFFFFF
    if DTYPES[kind] == np.float16:
        return int.from_bytes(struct.pack("<e", operand.value), "little")
    return int.from_bytes(struct.pack("<f", operand.value), "little")


def with_format(operand: Operand, form: str) -> Operand:
    """Return ``operand`` with an inline float replaced by its bits in the format ``form``: ``f16`` or ``bf16``.

    It is for the sources whose type is an integer in our table, but a half for LLVM and the hardware. Sources: LLVM
    issue 58167 (v_cmp_class_f16 and v_ldexp_f16) and AMDGPUBaseInfo, ``getInlineEncodingV2BF16``: a bfloat16 constant
    is the upper half of the float32, not rounded.
    """
    if not isinstance(operand.value, float):
        return operand
    bits = constant_word(operand, "f16") if form == "f16" else constant_word(operand, "f32") >> 16
    return replace(operand, value=bits)


def source_key(operand: Operand, kind: str, scalar: bool) -> int:
    """Return the view key by which a step reads ``operand`` as ``kind``; ``scalar``: in a scalar instruction."""
    if operand.space == "const":
        return state.constant_key(constant(operand, kind))
    if operand.space == "scc":
        return state.SCC
    _check_width(operand, kind)
    if operand.space == "v":
        return state.key(VECTOR, operand.register, kind)
    return state.key(SCALAR if scalar else BROADCAST, operand.register, kind)


def result_key(operand: Operand, kind: str) -> int:
    """Return the view key by which a step writes ``operand`` as ``kind``."""
    if operand.space not in "vs" or operand.negate or operand.absolute:
        raise UnimplementedInstruction(f"operand {operand.text!r} cannot be written: expected a register")
    _check_width(operand, kind)
    return state.key(VECTOR if operand.space == "v" else SCALAR, operand.register, kind)


def _check_width(operand: Operand, kind: str) -> None:
    wide = DTYPES[kind].itemsize == 8
    if wide and (operand.count < 2 or operand.register % 2):
        raise UnimplementedInstruction(f"operand {operand.text!r} is not an aligned register pair such as v[2:3]")
