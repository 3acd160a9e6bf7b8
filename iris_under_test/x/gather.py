"""Gather of a tile from one rank: the published module path of the functions in ``device.triton.tile_collectives``."""

from iris_under_test.device.triton.tile_collectives import gather

__all__ = ["gather"]
