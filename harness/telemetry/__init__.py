"""Telemetry of devices while cases run: one recorder protocol, one source per kind of device.

On the emulated device each rank records its own *windows*: the counts between ``begin`` and ``end`` as plain JSON data,
with the key ``source`` and seconds of wall clock. ``merge_windows`` combines them into one window for the case.

GPUs are sampled from outside, by a process that reads their ``Library`` at a set rate (``Watch``); a case's window is
made from the samples around it.
"""

from harness.telemetry.emulated import EmulatedRecorder, launches_by_kernel, merge_launches
from harness.telemetry.fields import FIELDS
from harness.telemetry.recorder import Recorder, merge_windows
from harness.telemetry.source import Library
from harness.telemetry.watch import Watch, Window

__all__ = [
    "FIELDS",
    "EmulatedRecorder",
    "Library",
    "Recorder",
    "Watch",
    "Window",
    "launches_by_kernel",
    "merge_launches",
    "merge_windows",
]
