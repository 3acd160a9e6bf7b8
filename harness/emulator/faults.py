"""What an emulated kernel can fault on, and what the emulator cannot do.

``KernelFault`` (from ``harness.errors``)
    ``MemoryFault``      an address outside every known allocation, or a misaligned atomic
    ``KernelTrap``       the kernel executed s_trap
    ``DeviceAssert``     a tl.device_assert failed
    ``UndefinedValue``, ``MissingWait``, ``LdsRace``, ``BarrierDivergence``   mode ``check`` only
    ``DataRace``         mode ``race`` only
    ``NoProgress``       every wavefront polls memory that nobody will change
``HarnessError``
    ``UnimplementedInstruction``   an opcode or operand form that the emulator does not have: not the kernel's fault
``ListingError`` (a ``ValueError``)   a listing that cannot be run: another arch, no kernel, an unknown directive
"""

from __future__ import annotations

from typing import Any

from harness.errors import HarnessError, KernelFault


class ListingError(ValueError):
    """The listing cannot be run; says why, before anything runs."""


class UnimplementedInstruction(HarnessError):  # noqa: N818 - what happened is the better name
    """The emulator lacks an opcode or an operand form: names opcode, operands, kernel and source line."""


class DeviceFault(KernelFault):
    """A fault with the place where it happened; ``report()`` is plain data for evidence."""

    def __init__(self, message: str, **where: object) -> None:
        super().__init__(message)
        self.where = where

    def report(self) -> dict[str, object]:
        """The fault as plain data: kind, message, kernel, instruction, source, wavefront, lane, address."""
        return {"kind": type(self).__name__, "message": str(self), **self.where}

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), str(self), self.where)


class MemoryFault(DeviceFault):
    """A lane accessed memory outside every known allocation, or with an alignment that the instruction forbids."""


class KernelTrap(DeviceFault):
    """The kernel executed ``s_trap``."""


class DeviceAssert(DeviceFault):
    """A ``tl.device_assert`` failed, in a kernel compiled with ``debug=True``; the message begins with the assert's
    own text, followed by what the kernel had printed."""


class NoProgress(DeviceFault):
    """Every wavefront that is left waits for memory that nobody will change; the message names what each polls."""


class UndefinedValue(DeviceFault):
    """An address, a decision or stored data depends on bits that nobody has written."""


class MissingWait(DeviceFault):
    """A register was used before the s_waitcnt for the load that writes it."""


class LdsRace(DeviceFault):
    """Two wavefronts accessed the same byte of the local data share, one of them writing, with no order between."""


class DataRace(DeviceFault):
    """Two accesses to one byte of global memory, one of them writing, that no happens-before orders; names both."""


class BarrierDivergence(DeviceFault):
    """The wavefronts of a work-group did not meet at one s_barrier."""


def _rebuild(kind: type[DeviceFault], message: str, where: dict[str, object]) -> DeviceFault:
    return kind(message, **where)
