"""The devices that kernels run on, each behind the same few lines.

device = devices.get("emulated", "gfx942")      # UsageError when it cannot be used here, naming what is missing
device.activate(local_rank)                      # on a rank, before anything else
"""

from harness.devices.base import Device
from harness.devices.lookup import NAMES, get, known

__all__ = ["NAMES", "Device", "get", "known"]
