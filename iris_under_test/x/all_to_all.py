"""All-to-all of tiles: the published module path of the functions in ``device.triton.tile_collectives``."""

from iris_under_test.device.triton.tile_collectives import all_to_all

__all__ = ["all_to_all"]
