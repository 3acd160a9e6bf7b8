"""The devices that kernels run on, all with the same interface.

device = devices.get("emulated", "gfx942")      # UsageError, naming what is missing, if it cannot be used here
device.activate(local_rank)                      # on a rank, before anything else

A *kind* (``Kind``, ``GpuKind``) holds all that is particular to one kind of device: a file here, and a line in
``table``.
"""

from harness.devices.base import Device, Kind
from harness.devices.gpu_kind import GpuKind
from harness.devices.lookup import get, known
from harness.devices.table import crash_line, gpu_kind, gpu_kinds, kind, names, of_all

__all__ = [
    "Device",
    "GpuKind",
    "Kind",
    "crash_line",
    "get",
    "gpu_kind",
    "gpu_kinds",
    "kind",
    "known",
    "names",
    "of_all",
]
