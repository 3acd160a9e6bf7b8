"""Instructions that move values between lanes: readlane, readfirstlane, writelane, permutes, mbcnt.

Source: AMD "CDNA3 ISA", chapters VOP1 to VOP3 and data share. DPP moves are an encoding and live in
``harness.emulator.wavefront.dpp``.
"""

from __future__ import annotations

import numpy as np

from harness.emulator.faults import UnimplementedInstruction
from harness.emulator.native import steps
from harness.emulator.operations.table import instruction, vector, with_native
from harness.emulator.operations.vector import bit_count
from harness.emulator.wavefront.state import LANES, SCALAR, VECTOR, key

_ALL = np.arange(LANES, dtype=np.int64)


@instruction("v_readfirstlane_b32", klass="valu")
def readfirstlane(instruction, context):
    """v_readfirstlane_b32: the value of the first active lane, of lane 0 if EXEC is 0."""
    target, source = (context.operand(text) for text in instruction.operands)
    to, at = key(SCALAR, target.register, "u32"), context.source(source, "u32")

    def step(wf):
        value = wf.view[at]
        if value.shape[-1:] != (LANES,):
            wf.view[to][...] = value.reshape(-1)
        elif wf.exec_all:
            wf.view[to][...] = value[:, 0]
        else:
            first = wf.exec_mask.argmax(axis=1)
            wf.view[to][...] = value[np.arange(len(wf)), first]

    return step


@instruction("v_readlane_b32", klass="valu")
def readlane(instruction, context):
    """v_readlane_b32: the value of one lane, regardless of EXEC; the lane number is taken modulo 64."""
    target, source, lane = (context.operand(text) for text in instruction.operands)
    to, at, which = (
        key(SCALAR, target.register, "u32"),
        key(VECTOR, source.register, "u32"),
        context.source(lane, "u32", scalar=True),
    )

    def step(wf):
        lanes = np.broadcast_to(wf.view[which] & np.uint32(LANES - 1), len(wf))
        wf.view[to][...] = wf.view[at][np.arange(len(wf)), lanes]

    return step


@instruction("v_writelane_b32", klass="valu")
def writelane(instruction, context):
    """v_writelane_b32: write one lane, regardless of EXEC."""
    target, value, lane = (context.operand(text) for text in instruction.operands)
    to, at, which = (
        key(VECTOR, target.register, "u32"),
        context.source(value, "u32", scalar=True),
        context.source(lane, "u32", scalar=True),
    )

    def step(wf):
        lanes = np.broadcast_to(wf.view[which] & np.uint32(LANES - 1), len(wf))
        wf.view[to][np.arange(len(wf)), lanes] = wf.view[at]

    return step


@instruction("ds_bpermute_b32", klass="lds")
def bpermute(instruction, context):
    """ds_bpermute_b32: lane i reads the data of lane (address_i / 4) modulo 64; 0 from a lane that EXEC disables."""
    target, address, data = (context.operand(text) for text in instruction.operands)
    to, where, at = (key(VECTOR, o.register, "u32") for o in (target, address, data))
    offset = np.uint32(int(instruction.modifiers.get("offset", "0"), 0))

    def step(wf):
        source = ((wf.view[where] + offset) >> np.uint32(2) & np.uint32(LANES - 1)).astype(np.int64)
        value = np.where(wf.exec_mask, wf.view[at], np.uint32(0))
        np.copyto(wf.view[to], np.take_along_axis(value, source, axis=1), where=wf.exec_mask)

    return with_native(step, steps.permute, target.register, address.register, data.register, offset)


@instruction("ds_permute_b32", klass="lds")
def permute(instruction, context):
    """ds_permute_b32: lane i sends its data to lane (address_i / 4) modulo 64.

    Of several senders the highest lane wins; a lane without sender gets 0.
    """
    target, address, data = (context.operand(text) for text in instruction.operands)
    to, where, at = (key(VECTOR, o.register, "u32") for o in (target, address, data))
    offset = np.uint32(int(instruction.modifiers.get("offset", "0"), 0))

    def step(wf):
        target_lane = ((wf.view[where] + offset) >> np.uint32(2) & np.uint32(LANES - 1)).astype(np.int64)
        value, result = wf.view[at], np.zeros((len(wf), LANES), np.uint32)
        rows = np.arange(len(wf))
        for lane in range(LANES):
            active = wf.exec_mask[:, lane]
            result[rows[active], target_lane[active, lane]] = value[active, lane]
        np.copyto(wf.view[to], result, where=wf.exec_mask)

    return step


@instruction("ds_swizzle_b32", klass="lds")
def swizzle(instruction, context):
    """ds_swizzle_b32: lane i reads the lane selected by the pattern; 0 from a lane that EXEC disables."""
    target, data = (context.operand(text) for text in instruction.operands)
    to, at = key(VECTOR, target.register, "u32"), key(VECTOR, data.register, "u32")
    source = swizzle_lanes(instruction.modifiers.get("offset", "0"))

    def step(wf):
        value = np.where(wf.exec_mask, wf.view[at], np.uint32(0))
        np.copyto(wf.view[to], value[:, source], where=wf.exec_mask)

    return step


def swizzle_lanes(pattern: str) -> np.ndarray:
    """Return the lane that each lane reads, int64[64], for ``swizzle(...)`` or the number that encodes it.

    Source: LLVM AMDGPU modifier syntax, "ds_swizzle offset"; CDNA3 ISA, DS_SWIZZLE_B32. Bit 15 set: two bits for
    each lane of a quad. Otherwise lane (i & and | or) ^ xor within 32 lanes. 0xC000 and up: a rotation within 32 lanes.
    """
    number = _swizzle_number(pattern)
    half = _ALL & ~31
    if number >= 0xE000:
        raise UnimplementedInstruction(f"ds_swizzle with the FFT pattern {pattern} is not implemented")
    if number >= 0xC000:
        amount, keep = number >> 5 & 31, number & 31
        step = -amount if number >> 10 & 1 else amount
        return half + ((_ALL & keep) | ((_ALL + step) & ~keep & 31))
    if number >= 0x8000:
        return (_ALL & ~3) + (number >> 2 * (_ALL & 3) & 3)
    return half + (((_ALL & number & 31) | number >> 5 & 31) ^ (number >> 10 & 31))


def _swizzle_number(pattern: str) -> int:
    if not pattern.startswith("swizzle("):
        return int(pattern, 0)
    name, *arguments = (part.strip() for part in pattern[len("swizzle(") : -1].split(","))
    if name == "BITMASK_PERM":
        and_ = or_ = xor = 0
        for i, c in enumerate(reversed(arguments[0].strip('"'))):
            and_ |= (c in "pi") << i
            or_ |= (c == "1") << i
            xor |= (c == "i") << i
        return and_ | or_ << 5 | xor << 10
    numbers = [int(text, 0) for text in arguments]
    if name == "QUAD_PERM":
        return 0x8000 | sum(n << 2 * i for i, n in enumerate(numbers))
    if name == "BROADCAST":
        return 32 - numbers[0] | numbers[1] << 5
    if name in ("SWAP", "REVERSE"):
        return 31 | (numbers[0] - (name == "REVERSE")) << 10
    raise UnimplementedInstruction(f"ds_swizzle with the pattern {pattern} is not implemented")


@instruction("v_permlane16_swap_b32@gfx950 v_permlane32_swap_b32@gfx950", klass="valu")
def permlane_swap(instruction, context):
    """Exchange the upper lanes of the first register with the lower lanes of the second: halves of 64 or of 32 lanes.

    Source: CDNA4 ISA, VOP1. A lane whose partner EXEC disables keeps its value, or gets 0 with ``bound_ctrl``; with
    ``fi`` partners count as enabled.
    """
    first, second = (context.operand(text) for text in instruction.operands)
    width = 32 if "32_swap" in instruction.mnemonic.replace("_b32", "") else 16
    upper = (_ALL & width) != 0
    a, b = key(VECTOR, first.register, "u32"), key(VECTOR, second.register, "u32")
    fetch_inactive = instruction.modifiers.get("fi", "0") not in ("0", "")
    zero = "bound_ctrl" in instruction.modifiers

    def step(wf):
        old_a, old_b = wf.view[a].copy(), wf.view[b].copy()
        for k, lanes, other, move in ((a, upper, old_b, -width), (b, ~upper, old_a, width)):
            source = np.where(lanes, _ALL + move, _ALL)
            valid = fetch_inactive | wf.exec_mask[:, source]
            value = np.where(valid, other[:, source], np.uint32(0))
            np.copyto(wf.view[k], value, where=wf.exec_mask & lanes & (valid | zero))

    return step


def _bits_below(mask: np.ndarray, first: int) -> np.ndarray:
    """Return for each lane how many of the mask's 32 bits belong to lanes below it; bit 0 is lane ``first``."""
    below = np.clip(_ALL - first, 0, 32).astype(np.uint64)
    return bit_count(mask.astype(np.uint64) & ((np.uint64(1) << below) - np.uint64(1))).astype(np.uint32)


vector("v_mbcnt_lo_u32_b32", "u32 = u32 u32")(lambda mask, base: _bits_below(mask, 0) + base)
vector("v_mbcnt_hi_u32_b32", "u32 = u32 u32")(lambda mask, base: _bits_below(mask, 32) + base)
