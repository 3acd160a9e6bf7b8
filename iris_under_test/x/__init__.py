"""Tile-level collectives for Triton kernels: ``x.all_gather(tile, dst_view, dim, ctx)`` and the others.

They are ``DeviceContext``'s methods of the same names, with the context as last argument. docs/tile-collectives.md
shows them at work.
"""

from iris_under_test.device.triton.tile_collectives import (
    ATOMIC,
    ONE_SHOT,
    RING,
    SPINLOCK,
    TWO_SHOT,
    AllReduceConfig,
    all_gather,
    all_reduce,
    all_reduce_atomic,
    all_reduce_one_shot,
    all_reduce_ring,
    all_reduce_spinlock,
    all_reduce_two_shot,
    all_to_all,
    gather,
    reduce_scatter,
    set_ready,
)
from iris_under_test.device.triton.tiles import (
    TensorView,
    Tile,
    TileView,
    make_tensor_view,
    offset_ptr,
    tile_layout,
    tile_ptr,
)

__all__ = [
    "ATOMIC", "ONE_SHOT", "RING", "SPINLOCK", "TWO_SHOT", "AllReduceConfig", "TensorView", "Tile", "TileView",
    "all_gather", "all_reduce", "all_reduce_atomic", "all_reduce_one_shot", "all_reduce_ring", "all_reduce_spinlock",
    "all_reduce_two_shot", "all_to_all", "gather", "make_tensor_view", "offset_ptr", "reduce_scatter", "set_ready",
    "tile_layout", "tile_ptr",
]  # fmt: skip
