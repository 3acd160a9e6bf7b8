"""Raising the faults of mode ``check``."""

from __future__ import annotations

from typing import NoReturn

import numpy as np

from harness.emulator.faults import MissingWait, UndefinedValue
from harness.emulator.listing import Instruction
from harness.emulator.state import LANES, Wavefronts
from harness.emulator.watch.check import shadow as registers
from harness.emulator.watch.check.queues import Operation, Path


def undefined(wf: Wavefronts, instruction: Instruction, lane: int, what: str, **details: object) -> NoReturn:
    """Something depends on undefined bits in flat lane ``lane``."""
    if wf.shadow.loaded:
        what += f" (memory that nobody has written was loaded from {wf.shadow.loaded})"
    wf.chunk.raise_fault(what, wf, instruction, lane, kind=UndefinedValue, **details)


def missing_wait(wf: Wavefronts, instruction: Instruction, names: int, operation: Operation, path: Path) -> NoReturn:
    """``instruction`` uses a register of ``names``, which ``operation`` has yet to write."""
    row = 0 if path.rows is None else int(np.flatnonzero(path.rows)[0])
    loading = operation.instruction
    counter = "vmcnt" if operation in path.vm else "lgkmcnt"
    register = registers.first_of(operation.results & names)
    wf.chunk.raise_fault(
        f"{register} used before the s_waitcnt {counter} for its load {loading.text!r} (at {loading.source})",
        wf,
        instruction,
        row * LANES,
        kind=MissingWait,
        register=register,
        load=loading.text,
        load_source=[str(frame) for frame in loading.frames],
    )
