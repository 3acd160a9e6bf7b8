"""Tile-level collectives for Triton kernels: ``x.all_gather(tile, dst_view, dim, ctx)`` and the others.

They are the methods of ``DeviceContext`` of the same names, with the context as last argument. For examples see
docs/tile-collectives.md.
"""

from iris_under_test.device.triton.tile_collectives import (
    ATOMIC,
    ONE_SHOT,
    RING,
    SPINLOCK,
    TWO_SHOT,
    AllReduceConfig,
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

# From the submodules, so that a later import of one does not put the module in the place of its function.
from .all_gather import all_gather
from .all_reduce import (
    all_reduce,
    all_reduce_atomic,
    all_reduce_one_shot,
    all_reduce_ring,
    all_reduce_spinlock,
    all_reduce_two_shot,
)
from .all_to_all import all_to_all
from .gather import gather
from .reduce_scatter import reduce_scatter

__all__ = [
    "ATOMIC", "ONE_SHOT", "RING", "SPINLOCK", "TWO_SHOT", "AllReduceConfig", "TensorView", "Tile", "TileView",
    "all_gather", "all_reduce", "all_reduce_atomic", "all_reduce_one_shot", "all_reduce_ring", "all_reduce_spinlock",
    "all_reduce_two_shot", "all_to_all", "gather", "make_tensor_view", "offset_ptr", "reduce_scatter", "set_ready",
    "tile_layout", "tile_ptr",
]  # fmt: skip
