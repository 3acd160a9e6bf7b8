"""Hypothesis strategies for tile-level collectives. They shrink towards one element in one tile, called once."""

from __future__ import annotations

from hypothesis import strategies as st

from harness.cases.tile import TileCase

KERNELS = {
    "all_gather_rows": (("int16", 4, 16, 1), ("fp32", 8, 128, 4)),
    "all_gather_columns": (("int8", 8, 8, 1), ("fp16", 16, 128, 4)),
    "all_to_all": (("fp64", 4, 16, 1), ("bf16", 16, 128, 4)),
    "gather": (("int32", 4, 16, 1), ("fp16", 8, 64, 1)),
    "all_reduce_one_shot": (("fp32", 4, 16, 1), ("fp16", 16, 128, 4)),
    "all_reduce_two_shot": (("fp32", 4, 16, 1), ("bf16", 32, 128, 8)),
    "all_reduce_ring": (("fp32", 4, 16, 1), ("fp16", 16, 128, 4)),
    "all_reduce_atomic": (("fp32", 4, 16, 1), ("bf16", 8, 64, 1)),
    "all_reduce_spinlock": (("int64", 4, 16, 1), ("fp16", 16, 128, 4)),
    "reduce_scatter": (("int8", 4, 16, 1), ("int32", 8, 128, 4)),
}
"""What the kernel of an op is compiled for, not wide and wide: dtype, block, wavefronts. A choice, for a compile costs
as much as many cases: each dtype and each number of wavefronts is there, and of sums each in narrow and wide."""


@st.composite
def tile_collectives(draw: st.DrawFn, ranks: int, op: str) -> TileCase:
    """Whole tiles and ragged edges, matrices smaller than a tile, no elements, padding, transposed, a late rank."""
    wide = draw(st.booleans())
    dtype, block_m, block_n, warps = KERNELS[op][wide]

    def extent(block: int, step: int) -> int:
        kind = draw(st.sampled_from(["few", "whole", "edge", "several", "none"]))
        size = draw(st.integers(1, 2 * block // step)) * step
        return {
            "few": min(size, 3 * step),
            "whole": block * (1 + size % 2),
            "edge": block + step * (size % 3 - 1),
            "several": block + size,
            "none": 0,
        }[kind]

    m, n = extent(block_m, 1), extent(block_n, 16 if wide else 1)
    late = draw(st.sampled_from([False, False, True]))
    pads = st.sampled_from([0, 16] if wide else [0, 3])
    return TileCase(
        op=op,
        dtype=dtype,
        m=m,
        n=n,
        block_m=block_m,
        block_n=block_n,
        warps=warps,
        programs=draw(st.sampled_from([0, 1, 3])),
        wide=wide,
        in_pad=draw(pads),
        out_pad=draw(pads),
        turned=not wide and draw(st.booleans()),
        root=draw(st.integers(0, ranks - 1)),
        calls=draw(st.sampled_from([1, 1, 2])),
        skewed=draw(st.integers(0, ranks - 1)) if late else -1,
        skew_ms=draw(st.integers(1, 8)) if late else 0,
    )
