"""Allocating a heap's memory on a GPU, so that all ranks get it or all get the same error."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist

from iris_under_test.host.distributed.helpers import agree

__all__ = ["GRAIN", "allocate"]

GRAIN = 2 << 20
"""Bytes; what drivers map at once."""


def allocate(size: int, make: Callable[[], torch.Tensor], group: dist.ProcessGroup | None = None) -> torch.Tensor:
    """``make()``, which needs at least ``size`` bytes of the current GPU. Collective over the group.

    Raises:
        ValueError: on each rank that cannot have them, with the reason; RuntimeError naming those ranks on the others.
    """
    error: Exception | None = None
    pool = torch.empty(0, dtype=torch.uint8)
    free, total = torch.cuda.mem_get_info()
    if size > total:
        error = ValueError(f"cannot allocate a heap of {size} bytes: the GPU has {total}")
    else:
        try:
            pool = make()
        except RuntimeError as failure:  # torch.OutOfMemoryError is one
            reason = str(failure).strip().splitlines()[0]
            error = ValueError(f"cannot allocate a heap of {size} bytes, {free} of {total} are free: {reason}")
    agree(error, f"allocating a heap of {size} bytes", group)
    return pool
