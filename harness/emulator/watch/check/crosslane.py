"""Propagation of undefined bits through instructions that are not ops of the table, such as lane moves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from harness.emulator.faults import UnimplementedInstruction
from harness.emulator.operations import relative
from harness.emulator.operations.table import Builder
from harness.emulator.program.decode import Context, Decoded
from harness.emulator.watch.check import products, report
from harness.emulator.watch.check import shadow as registers
from harness.emulator.watch.check.propagate import Flow
from harness.emulator.watch.check.shadow import Shadow, lane_bits, scalar_bits, touched
from harness.emulator.wavefront import operands
from harness.emulator.wavefront.state import LANES, M0, Wavefronts

# Instructions that only move bits, and which of their operands select the target; operand 0 is the destination.
MOVES: dict[str, tuple[int, ...]] = {
    "v_readfirstlane_b32": (),
    "v_readlane_b32": (2,),
    "v_writelane_b32": (2,),
    "ds_bpermute_b32": (1,),
    "ds_permute_b32": (1,),
    "ds_swizzle_b32": (),
    "v_swap_b32": (),
    "v_pk_mov_b32": (),
    "v_permlane16_swap_b32": (),
    "v_permlane32_swap_b32": (),
}
# Instructions that work on each lane by itself.
LANE_BY_LANE = ("v_dot", "v_cvt_scalef32_", "v_mqsad_u32_u8")
# Instructions without operands, which move nothing.
STILL = ("v_nop", "v_clrexcp")
_EXCHANGES = ("v_swap_b32", "v_permlane16_swap_b32", "v_permlane32_swap_b32")


def flow(decoded: Decoded) -> Flow:
    """Return the flow of an instruction made by a builder. An instruction unknown here has a defined result."""
    instruction = decoded.instruction
    parsed = [_parse(text, decoded.accum_offset) for text in instruction.operands]
    writes = registers.registers(parsed[0]) if parsed else 0
    reads = touched(replace(instruction, operands=instruction.operands[1:]), decoded.accum_offset)
    name = instruction.mnemonic.removesuffix("_e32").removesuffix("_e64")
    if name in STILL:
        return Flow(0, 0, lambda wf, shadow: None)
    if name in _EXCHANGES:
        writes = reads = writes | reads
    if name in MOVES:
        reads |= writes if name == "v_writelane_b32" else 0
        first_lane = name == "v_readfirstlane_b32"
        everywhere = 0 if first_lane else reads & registers.EVERY_VECTOR
        return Flow(reads, writes, _move(decoded, name, parsed, writes), everywhere, first_lane=first_lane)
    if name.startswith("s_movrel"):
        return _relative(decoded, parsed)
    if name.startswith("v_mfma"):
        return Flow(reads, writes, products.spread(decoded, writes), reads | writes)
    if name.startswith("v_smfmac"):
        reads |= writes  # it adds to its destination
        return Flow(reads, writes, products.spread_sparse(decoded, writes), reads)
    if name.startswith(LANE_BY_LANE):
        # The dot products with three operands add to their destination.
        adds = len(parsed) == 3 and name.startswith("v_dot")
        sources = parsed if adds else parsed[1:]
        reads |= writes if adds else 0
        return Flow(reads, writes, _lane_by_lane(parsed[0], sources, writes))

    def define(wf: Wavefronts, shadow: Shadow) -> None:
        operand = parsed[0]
        if operand is not None and operand.space == "v":
            shadow.define(wf, operand.register, operand.count)
        elif operand is not None and operand.space == "s":
            shadow.define_scalars(operand.register, operand.count)

    return Flow(0, writes, define)


def _relative(decoded: Decoded, parsed: list[Any]) -> Flow:
    """Execute a move from or to the register that M0 selects on the undefined bits; M0 must be defined."""
    entry, instruction = decoded.entry, decoded.instruction
    assert isinstance(entry, Builder)  # sanity check
    execute = entry.build(instruction, Context("gfx942", decoded.accum_offset, []))
    from_there = instruction.mnemonic.startswith("s_movrels")
    any_register, m0 = registers.scalars(0, relative.LAST + 1), registers.scalars(M0)
    target, source = (registers.registers(operand) for operand in parsed)

    def spread(wf: Wavefronts, shadow: Shadow) -> None:
        bits = shadow.aligned(wf)
        if undefined := shadow.undefined_scalar(m0):
            report.undefined(wf, instruction, LANES * undefined[0], "the register that m0 selects is undefined")
        bits.s[:, M0] = wf.s[:, M0]
        execute(bits)
        bits.s[:, M0] = 0
        shadow.settle(target if from_there else any_register)

    reads, writes = (any_register if from_there else source) | m0, target if from_there else any_register
    return Flow(reads, writes, spread, any_register=True)


def _lane_by_lane(result: Any, sources: list[Any], writes: int) -> Callable[[Wavefronts, Shadow], None]:
    """Make the lane's result undefined if any bit of a source is undefined."""

    def spread(wf: Wavefronts, shadow: Shadow) -> None:
        bad = np.zeros((len(wf), LANES), np.bool_)
        for operand in sources:
            if operand is not None and operand.space in ("v", "s"):
                bits_of = lane_bits if operand.space == "v" else scalar_bits
                bad |= bits_of(shadow, operand.register, operand.count)
        words = np.where(bad, ~np.uint32(0), np.uint32(0))
        for register in range(result.register, result.register + result.count):
            np.copyto(shadow.bits.v[register >> 1][:, :, register & 1], words, where=wf.exec_mask)
        shadow.settle(writes)

    return spread


def _parse(text: str, accum_offset: int) -> operands.Operand | None:
    try:
        return operands.parse(text, accum_offset)
    except UnimplementedInstruction:
        return None


def _move(decoded: Decoded, name: str, parsed: list[Any], writes: int) -> Callable[[Wavefronts, Shadow], None]:
    """Execute the instruction itself on the undefined bits: selectors keep their values, and constants, which are
    defined, become 0."""
    entry, instruction = decoded.entry, decoded.instruction
    assert isinstance(entry, Builder)  # sanity check
    control = MOVES[name]
    texts = [
        "0" if o is not None and o.space == "const" and i and i not in control else text
        for i, (text, o) in enumerate(zip(instruction.operands, parsed, strict=True))
    ]
    # A lane move is the same on every arch that has it.
    execute = entry.build(replace(instruction, operands=tuple(texts)), Context("gfx950", decoded.accum_offset, []))
    selectors = [parsed[i] for i in control if parsed[i] is not None and parsed[i].space != "const"]
    chosen = 0
    for operand in selectors:
        chosen |= registers.registers(operand)

    def spread(wf: Wavefronts, shadow: Shadow) -> None:
        bits = shadow.aligned(wf)
        bad, kept = np.zeros((len(wf), LANES), np.bool_), []
        for operand in selectors:
            source, target = _register(wf, operand), _register(bits, operand)
            kept.append((target, target.copy()))
            bad |= kept[-1][1] != 0 if operand.space == "v" else (kept[-1][1] != 0)[:, None]
            target[...] = source
        execute(bits)
        for operand, (target, before) in zip(selectors, kept, strict=True):
            if registers.registers(operand) & writes:
                # The destination was the selector: restore the undefined bits of lanes that were not written.
                np.copyto(target, before, where=~wf.exec_mask if operand.space == "v" else False)
            else:
                target[...] = before
        if shadow.dirty & chosen and bad.any():
            result = parsed[0]
            if result.space == "v":
                np.copyto(_register(bits, result), ~np.uint32(0), where=bad & wf.exec_mask)
            else:
                np.copyto(_register(bits, result), ~np.uint32(0), where=bad.any(axis=1))
        shadow.settle(writes)

    return spread


def _register(wf: Wavefronts, operand: Any) -> np.ndarray:
    column: np.ndarray
    if operand.space == "v":
        column = wf.v[operand.register >> 1][:, :, operand.register & 1]
    else:
        column = wf.s[:, operand.register]
    return column
