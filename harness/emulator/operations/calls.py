"""``s_getpc_b64``, which returns the address of the next instruction.

Calls and returns (``s_swappc_b64``, ``s_setpc_b64``) end a basic block, so the package ``program`` implements them.

Source: AMD "CDNA3 ISA", SOP1. ``symbols`` assigns the addresses of code.
"""

from __future__ import annotations

from harness.emulator.listing import symbols
from harness.emulator.operations.table import instruction


@instruction("s_getpc_b64", klass="salu")
def program_counter(instruction, context):
    """s_getpc_b64: the address of the next instruction."""
    target = context.operand(instruction.operands[0]).register
    address = symbols.address_of(instruction.index + 1)
    low, high = address & 0xFFFFFFFF, address >> 32

    def step(wf):
        wf.s[:, target], wf.s[:, target + 1] = low, high

    return step
