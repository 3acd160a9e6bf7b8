"""Communication of wavefronts other than by barriers: with it, what they do depends on their order.

Without that, and without a data race, every order gives the same accesses with the same values. If one order has a data
race, so has every other one: up to the first one, all accesses are those of the race-free order.
"""

from __future__ import annotations

from harness.emulator.operations import lds, scalar_memory
from harness.emulator.operations.access import ATOMIC
from harness.emulator.program.decode import Program


def passes_memory(program: Program) -> bool:
    """Return whether wavefronts may communicate by global memory.

    That is by atomics, accesses that pass the caches of a compute unit, scalar stores, or loops that poll.
    """
    return (
        any(site.kind == ATOMIC or site.instruction.modifiers.keys() & {"sc0", "sc1"} for site in program.accesses)
        or any(block.polls for block in program.blocks)
        or any(instruction.mnemonic.startswith(scalar_memory.WRITES) for instruction in program.listing.instructions)
    )


def communicates(program: Program) -> bool:
    """Return whether wavefronts may communicate by global memory, or by atomics of the local data share."""
    if program.communicates is None:
        program.communicates = passes_memory(program) or any(
            lds.is_atomic(instruction.mnemonic) for instruction in program.listing.instructions
        )
    return program.communicates
