"""Heaps from ``torch.distributed._symmetric_memory``: on CUDA and ROCm, every rank maps every rank's allocation."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from iris_under_test.host.distributed.helpers import agree, exchange

from .pool import allocate

__all__ = ["TorchSymmetricMemory"]


class TorchSymmetricMemory:
    """This rank's allocation and its peers', of the world; see ``base.SymmetricMemory``.

    torch may place the pool inside a larger allocation, at an offset of its own on each rank: the bases are those of
    the pools, not of the allocations. Memory is given back when the last tensor on it is gone.
    """

    pool: torch.Tensor
    bases: list[int]

    def __init__(self, size: int, rank: int, num_ranks: int, device: torch.device) -> None:
        import torch.distributed._symmetric_memory as symmetric_memory

        self.pool = allocate(size, lambda: symmetric_memory.empty(size, dtype=torch.uint8, device=device))
        self._handle: Any = None
        own = self.pool.data_ptr()
        if num_ranks == 1:
            self.bases = [own]
            return
        error: Exception | None = None
        try:
            self._handle = symmetric_memory.rendezvous(self.pool, dist.distributed_c10d._get_default_group())
        except RuntimeError as failure:
            error = ValueError(f"cannot map the peers' heaps of {size} bytes: {failure}")
        agree(error, "mapping the peers' heaps")
        starts = list(self._handle.buffer_ptrs)
        offsets = [offset for (offset,) in exchange([own - starts[rank]], None, "exchanging heap addresses")]
        self.bases = [start + offset for start, offset in zip(starts, offsets, strict=True)]

    def close(self) -> None:
        self._handle = None
        self.pool = torch.empty(0, dtype=torch.uint8)
