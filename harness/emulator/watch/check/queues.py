"""Memory operations that a wavefront has issued and not waited for: the counters vmcnt and lgkmcnt.

Source: AMD "CDNA3 ISA", "Data dependency resolution", and LLVM AMDGPU "gfx9 waitcnt". vmcnt has 6 bits and lgkmcnt 4;
an all-ones field waits for nothing, and a wavefront whose counter is full stalls before it issues another operation.
Vector memory operations complete in the order of their issue, and so do those of the local data share among themselves;
scalar loads complete in any order, so only lgkmcnt(0) guarantees that a particular one has completed.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from harness.emulator.listing.instructions import Instruction

VMCNT_MOST, LGKMCNT_MOST = 63, 15
VECTOR_MEMORY, DATA_SHARE, SCALAR_MEMORY = "vector memory", "local data share", "scalar memory"
_FIELD = re.compile(r"(vmcnt|lgkmcnt|expcnt)\((\w+)\)")


class Operation(NamedTuple):
    """One outstanding operation: its unit, its instruction, and the set of registers that it will write.

    ``writes_lds``: it writes the local data share.
    """

    unit: str
    instruction: Instruction
    results: int = 0
    writes_lds: bool = False


class Path:
    """Outstanding operations of wavefronts with the same past. ``rows``: these wavefronts, None for all."""

    __slots__ = ("lgkm", "rows", "vm")

    def __init__(self, rows: np.ndarray | None, vm: list[Operation], lgkm: list[Operation]) -> None:
        self.rows = rows
        self.vm = vm
        self.lgkm = lgkm


class Queues:
    """Outstanding operations of W wavefronts: one ``Path``, or several after wavefronts of different paths reconverged.

    ``due`` is the set of all registers that are still to be written.
    """

    __slots__ = ("due", "paths")

    def __init__(self, paths: list[Path] | None = None, due: int = 0) -> None:
        self.paths = [Path(None, [], [])] if paths is None else paths
        self.due = due

    def issue(self, operation: Operation) -> None:
        """Add an operation; if its counter is full, the oldest one has completed."""
        self.due |= operation.results
        for path in self.paths:
            queue, limit = (path.vm, VMCNT_MOST) if operation.unit == VECTOR_MEMORY else (path.lgkm, LGKMCNT_MOST)
            queue.append(operation)
            if len(queue) > limit and queue[0].unit != SCALAR_MEMORY:
                del queue[0]

    def wait(self, vm: int, lgkm: int) -> None:
        """Execute an s_waitcnt: at most ``vm`` and ``lgkm`` operations stay outstanding."""
        self.due = 0
        for path in self.paths:
            if vm < len(path.vm):
                del path.vm[: len(path.vm) - vm]
            if lgkm == 0:
                path.lgkm.clear()
            elif lgkm < len(path.lgkm):
                data_share = sum(o.unit == DATA_SHARE for o in path.lgkm)
                path.lgkm = _without_oldest(path.lgkm, data_share - lgkm)
            for operation in (*path.vm, *path.lgkm):
                self.due |= operation.results

    def find(self, names: int, in_order: str | None) -> tuple[Operation, Path] | None:
        """Return an outstanding operation that will write one of the registers ``names``, none of unit ``in_order``."""
        for path in self.paths:
            for operation in (*path.vm, *path.lgkm):
                if operation.results & names and operation.unit != in_order:
                    return operation, path
        return None

    def select(self, rows: np.ndarray, count: int) -> Queues:
        """Return the queues of the wavefronts ``rows`` (bool[count] or indices)."""
        paths = []
        for path in self.paths:
            kept = None if path.rows is None else path.rows[rows]
            if kept is None or kept.any():
                paths.append(Path(None if kept is None or kept.all() else kept, list(path.vm), list(path.lgkm)))
        return Queues(paths, self.due)

    @staticmethod
    def merge(parts: list[Queues], counts: list[int]) -> Queues:
        """Return the queues of reconverged wavefronts; paths with the same outstanding operations are merged."""
        total, start, due = sum(counts), 0, 0
        merged: list[Path] = []
        for part, count in zip(parts, counts, strict=True):
            due |= part.due
            for path in part.paths:
                rows = np.zeros(total, np.bool_)
                rows[start : start + count] = True if path.rows is None else path.rows
                same = next((m for m in merged if m.vm == path.vm and m.lgkm == path.lgkm), None)
                if same is None:
                    merged.append(Path(rows, path.vm, path.lgkm))
                else:
                    same.rows = rows if same.rows is None else same.rows | rows
            start += count
        if len(merged) == 1:
            merged[0].rows = None
        return Queues(merged, due)


def counts_of(instruction: Instruction) -> tuple[int, int]:
    """Return the vmcnt and lgkmcnt of an s_waitcnt; ``VMCNT_MOST`` and ``LGKMCNT_MOST`` if it does not wait.

    The operand consists of names, or is a number: vmcnt in the bits 15:14 and 3:0, lgkmcnt in 11:8 (LLVM AMDGPU "gfx9
    waitcnt").
    """
    operand = instruction.text.partition(instruction.mnemonic)[2].strip()
    if operand[:1].isdigit():
        number = int(operand, 0)
        return number & 0xF | number >> 10 & 0x30, number >> 8 & 0xF
    fields = {name: int(value, 0) for name, value in _FIELD.findall(operand)}
    return fields.get("vmcnt", VMCNT_MOST), fields.get("lgkmcnt", LGKMCNT_MOST)


def _without_oldest(queue: list[Operation], count: int) -> list[Operation]:
    """Return ``queue`` without the ``count`` oldest operations of the local data share."""
    kept = []
    for operation in queue:
        if operation.unit == DATA_SHARE and count > 0:
            count -= 1
        else:
            kept.append(operation)
    return kept
