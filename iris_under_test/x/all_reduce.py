"""All-reduce of tiles: the published module path of the functions in ``device.triton.tile_collectives``."""

from iris_under_test.device.triton.tile_collectives import (
    all_reduce,
    all_reduce_atomic,
    all_reduce_one_shot,
    all_reduce_ring,
    all_reduce_spinlock,
    all_reduce_two_shot,
)

__all__ = [
    "all_reduce",
    "all_reduce_atomic",
    "all_reduce_one_shot",
    "all_reduce_ring",
    "all_reduce_spinlock",
    "all_reduce_two_shot",
]
