"""Exceptions of the emulator: faults of a kernel, and limits of the emulator itself.

``KernelFault`` (from ``harness.errors``); the faults of a launch are also a ``RuntimeError``, as a GPU's errors are
    ``MemoryFault``      an address outside every known allocation, or a misaligned atomic
    ``KernelTrap``       the kernel executed ``s_trap``
    ``DeviceAssert``     a ``tl.device_assert`` failed
    ``UndefinedValue``, ``MissingWait``, ``MissingWaitStates``, ``LdsRace``, ``BarrierDivergence``   mode ``check`` only
    ``DataRace``         mode ``race`` only
    ``NoProgress``       every wavefront polls memory that no other wavefront or process will change
    ``TimeLimit``        the launch ran longer than ``driver.time_limit``
``HarnessError``
    ``UnimplementedInstruction``   an opcode or operand form that the emulator does not have: not the kernel's fault
``ListingError`` (a ``ValueError``)   a listing that cannot be run: another arch, no kernel, an unknown directive
"""

from __future__ import annotations

from typing import Any

from harness.errors import HarnessError, KernelFault


class ListingError(ValueError):
    """The listing cannot be run; the message gives the reason. Raised before anything runs."""


class UnimplementedInstruction(HarnessError):  # noqa: N818 - what happened is the better name
    """The emulator lacks an opcode or an operand form; the message names it, the kernel and the source line."""


class DeviceFault(KernelFault, RuntimeError):  # noqa: N818 - the field's term
    """Fault of a kernel with the place where it happened; ``report()`` returns it as plain data for evidence.

    It is a ``RuntimeError``, as the errors of PyTorch and Triton on a GPU are: programs catch that.
    """

    def __init__(self, message: str, **where: object) -> None:
        super().__init__(message)
        self.where = where

    def report(self) -> dict[str, object]:
        """Return the fault as plain data: kind, message, kernel, instruction, source, wavefront, lane, address."""
        return {"kind": type(self).__name__, "message": str(self), **self.where}

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), str(self), self.where)


class MemoryFault(DeviceFault):
    """A lane accessed memory outside every known allocation, or with an alignment that the instruction forbids."""


class KernelTrap(DeviceFault):
    """The kernel executed ``s_trap``."""


class DeviceAssert(DeviceFault):
    """A ``tl.device_assert`` failed, in a kernel compiled with ``debug=True``.

    The message begins with the assert's own text, followed by the kernel's last output.
    """


class NoProgress(DeviceFault):
    """Every remaining wavefront polls memory that nothing will change; the message names the address each one polls."""


class TimeLimit(DeviceFault):
    """The launch ran longer than the driver's ``time_limit``; the message has the position of each wavefront."""


class UndefinedValue(DeviceFault):
    """An address, a branch condition or stored data depends on bits that were never written."""


class MissingWait(DeviceFault):
    """A register was used before the s_waitcnt for the load that writes it."""


class MissingWaitStates(DeviceFault):
    """Two instructions have fewer wait states (s_nop) between them than gfx942 needs; raised before anything runs."""


class LdsRace(DeviceFault):
    """Two wavefronts accessed the same byte of the local data share without synchronization, and one of them wrote."""


class DataRace(DeviceFault):
    """Two accesses to one byte of global memory, at least one a write, without a happens-before order; names both."""

    BEGINS = "data race on "
    """The first words of every message."""


class BarrierDivergence(DeviceFault):
    """Wavefronts of one work-group waited at different ``s_barrier`` instructions."""


def _rebuild(kind: type[DeviceFault], message: str, where: dict[str, object]) -> DeviceFault:
    return kind(message, **where)
