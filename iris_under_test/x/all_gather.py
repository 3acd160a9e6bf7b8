"""All-gather of tiles: the published module path of the functions in ``device.triton.tile_collectives``."""

from iris_under_test.device.triton.tile_collectives import all_gather

__all__ = ["all_gather"]
