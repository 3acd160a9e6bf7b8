"""Which device a rank has, and whether this run is a simulation."""

from __future__ import annotations

import os

from . import current

__all__ = ["get_device_id_for_rank", "is_simulation_env"]


def get_device_id_for_rank(rank: int) -> int:
    """The ordinal of the device that ``rank`` uses: the rank modulo the visible GPUs; emulated, the rank itself.

    Raises:
        ValueError: the rank is negative.
        RuntimeError: no GPU is visible and no emulated device active.
    """
    if rank < 0:
        raise ValueError(f"rank must not be negative, got {rank}")
    return current().device_id(rank)


def is_simulation_env() -> bool:
    """Whether the environment variable ``IRIS_SIMULATION`` is 1, true or yes, in any case."""
    return os.environ.get("IRIS_SIMULATION", "").strip().lower() in {"1", "true", "yes"}
