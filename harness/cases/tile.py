"""One or several launches of a kernel that gives its tiles to a tile-level collective."""

from __future__ import annotations

from dataclasses import dataclass

from harness.cases.dtypes import DType
from harness.cases.registry import case_type

TILE_MOVES = ("all_gather_rows", "all_gather_columns", "all_to_all", "gather")
TILE_SUMS = (
    "all_reduce_one_shot", "all_reduce_two_shot", "all_reduce_ring", "all_reduce_atomic", "all_reduce_spinlock",
    "reduce_scatter",
)  # fmt: skip


@case_type
@dataclass(frozen=True)
class TileCase:
    """``op`` is of ``TILE_MOVES`` or ``TILE_SUMS``; each rank has an (m, n) matrix, cut into block_m x block_n tiles.

    ``programs`` work-groups of ``warps`` wavefronts take the tiles in turns; 0: as many as there are tiles. ``wide``:
    rows are contiguous and ``n`` and the pads divide by 16, which the kernel knows, and the collective is a method of
    the context; else it is a function, and the kernel knows nothing of sizes and strides. ``in_pad`` and ``out_pad``
    are elements between rows; ``turned``: between columns, of transposed matrices. ``root``: whom gather reads.
    ``calls`` launches follow one another on the same tensors. Rank ``skewed`` (-1: none) is ``skew_ms`` late for each.
    """

    op: str = "all_gather_rows"
    dtype: DType = "fp16"
    m: int = 1
    n: int = 1
    block_m: int = 4
    block_n: int = 16
    warps: int = 1
    programs: int = 0
    wide: bool = False
    in_pad: int = 0
    out_pad: int = 0
    turned: bool = False
    root: int = 0
    calls: int = 1
    skewed: int = -1
    skew_ms: int = 0

    @property
    def tiles(self) -> int:
        """Tiles of the matrix."""
        return -(-self.m // self.block_m) * -(-self.n // self.block_n)
