"""What ROCm and CUDA have in common: torch.cuda serves both, and both call their collectives backend "nccl"."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from harness.errors import HarnessError, KernelFault
from harness.telemetry import Recorder

_FAULT = ("CUDA error", "HIP error")


class Gpu:
    """A visible GPU for each rank, or for ``ranks_per_gpu`` of them. Launches are asynchronous; each leaves a record of
    the kernel that was launched.

    Tensors on the CPU go through gloo and those on the GPU through nccl (RCCL on ROCm), in the same process group. nccl
    refuses ranks that share a GPU: theirs go through gloo as well.
    """

    name: str
    lanes: int
    modules: tuple[str, ...] = ()

    def __init__(self, arch: str, ranks_per_gpu: int = 1) -> None:
        self.arch = arch
        self.ranks_per_gpu = ranks_per_gpu
        self.backend = "cpu:gloo,cuda:nccl" if ranks_per_gpu == 1 else "cpu:gloo,cuda:gloo"
        self.launches: Any = None
        self._index = 0

    def activate(self, local_rank: int) -> None:
        """Make GPU ``local_rank``, modulo the visible ones, the current device, and record launches from now on."""
        import torch

        from harness.devices import launches

        count = torch.cuda.device_count()
        if local_rank >= count * self.ranks_per_gpu:
            raise HarnessError(
                f"rank {local_rank} of this node has no GPU, or place on one: the process sees {count}, and"
                f" {self.ranks_per_gpu} ranks may be on each"
            )
        self._index = local_rank % count
        torch.cuda.set_device(self._index)
        self.launches = launches.install()

    @property
    def torch_device(self) -> Any:
        """torch.device("cuda:N") of this rank."""
        import torch

        return torch.device("cuda", self._index)

    def synchronize(self) -> None:
        """Wait for the current device. KernelFault when a kernel faulted: the context is then of no use any more."""
        import torch

        try:
            torch.cuda.synchronize()
        except RuntimeError as error:
            reason = str(error).strip().splitlines()[0]
            if not reason.startswith(_FAULT):
                raise
            raise KernelFault(f"the GPU's context is lost: {reason}") from error

    def healthy(self) -> bool:
        """Whether the context still works: False after a fault. Waits for the current device."""
        try:
            self.synchronize()
        except KernelFault:
            return False
        return True

    def recorder(self, drain: Callable[[], Sequence[Any]]) -> Recorder | None:
        """None: a process of its own watches the GPUs, see ``harness.telemetry``."""
        return None

    def drain_launches(self) -> list[Any]:
        """``harness.devices.launches.GpuLaunch`` per launch since the last call."""
        return list(self.launches.drain())
