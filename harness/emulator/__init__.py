"""gfx942 on the CPU: a Triton driver that executes the amdgcn code which Triton compiled.

    from harness import emulator
    emulator.activate()
    kernel[grid](cpu_tensor, ...)

The kernel is compiled for gfx942 as on an MI300X, and its machine code runs here, on CPU tensors. ``drain_launches`` of
the active driver tells what was executed; a bad address raises ``MemoryFault`` with the kernel's source line.
"""

from harness.emulator.counters import Access, LaunchRecord
from harness.emulator.driver import ARCHS, EmulatedDriver, activate, deactivate, describe
from harness.emulator.faults import (
    DeviceFault,
    KernelTrap,
    ListingError,
    MemoryFault,
    UnimplementedInstruction,
)

__all__ = [
    "ARCHS",
    "Access",
    "DeviceFault",
    "EmulatedDriver",
    "KernelTrap",
    "LaunchRecord",
    "ListingError",
    "MemoryFault",
    "UnimplementedInstruction",
    "activate",
    "deactivate",
    "describe",
]
