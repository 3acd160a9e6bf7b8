"""What a device did while a case ran: one recorder protocol, one source per kind of device.

A *window* is what a recorder saw between ``begin`` and ``end``: plain JSON data with the key ``source``, counts, and
seconds of wall clock. Each rank records its own windows; ``merge_windows`` makes one of them for the case.
"""

from harness.telemetry.emulated import EmulatedRecorder, launches_by_kernel, merge_launches
from harness.telemetry.recorder import Recorder, Window, merge_windows

__all__ = ["EmulatedRecorder", "Recorder", "Window", "launches_by_kernel", "merge_launches", "merge_windows"]
