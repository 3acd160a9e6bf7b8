"""The case type of tile-level collectives."""

from __future__ import annotations

from dataclasses import dataclass

from harness.cases.dtypes import DType
from harness.cases.registry import case_type


@case_type
@dataclass(frozen=True)
class TileCase:
    """Launches of a kernel that calls a tile-level collective for each of its tiles.

    ``op`` is a key of ``operations.TILES``. Each rank has an (m, n) matrix, cut into block_m x block_n tiles.
    ``programs`` work-groups of ``warps`` wavefronts process the tiles in turn; 0 means one work-group per tile.
    ``methods``: call the collective as a method of the context instead of a function. ``aligned``: rows are contiguous,
    ``n`` and the pads are multiples of 16, and the kernel is specialized on that; otherwise on no size or stride.
    ``in_pad`` and ``out_pad`` are the unused elements between rows or, if ``turned``, between the columns of transposed
    matrices. ``root`` is the rank that gather reads. The ``calls`` launches use the same tensors. Rank ``skewed``
    (-1: none) is delayed by ``skew_ms`` before each launch.
    """

    op: str = "all_gather_rows"
    dtype: DType = "fp16"
    m: int = 1
    n: int = 1
    block_m: int = 4
    block_n: int = 16
    warps: int = 1
    programs: int = 0
    methods: bool = False
    aligned: bool = False
    in_pad: int = 0
    out_pad: int = 0
    turned: bool = False
    root: int = 0
    calls: int = 1
    skewed: int = -1
    skew_ms: int = 0

    @property
    def tiles(self) -> int:
        """Number of tiles of the matrix."""
        return -(-self.m // self.block_m) * -(-self.n // self.block_n)
