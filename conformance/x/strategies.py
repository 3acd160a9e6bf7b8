"""Hypothesis strategies for tile-level collectives. They shrink towards one element in one tile, called once."""

from __future__ import annotations

from hypothesis import strategies as st

from conformance.x.cases import TileCase
from conformance.x.operations import TILES, has_methods


def tile_collectives(ranks: int, op: str) -> list[st.SearchStrategy[TileCase]]:
    """Return a strategy for each of an op's kernels: as a function for any sizes, and for aligned ones as a method, if
    the library has methods.

    These are few, since each rank compiles its own: a ``DeviceContext`` has the rank as a constant.
    """
    return [_of_kernel(ranks, op, False, False), _of_kernel(ranks, op, has_methods(op), True)]


@st.composite
def _of_kernel(draw: st.DrawFn, ranks: int, op: str, methods: bool, aligned: bool) -> TileCase:
    """Draw a case: whole tiles or ragged edges, smaller than a tile or empty, padded or transposed, with a late
    rank."""
    dtype, block_m, block_n, warps = TILES[op].aligned if aligned else TILES[op].unaligned

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

    m, n = extent(block_m, 1), extent(block_n, 16 if aligned else 1)
    late = draw(st.sampled_from([False, False, True]))
    pads = st.sampled_from([0, 16] if aligned else [0, 3])
    return TileCase(
        op=op,
        dtype=dtype,
        m=m,
        n=n,
        block_m=block_m,
        block_n=block_n,
        warps=warps,
        programs=draw(st.sampled_from([0, 1, 3])),
        methods=methods,
        aligned=aligned,
        in_pad=draw(pads),
        out_pad=draw(pads),
        turned=not aligned and draw(st.booleans()),
        root=draw(st.integers(0, ranks - 1)),
        calls=draw(st.sampled_from([1, 1, 2])),
        skewed=draw(st.integers(0, ranks - 1)) if late else -1,
        skew_ms=draw(st.integers(1, 8)) if late else 0,
    )
