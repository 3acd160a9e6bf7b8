"""gfx942 and gfx950 on the CPU: a Triton driver that executes the amdgcn code which Triton compiled.

    from harness import emulator
    emulator.activate()
    kernel[grid](cpu_tensor, ...)

The kernel is compiled as for an MI300X (gfx942) or an MI350 (gfx950), and its machine code runs here, on CPU
tensors. ``drain_launches`` of the active driver tells what was executed; a bad address raises ``MemoryFault`` with
the kernel's source line.
"""

from harness.emulator.counters import Access, LaunchRecord
from harness.emulator.driver import EmulatedDriver, activate, deactivate, describe
from harness.emulator.faults import (
    DataRace,
    DeviceAssert,
    DeviceFault,
    KernelTrap,
    ListingError,
    MemoryFault,
    NoProgress,
    UnimplementedInstruction,
)
from harness.emulator.limits import ARCHS
from harness.emulator.together import together

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
    "UnimplementedInstruction",
    "activate",
    "deactivate",
    "describe",
    "together",
]
