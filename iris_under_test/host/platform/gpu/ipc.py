"""Heaps from torch's interprocess handles (``cudaIpcMemHandle_t``, on ROCm ``hipIpcMemHandle_t``).

The pool is an ordinary tensor of torch's caching allocator. What a peer opens is the whole segment that the allocator
had from the driver, so the handle travels with the pool's offset in it. Each peer gets a handle of its own: torch
counts releases of a handle down from 1 and without a sign (torch/csrc/CudaIPCTypes.h), so that memory whose handle two
peers have opened would never be freed.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from iris_under_test.host.distributed.helpers import agree, exchange, host_barrier, hosts

from .pool import GRAIN, allocate

__all__ = ["IpcMemory"]


class IpcMemory:
    """This rank's pool and its peers'; see ``base.SymmetricMemory``. The pool starts at a multiple of 2 MiB."""

    pool: torch.Tensor
    bases: list[int]

    def __init__(
        self, size: int, rank: int, num_ranks: int, device: torch.device, group: dist.ProcessGroup | None = None
    ) -> None:
        # torch keeps shared memory until its receivers have released it, as they have by now, and ipc_collect is
        # called; what torch then caches is not available to other ranks on the same GPU before empty_cache.
        host_barrier(group)
        torch.cuda.ipc_collect()  # type: ignore[no-untyped-call]
        torch.cuda.empty_cache()
        host_barrier(group)
        whole = allocate(size, lambda: torch.empty(size + GRAIN, dtype=torch.uint8, device=device), group)
        start = -whole.data_ptr() % GRAIN
        self.pool = whole[start : start + size]
        self._peers: list[Any] = []
        self.bases = [self.pool.data_ptr()]
        if num_ranks == 1:
            return
        near = hosts(group)
        error: Exception | None = None
        own: list[Any] = [None] * num_ranks
        try:
            for peer in range(num_ranks):
                if peer != rank and near[peer] == near[rank]:
                    own[peer] = whole.untyped_storage()._share_cuda_()  # type: ignore[no-untyped-call]
        except RuntimeError as failure:
            error = ValueError(f"this process cannot share a heap of {size} bytes: {failure}")
        agree(error, "sharing the heap", group)
        handles: list[list[Any]] = [[]] * num_ranks
        dist.all_gather_object(handles, own, group=group)
        starts = [start for (start,) in exchange([start], group, "exchanging heap addresses")]
        bases = []
        try:
            for peer, handle in enumerate(handles):
                if peer == rank:
                    bases.append(self.pool.data_ptr())
                    continue
                if near[peer] != near[rank]:
                    bases.append(0)
                    continue
                # Opened on this rank's own GPU, which the driver then gives access to the peer's: opened on the
                # peer's, it would start a context there.
                storage = torch.UntypedStorage._new_shared_cuda(device.index, *handle[rank][1:])
                self._peers.append(storage)
                bases.append(storage.data_ptr() + starts[peer])
        except RuntimeError as failure:
            error = ValueError(f"cannot map the peers' heaps of {size} bytes: {failure}")
        agree(error, "mapping the peers' heaps", group)
        self.bases = bases

    def close(self) -> None:
        self._peers.clear()
        self.pool = torch.empty(0, dtype=torch.uint8)
        torch.cuda.ipc_collect()  # type: ignore[no-untyped-call]
