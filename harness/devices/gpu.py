"""What ROCm and CUDA have in common: torch.cuda serves both, and both call their collectives backend "nccl"."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from harness.telemetry import Recorder


class Gpu:
    """One visible GPU per rank. Launches are asynchronous and leave no record yet."""

    name: str
    lanes: int
    backend = "nccl"
    modules: tuple[str, ...] = ()

    def __init__(self, arch: str) -> None:
        self.arch = arch
        self._index = 0

    def activate(self, local_rank: int) -> None:
        """Make GPU ``local_rank`` (modulo the visible ones) the current device."""
        import torch

        self._index = local_rank % torch.cuda.device_count()
        torch.cuda.set_device(self._index)

    @property
    def torch_device(self) -> Any:
        """torch.device("cuda:N") of this rank."""
        import torch

        return torch.device("cuda", self._index)

    def synchronize(self) -> None:
        """Wait for the current device."""
        import torch

        torch.cuda.synchronize()

    def recorder(self, drain: Callable[[], Sequence[Any]]) -> Recorder | None:
        """None: amdsmi and NVML are not read yet."""
        return None

    def drain_launches(self) -> list[Any]:
        """No records: a GPU does not count what it executed."""
        return []
