"""The case type of kernels that record events while they move blocks."""

from __future__ import annotations

from dataclasses import dataclass

from harness.cases.dtypes import DType, size_of
from harness.cases.registry import case_type


@case_type
@dataclass(frozen=True)
class TraceCase:
    """``launches`` launches of ``grid`` programs, in which each program puts its block once for every event of
    ``kinds``.

    ``form``: "gluon" or "triton". ``step``: distance in ranks to the target. ``n``: number of elements over all
    programs that the mask ``offsets < n`` keeps. ``masked``: the mask is passed to the events. ``ended``: the events
    are ended. ``room``: number of events that fit in the buffers. ``wrapped``: later launches count past 2^31. ``spt``:
    elements per thread.
    """

    form: str = "gluon"
    kinds: tuple[int, ...] = (3,)
    dtype: DType = "int32"
    step: int = 1
    grid: int = 1
    n: int = 1
    masked: bool = True
    ended: bool = True
    launches: int = 1
    room: int = 64
    wrapped: bool = False
    spt: int = 1
    warps: int = 1

    @property
    def block(self) -> int:
        """Elements per program."""
        return self.spt * 64 * self.warps

    def acts(self, rank: int, ranks: int) -> bool:
        """Return whether a rank launches its kernel. Each rank compiles its own with ``DeviceContext``, so all ranks
        launch the kernel with a put's event only, and one rank each other one."""
        return self.form == "gluon" or self.kinds == (3,) or rank == (1 + self.kinds[0]) % ranks

    @property
    def count(self) -> int:
        """Events of a rank that launches its kernel."""
        return self.launches * self.grid * len(self.kinds)

    def payload(self, program: int) -> int:
        """Return the bytes that an event of that program moves, or 0 if the event gets no mask."""
        kept = min(max(self.n - program * self.block, 0), self.block)
        return kept * size_of(self.dtype) if self.masked else 0
