"""All instructions: importing this package fills ``table.TABLE``. A new opcode is one entry in the file of its
class."""

from harness.emulator.ops import (
    atomics,
    compare,
    control,
    convert,
    crosslane,
    dot,
    extremes,
    floating,
    integer,
    lds,
    lds_atomics,
    lds_copies,
    matrix,
    memory,
    packed,
    reduction,
    scalar,
    vector,
)
from harness.emulator.ops.table import TABLE, find

__all__ = [
    "TABLE",
    "atomics",
    "compare",
    "control",
    "convert",
    "crosslane",
    "dot",
    "extremes",
    "find",
    "floating",
    "integer",
    "lds",
    "lds_atomics",
    "lds_copies",
    "matrix",
    "memory",
    "packed",
    "reduction",
    "scalar",
    "vector",
]
