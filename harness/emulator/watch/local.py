"""LDS accesses and scalar loads in flight in mode ``weak`` that Python performs; ``native.queues`` decides when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.emulator.native.local import Numbers, give
from harness.emulator.operations.table import Step

if TYPE_CHECKING:
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
