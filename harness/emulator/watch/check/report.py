"""Functions that raise the faults of mode ``check``."""

from __future__ import annotations

from typing import NoReturn

import numpy as np

from harness.emulator.execution.launch import Chunk
from harness.emulator.faults import MissingWait, UndefinedValue
from harness.emulator.listing.instructions import Instruction
from harness.emulator.watch.check import shadow as registers
from harness.emulator.watch.check.queues import Operation, Path
from harness.emulator.wavefront.state import LANES, Wavefronts


def undefined(wf: Wavefronts, instruction: Instruction, lane: int, message: str, **details: object) -> NoReturn:
    """Raise a fault: a value that flat lane ``lane`` uses depends on undefined bits."""
    if wf.shadow.loaded:
        message += f" (memory that was never written was loaded from {wf.shadow.loaded})"
    chunk: Chunk = wf.chunk
    chunk.raise_fault(message, wf, instruction, lane, kind=UndefinedValue, **details)


def missing_wait(wf: Wavefronts, instruction: Instruction, names: int, operation: Operation, path: Path) -> NoReturn:
    """Raise a fault: ``instruction`` uses a register of ``names``, which ``operation`` has yet to write."""
    row = 0 if path.rows is None else int(np.flatnonzero(path.rows)[0])
    loading = operation.instruction
    counter = "vmcnt" if operation in path.vm else "lgkmcnt"
    register = registers.first_of(operation.results & names)
    chunk: Chunk = wf.chunk
    chunk.raise_fault(
        f"{register} used before the s_waitcnt {counter} for its load {loading.text!r} (at {loading.source})",
        wf,
        instruction,
        row * LANES,
        kind=MissingWait,
        register=register,
        load=loading.text,
        load_source=[str(frame) for frame in loading.frames],
    )
