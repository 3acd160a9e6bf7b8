"""A GPU of any kind as a run uses it; its ``GpuKind`` holds all that is particular to the kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from harness.devices import inventory, launches
from harness.devices.gpu_kind import GpuKind
from harness.errors import HarnessError, KernelFault
from harness.telemetry import Recorder


class Gpu:
    """A visible GPU for each rank, or for each ``ranks_per_gpu`` ranks. Launches are asynchronous; each leaves a record
    of the kernel that was launched.

    Collectives of CPU tensors use gloo and those of GPU tensors the kind's own backend, in the same process group.
    That backend refuses ranks that share a GPU: they use gloo for GPU tensors as well.
    """

    modules: tuple[str, ...] = ()

    def __init__(self, kind: GpuKind, arch: str, ranks_per_gpu: int = 1) -> None:
        self.kind = kind
        self.name = kind.name
        self.lanes = kind.lanes
        self.arch = arch
        self.ranks_per_gpu = ranks_per_gpu
        self.backend = f"cpu:gloo,{kind.torch_type}:{kind.backend if ranks_per_gpu == 1 else 'gloo'}"
        self.launches: Any = None
        self._index = 0

    def missing(self) -> str | None:
        """Report a missing build of torch, driver, permission or GPU of this arch; checked in a child process."""
        return inventory.unfit(self.name, self.arch)

    def select(self, local_rank: int) -> None:
        """Make GPU ``local_rank``, modulo the visible ones, the current device."""
        module = self.kind.torch_module()
        count = module.device_count()
        if local_rank >= count * self.ranks_per_gpu:
            raise HarnessError(
                f"rank {local_rank} of this node has no GPU: the process sees {count} GPUs for {self.ranks_per_gpu}"
                " ranks each"
            )
        self._index = local_rank % count
        module.set_device(self._index)

    def activate(self, local_rank: int) -> None:
        """Select the GPU, and record launches from now on."""
        self.select(local_rank)
        self.launches = launches.install()

    @property
    def torch_device(self) -> Any:
        """The torch.device of this rank, such as ``cuda:N``."""
        import torch

        return torch.device(self.kind.torch_type, self._index)

    def synchronize(self) -> None:
        """Wait for the current device. KernelFault if a kernel faulted: the context cannot be used any more then."""
        try:
            self.kind.torch_module().synchronize()
        except RuntimeError as error:
            reason = str(error).strip().splitlines()[0]
            if not reason.startswith(self.kind.faults):
                raise
            raise KernelFault(f"the GPU's context is lost: {reason}") from error

    def healthy(self) -> bool:
        """Return whether the context still works: False after a fault. Waits for the current device."""
        try:
            self.synchronize()
        except KernelFault:
            return False
        return True

    def recorder(self, drain: Callable[[], Sequence[Any]]) -> Recorder | None:
        """Return None: a separate process records the GPUs, see ``harness.telemetry``."""
        return None

    def drain_launches(self) -> list[Any]:
        """Return a ``harness.devices.launches.GpuLaunch`` for each launch since the last call."""
        return list(self.launches.drain())
