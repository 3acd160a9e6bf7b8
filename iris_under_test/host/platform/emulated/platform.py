"""The emulated device: heaps in shared memory, each mapped at an address of its own in every process.

A rank's heap is an anonymous memory file. Its (process id, descriptor) go round by torch.distributed, and peers open it
through ``/proc``; nothing has a name in the file system, and once the last process that maps it ends, it is gone. Ranks
of one host must share a process-id namespace; those of other hosts are not reached.

``mappings`` documents the addresses of heaps.
"""

from __future__ import annotations

import errno
import os
import weakref
from typing import Any

import torch
import torch.distributed as dist

from iris_under_test.drivers.base import BaseFabricDriver
from iris_under_test.host.distributed.helpers import agree, exchange, hosts
from iris_under_test.host.platform.amd import CLOCK_HZ, xcd_count
from iris_under_test.host.platform.base import Runtime, VirtualMemory

from . import mappings
from .runtime import EmulatedRuntime
from .vmem import EmulatedVirtualMemory

__all__ = ["EmulatedPlatform"]


class EmulatedPlatform:
    """Tensors on the CPU, kernels on Triton's active (emulating) driver, each rank its own device."""

    clock_hz = CLOCK_HZ

    def __init__(self, driver: Any) -> None:
        self._driver = driver

    @classmethod
    def of(cls, driver: Any) -> EmulatedPlatform | None:
        """It is the one whose tensors live on the CPU."""
        return cls(driver) if driver.get_active_torch_device().type == "cpu" else None

    def name(self) -> str:
        return f"emulated {self._arch()}"

    def xcd_count(self) -> int:
        return xcd_count(self._arch())

    def runtime(self) -> Runtime:
        return EmulatedRuntime(self._driver)

    def fabric_driver(self) -> BaseFabricDriver:
        # Not at import: the drivers' package imports this one.
        from iris_under_test.drivers.fabric.emulated import EmulatedFabricDriver

        return EmulatedFabricDriver(EmulatedRuntime(self._driver))

    def gpu_facts(self, gpu_id: int) -> dict[str, Any]:
        return {"name": self.name()}

    def device(self, rank: int) -> torch.device:
        return torch.device("cpu")

    def device_id(self, rank: int) -> int:
        return rank

    def make_current(self, rank: int) -> None:
        """Nothing to do: a process has one emulated device."""

    def map_symmetric_memory(
        self, size: int, rank: int, num_ranks: int, group: dist.ProcessGroup | None = None
    ) -> EmulatedMemory:
        return EmulatedMemory(size, rank, num_ranks, self._driver, group)

    def virtual_memory(self, rank: int, num_ranks: int) -> VirtualMemory:
        return EmulatedVirtualMemory(rank, num_ranks, self._driver)

    def synchronize(self, stream: Any = None) -> None:
        """Nothing to wait for: a launch returns when its kernel has ended."""

    def _arch(self) -> str:
        return str(self._driver.get_current_target().arch)


class EmulatedMemory:
    """This rank's segment and its peers'; see ``base.SymmetricMemory``.

    Each segment is registered with the driver (``register_memory``), as a HIP program registers host memory. Tensors on
    this rank's heap may outlive ``close``: their segment is unmapped when the last of them is gone.
    """

    pool: torch.Tensor
    bases: list[int]

    def __init__(
        self, size: int, rank: int, num_ranks: int, driver: Any, group: dist.ProcessGroup | None = None
    ) -> None:
        ranks = range(num_ranks) if group is None else dist.get_process_group_ranks(group)
        self.bases = []
        mapped: dict[int, int] = {}
        announced: list[int] = []
        self._finalizer = weakref.finalize(self, _release, mapped, announced, size, driver)
        descriptor = -1
        try:
            error: Exception | None = None
            try:
                descriptor = mappings.memory_file(size, rank)
            except (OSError, OverflowError) as failure:
                error = ValueError(f"cannot allocate a heap of {size} bytes: {failure}")
            agree(error, f"allocating a heap of {size} bytes", group)

            inode = os.fstat(descriptor).st_ino
            peers = exchange([os.getpid(), descriptor, inode], group, "exchanging heap addresses")
            near = hosts(group)
            try:
                for owner in range(num_ranks):
                    if near[owner] != near[rank]:
                        continue
                    mapped[owner] = _map_peer(*peers[owner], size=size, viewer=rank, owner=owner, num_ranks=num_ranks)
            except OSError as failure:
                error = ValueError(f"cannot map heaps of {size} bytes: {failure}")
            # Also the point after which no peer needs our descriptor any more.
            agree(error, "mapping the peers' heaps", group)
        except BaseException:
            self._finalizer()
            raise
        finally:
            if descriptor >= 0:
                os.close(descriptor)

        self.bases = [mapped.get(owner, 0) for owner in range(num_ranks)]
        own = mapped.pop(rank)
        self.pool = mappings.tensor_over(own, size, mappings.Mapping(own, size))
        if hasattr(driver, "register_memory"):
            for owner, base in enumerate(self.bases):
                if base == 0:
                    continue
                peer = None if owner == rank else ranks[owner]
                driver.register_memory(base, size, f"symmetric heap of rank {ranks[owner]}", peer=peer)
                announced.append(base)

    def close(self) -> None:
        self.pool = torch.empty(0, dtype=torch.uint8)
        self._finalizer()


def _release(mapped: dict[int, int], announced: list[int], size: int, driver: Any) -> None:
    while announced:
        driver.unregister_memory(announced.pop())
    while mapped:
        mappings.unmap(mapped.popitem()[1], size)


def _map_peer(pid: int, descriptor: int, inode: int, *, size: int, viewer: int, owner: int, num_ranks: int) -> int:
    opened = os.open(f"/proc/{pid}/fd/{descriptor}", os.O_RDWR | os.O_CLOEXEC)
    try:
        if os.fstat(opened).st_ino != inode:
            raise OSError(errno.ESTALE, f"process {pid} of rank {owner} is not visible: ranks must share a host")
        return mappings.map_file(opened, size, mappings.heap_address(size, viewer, owner, num_ranks))
    finally:
        os.close(opened)
