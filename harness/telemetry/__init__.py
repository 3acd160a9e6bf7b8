"""What a device did while a case ran: one recorder protocol, one source per kind of device.

On the emulated device each rank records its own *windows*: what a recorder saw between ``begin`` and ``end``, plain
JSON data with the key ``source``, counts, and seconds of wall clock; ``merge_windows`` makes one of them for the case.

GPUs are watched from outside, by a process that samples amdsmi or NVML at a set rate (``Watch``); a case's window is
what the samples around it say.
"""

from harness.telemetry.emulated import EmulatedRecorder, launches_by_kernel, merge_launches
from harness.telemetry.fields import FIELDS
from harness.telemetry.recorder import Recorder, merge_windows
from harness.telemetry.watch import SOURCES, Watch, Window

__all__ = [
    "FIELDS",
    "SOURCES",
    "EmulatedRecorder",
    "Recorder",
    "Watch",
    "Window",
    "launches_by_kernel",
    "merge_launches",
    "merge_windows",
]
