"""Access descriptors for mapped memory, laid out and named as in HIP's C interface (hip_runtime_api.h)."""

from __future__ import annotations

import ctypes

__all__ = [
    "hipMemAccessDesc",
    "hipMemAccessFlagsProtNone",
    "hipMemAccessFlagsProtRead",
    "hipMemAccessFlagsProtReadWrite",
    "hipMemLocation",
    "hipMemLocationTypeDevice",
]

hipMemLocationTypeDevice = 1  # noqa: N816 - HIP's name
hipMemAccessFlagsProtNone = 0  # noqa: N816 - HIP's name
hipMemAccessFlagsProtRead = 1  # noqa: N816 - HIP's name
hipMemAccessFlagsProtReadWrite = 3  # noqa: N816 - HIP's name

_FLAGS = (hipMemAccessFlagsProtNone, hipMemAccessFlagsProtRead, hipMemAccessFlagsProtReadWrite)


class hipMemLocation(ctypes.Structure):  # noqa: N801 - HIP's name
    """A place for memory: ``type`` (``hipMemLocationTypeDevice``) and ``id``, the device's ordinal."""

    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))
    type: int
    id: int


class hipMemAccessDesc(ctypes.Structure):  # noqa: N801 - HIP's name
    """The access of one device: its ``location`` and ``flags``, one of the ``hipMemAccessFlagsProt...``."""

    _fields_ = (("location", hipMemLocation), ("flags", ctypes.c_int))
    location: hipMemLocation
    flags: int

    @classmethod
    def read_write(cls, device_id: int) -> hipMemAccessDesc:
        """Return the descriptor that lets a device read and write."""
        return cls(hipMemLocation(hipMemLocationTypeDevice, device_id), hipMemAccessFlagsProtReadWrite)

    def check(self) -> None:
        """Raise ValueError unless the location is a device and the flags are known."""
        if self.location.type != hipMemLocationTypeDevice:
            raise ValueError(
                f"an access descriptor's location.type must be hipMemLocationTypeDevice "
                f"({hipMemLocationTypeDevice}), got {self.location.type}"
            )
        if self.flags not in _FLAGS:
            raise ValueError(f"an access descriptor's flags must be one of {_FLAGS}, got {self.flags}")
