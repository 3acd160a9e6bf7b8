"""gfx942 and gfx950 on the CPU: a Triton driver that executes the amdgcn code which Triton compiled.

    from harness import emulator
    emulator.activate()
    kernel[grid](cpu_tensor, ...)

The kernel is compiled for an MI300X (gfx942) or an MI350 (gfx950), and its machine code is executed here, on CPU
tensors. ``drain_launches`` of the active driver returns a record of each launch; a bad address raises ``MemoryFault``
with the kernel's source line.

Packages, each of which imports only those listed above it:

    faults       exceptions: faults of a kernel, and limits of the emulator
    stamps       when numba's functions on disk are stale
    compilation  numba's functions: compiled once per machine, then loaded
    listing      parses the text of a kernel: instructions, symbols, limits
    native       functions compiled by numba: the only code that touches real addresses
    wavefront    registers of wavefronts, operands, DPP patterns
    operations   the instruction table: one entry for each opcode
    program      a kernel decoded and ready to run, with hot code compiled by LLVM
    execution    one launch: allocations, work-groups, counters
    watch        modes that observe a launch: check, race, weak, trace
    driver       the Triton driver, and the scheduler of wavefronts
"""

from harness.emulator.driver.driver import EmulatedDriver, activate, deactivate, describe
from harness.emulator.driver.ranks import concurrent_ranks
from harness.emulator.execution.counters import Access, LaunchRecord
from harness.emulator.faults import (
    DataRace,
    DeviceAssert,
    DeviceFault,
    KernelTrap,
    ListingError,
    MemoryFault,
    NoProgress,
    TimeLimit,
    UnimplementedInstruction,
)
from harness.emulator.listing.limits import ARCHS

__all__ = [
    "ARCHS",
    "Access",
    "DataRace",
    "DeviceAssert",
    "DeviceFault",
    "EmulatedDriver",
    "KernelTrap",
    "LaunchRecord",
    "ListingError",
    "MemoryFault",
    "NoProgress",
    "TimeLimit",
    "UnimplementedInstruction",
    "activate",
    "concurrent_ranks",
    "deactivate",
    "describe",
]
