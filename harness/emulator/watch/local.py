"""LDS accesses and scalar loads in flight in mode ``weak``: coherent, performed in order, at any time until a wait."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from harness.emulator.native.local import Numbers, give
from harness.emulator.operations.table import Step

if TYPE_CHECKING:
    from harness.emulator.execution.launch import Launch
    from harness.emulator.wavefront.single import SingleWavefront


@dataclass(slots=True)
class Local:
    """An LDS access or scalar load in flight: ``step`` runs on a copy of the wavefront, made when it was issued.

    ``vectors`` and ``scalars`` are the registers that it writes.
    """

    wf: SingleWavefront
    issued: SingleWavefront
    step: Step
    vectors: Numbers
    scalars: Numbers

    def perform(self) -> None:
        issued, vectors, scalars = self.issued, self.vectors, self.scalars
        self.step(issued)
        give(self.wf.record, issued.record, vectors.address, vectors.count, scalars.address, scalars.count)
        issued.free()


@dataclass(eq=False)
class Queue:
    """LDS accesses and scalar loads of one wavefront in flight. ``order`` numbers the wavefronts by their first one."""

    order: int
    launch: Launch
    accesses: deque[Local] = field(default_factory=deque)
