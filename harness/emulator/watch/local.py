"""LDS accesses and scalar loads in flight in mode ``weak``: coherent, performed in order, at any time until a wait."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from harness.emulator.operations.table import Step

if TYPE_CHECKING:
    from harness.emulator.execution.launch import Launch
    from harness.emulator.wavefront.single import SingleWavefront


@dataclass
class Local:
    """An LDS access or scalar load in flight: ``step`` runs on a copy of the wavefront, made when it was issued.

    ``vectors`` and ``scalars`` are the registers that it writes.
    """

    wf: SingleWavefront
    issued: SingleWavefront
    step: Step
    vectors: tuple[int, ...]
    scalars: tuple[int, ...]

    def perform(self) -> None:
        self.step(self.issued)
        mask = self.issued.exec_mask[0]
        for register in self.vectors:
            old, new = (w.v[register >> 1][0, :, register & 1] for w in (self.wf, self.issued))
            np.copyto(old, new, where=mask)
        for register in self.scalars:
            self.wf.s[0, register] = self.issued.s[0, register]
        self.issued.free()


@dataclass(eq=False)
class Queue:
    """LDS accesses and scalar loads of one wavefront in flight. ``order`` numbers the wavefronts by their first one."""

    order: int
    launch: Launch
    accesses: deque[Local] = field(default_factory=deque)
