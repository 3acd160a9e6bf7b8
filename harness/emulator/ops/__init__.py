"""All instructions: importing this package fills ``table.TABLE``. A new opcode is one entry in the file of its class."""

from harness.emulator.ops import atomics, control, crosslane, lds, memory, scalar, vector
from harness.emulator.ops.table import TABLE, find

__all__ = ["TABLE", "atomics", "control", "crosslane", "find", "lds", "memory", "scalar", "vector"]
