"""Clocks: ``s_memtime`` counts cycles of the core clock, ``s_memrealtime`` those of the constant 100 MHz clock.

Source: CDNA3 ISA, SMEM. The core clock is assumed to run at 2,100 MHz, an MI300X's peak. In a replayable run (a watched
mode with choices) both count the readings instead of the host's time.
"""

from __future__ import annotations

from harness.emulator.operations.table import instruction
from harness.emulator.wavefront.state import SCALAR, key

_MHZ = {"s_memtime": 2100, "s_memrealtime": 100}


@instruction("s_memtime s_memrealtime", klass="smem")
def clock(instruction, context):
    (target,) = (context.operand(text) for text in instruction.operands)
    to = key(SCALAR, target.register, "u64")
    megahertz = _MHZ[instruction.mnemonic]

    def step(wf):
        wf.view[to][...] = wf.chunk.launch.nanoseconds() * megahertz // 1000

    return step
