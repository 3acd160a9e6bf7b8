"""The case type of atomics: one operation per lane, several lanes and ranks on the same cell."""

from __future__ import annotations

from dataclasses import dataclass

from harness.cases.dtypes import DType
from harness.cases.registry import case_type


@case_type
@dataclass(frozen=True)
class AtomicCase:
    """Atomics of rank r on ``cells`` cells of each rank in ``targets[r]``, with ``n`` lanes; lane i uses cell i %
    cells. ``runs``: of each 64 lanes, 33, 16, 8, 4, 2 and 1 use cells 0 to 5, in no order, so that code which combines
    the lanes of a cell has to combine every number of them; only for ops that do not need a bit for each operation.

    ``spt`` is the number of elements per thread; 0 is the scalar form: one operation per work-group, n work-groups.
    ``warps`` is the number of wavefronts per work-group. ``returned``: the kernel uses the old values; otherwise the
    compiler may emit the instruction that returns no value. ``mask`` names a pattern of ``kept_lanes``; ``atomic_cas``
    has no mask. ``sem`` and ``scope`` None are Triton's defaults. ``offset`` is the number of elements before the first
    cell. ``high``: initial values are near the end of the dtype's range, so that integer sums wrap and bit 31 or 63
    changes. ``form`` is one of ``forms.FORMS``.
    """

    op: str = "add"
    dtype: DType = "int32"
    n: int = 1
    cells: int = 1
    targets: tuple[tuple[int, ...], ...] = ((1,), ())
    spt: int = 1
    warps: int = 1
    mask: str = "range"
    returned: bool = True
    sem: str | None = None
    scope: str | None = None
    offset: int = 0
    high: bool = False
    form: str = "gluon"
    runs: bool = False

    @property
    def block(self) -> int:
        """Lanes of one work-group (1 in the scalar form)."""
        return max(1, self.spt * 64 * self.warps if self.spt else 1)

    @property
    def grid(self) -> int:
        """Number of work-groups."""
        return max(1, -(-self.n // self.block))
