"""The memory that a wavefront polls, and the value with which its loop compares it: for reports of hangs.

Both are read from the code of the loop and from the registers, so no mode has to record anything. Example: in

    .LBB0_1:
        global_load_dword v2, v1, s[2:3] sc0 sc1
        s_waitcnt vmcnt(0)
        v_cmp_gt_i32_e32 vcc, s4, v2
        s_cbranch_vccnz .LBB0_1

a wavefront polls ``s[2:3] + v1`` and compares it with ``s4``.
"""

from __future__ import annotations

import ctypes

import numpy as np

from harness.emulator.program.decode import Program
from harness.emulator.program.polling import comparison, reads, smallest_loop
from harness.emulator.wavefront import operands
from harness.emulator.wavefront.operands import Operand
from harness.emulator.wavefront.state import Wavefronts


def awaited(wf: Wavefronts) -> dict[str, list[int]]:
    """Return what these wavefronts poll, each with the wavefronts that do; empty outside of a polling loop.

    A phrase names the address, the allocation, the value that the memory holds now, the instruction that reads it, and
    the value with which the loop compares it, if the loop has a comparison with a constant or a register.
    """
    launch = wf.chunk.launch
    program: Program = launch.program
    phrases: dict[str, list[int]] = {}
    loop = smallest_loop(program, program.blocks[wf.block].first)
    access = next(reads(loop, program), None)
    if access is None:
        return phrases
    with np.errstate(over="ignore"):
        addresses, taking = access.addresses(wf)
    compared = comparison(loop, access, program)
    for row, wave in enumerate(wf.wave.tolist()):
        lane = int(taking[row].argmax())
        address = int(addresses[row, lane])
        if not any(allocation.contains(address, access.size) for allocation in launch.table.allocations):
            continue  # the registers are not those of an iteration
        held = int.from_bytes(ctypes.string_at(address, access.size), "little")
        near, read = launch.table.nearest(address), access.instruction.text
        phrase = f"{address:#x} ({near}), which holds {held:#x}, by {read!r}"
        if compared is not None:
            instruction, other = compared
            phrase += f", compared with {_value(wf, other, row, lane):#x} by {instruction.text!r}"
        phrases.setdefault(phrase, []).append(wave)
    return phrases


def _value(wf: Wavefronts, operand: Operand, row: int, lane: int) -> int:
    """Return an operand's bits in one lane, as an unsigned number."""
    if operand.space == "s":
        words = [int(wf.s[row, operand.register + word]) for word in range(operand.count)]
    elif operand.space == "v":
        numbers = range(operand.register, operand.register + operand.count)
        words = [int(wf.v[number >> 1][row, lane, number & 1]) for number in numbers]
    else:
        words = [operands.constant_word(operand, "u32")]
    return sum(word << 32 * place for place, word in enumerate(words))
