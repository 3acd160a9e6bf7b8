"""Moves between scalar registers whose number M0 is added to: ``s_movrels_*`` and ``s_movreld_*``.

Source: AMD "CDNA3 ISA", SOP1. A register beyond the last one is a fault; what the hardware accesses then is not stated.
"""

from __future__ import annotations

import numpy as np

from harness.emulator.operations.table import instruction
from harness.emulator.wavefront.state import LANES, M0

LAST = 101
"""The last scalar register that M0 can select."""


@instruction("s_movrels_b32 s_movrels_b64 s_movreld_b32 s_movreld_b64", klass="salu")
def move(instruction, context):
    target, source = (context.operand(text).register for text in instruction.operands)
    words = 2 if instruction.mnemonic.endswith("b64") else 1
    from_there = instruction.mnemonic.startswith("s_movrels")

    def step(wf):
        offset = wf.s[:, M0].astype(np.int64)
        first = (source if from_there else target) + offset
        bad = first + words - 1 > LAST
        if bad.any():
            wave = int(bad.argmax())
            message = f"s{int(first[wave])} does not exist"
            wf.chunk.raise_fault(message, wf, instruction, LANES * wave)
        rows = np.arange(len(wf))
        values = [wf.s[rows, first + i] if from_there else wf.s[:, source + i].copy() for i in range(words)]
        for i, value in enumerate(values):
            wf.s[rows, (target if from_there else first) + i] = value

    return step
