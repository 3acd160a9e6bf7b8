"""Reduce-scatter of tiles: the published module path of the functions in ``device.triton.tile_collectives``."""

from iris_under_test.device.triton.tile_collectives import reduce_scatter

__all__ = ["reduce_scatter"]
