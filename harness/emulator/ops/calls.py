"""Addresses of code. Calls themselves (``s_swappc_b64``, ``s_setpc_b64``) end a block and belong to ``program``.

Source: AMD "CDNA3 ISA", SOP1. Where code stands is ``symbols``' business.
"""

from __future__ import annotations

from harness.emulator import symbols
from harness.emulator.ops.table import instruction


@instruction("s_getpc_b64", klass="salu")
def program_counter(instruction, context):
    """The address of the next instruction."""
    target = context.operand(instruction.operands[0]).register
    address = symbols.address_of(instruction.index + 1)
    low, high = address & 0xFFFFFFFF, address >> 32

    def step(wf):
        wf.s[:, target], wf.s[:, target + 1] = low, high

    return step
