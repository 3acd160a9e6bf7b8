"""The floor: what NumPy itself takes for the array operations of a launch, each executed once on all lanes.

Counted are vector instructions, each as one operation of NumPy on arrays with an element for every lane of the grid,
timed in the same run on the same core:

- a vector ALU instruction is one ``np.add`` of uint32, whatever it computes;
- a lane-addressed access (global memory or local data share) is one ``take`` (load) or ``put`` (store) of elements as
  wide as the access, at consecutive indices; an atomic is both; an access of two parts counts twice;
- an MFMA is one batched ``matmul`` of float32 matrices of its shape.

Scalar instructions, waits, branches, scheduling and the launch itself cost nothing here. A loop counts as often as it
was run. So nothing that executes instruction by instruction in NumPy can be faster, but a compiler that fuses
instructions can.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from statistics import median

import numpy as np

from harness.emulator.execution.launch import Launch
from harness.emulator.listing.instructions import Instruction
from harness.emulator.operations import find

_BYTES = {"byte": 1, "ubyte": 1, "sbyte": 1, "short": 2, "ushort": 2, "sshort": 2, "dword": 4, "dwordx2": 8,
          "dwordx3": 12, "dwordx4": 16, "b8": 1, "u8": 1, "i8": 1, "b16": 2, "u16": 2, "i16": 2, "b32": 4, "b64": 8,
          "b96": 12, "b128": 16}  # fmt: skip
_MFMA = re.compile(r"v_mfma_(?:scale_)?\w+?_(\d+)x(\d+)x(\d+)")


def executed(launch: Launch) -> Iterator[tuple[Instruction, int]]:
    """Each instruction that has an effect, with the number of wavefronts that executed it."""
    for segment, waves in zip(launch.program.segments, launch.waves, strict=True):
        for instruction in segment.instructions:
            if waves:
                yield instruction, waves


def seconds(launch: Launch) -> float:
    """The floor of a launch in seconds."""
    grid = launch.groups * launch.waves_per_group
    counts: Counter[tuple[str, int]] = Counter()
    for instruction, waves in executed(launch):
        for operation in _operations(instruction, launch.program.listing.arch):
            counts[operation] += waves
    return sum(waves / grid * _seconds(operation, grid) for operation, waves in counts.items())


def _operations(instruction: Instruction, arch: str) -> list[tuple[str, int]]:
    """The NumPy operations of an instruction: ("add", 4), ("take", bytes), ("put", bytes) or ("m x n x k", 4)."""
    name = instruction.mnemonic
    if shape := _MFMA.match(name):
        return [("x".join(shape.groups()), 4)]
    klass = getattr(find(name, arch)[0], "klass", "")
    if klass == "valu":
        return [("add", 4)]
    if klass == "atomic":
        return [("take", 4), ("put", 4)]
    if klass not in ("vmem", "lds"):
        return []
    width = max((_BYTES.get(part, 0) for part in name.split("_")), default=0) or 4
    parts = 2 if re.search("(read|write)2", name) else 1
    return [("put" if "store" in name or "write" in name else "take", width)] * parts


@cache
def _seconds(operation: tuple[str, int], waves: int) -> float:
    name, width = operation
    lanes = waves * 64
    if "x" in name:
        m, n, k = (int(size) for size in name.split("x"))
        a, b, c = (np.ones((waves, *shape), np.float32) for shape in ((m, k), (k, n), (m, n)))
        return timed(lambda: np.matmul(a, b, out=c))
    if name == "add":
        x, y, z = (np.ones((waves, 64), np.uint32) for _ in range(3))
        return timed(lambda: np.add(x, y, out=z))
    element = np.dtype(f"u{width}") if width in (1, 2, 4, 8) else np.dtype(f"V{width}")
    memory, values, indices = np.zeros(lanes, element), np.zeros(lanes, element), np.arange(lanes)
    if name == "take":
        return timed(lambda: memory.take(indices, out=values, mode="clip"))
    return timed(lambda: memory.put(indices, values, mode="clip"))


def timed(action: Callable[[], object], repeat: int = 5, at_least: float = 5e-3) -> float:
    """Processor seconds of one call: the median over rounds of about ``at_least`` seconds."""
    action()
    start = time.process_time()
    action()
    calls = max(1, int(at_least / max(time.process_time() - start, 1e-7)))
    rounds = []
    for _ in range(repeat):
        start = time.process_time()
        for _ in range(calls):
            action()
        rounds.append((time.process_time() - start) / calls)
    return median(rounds)
