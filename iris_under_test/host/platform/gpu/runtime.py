"""The calls of torch.cuda that the runtimes of CUDA and ROCm share."""

from __future__ import annotations

import torch

__all__ = ["TorchRuntime"]


class TorchRuntime:
    """The calls that torch.cuda has on CUDA and ROCm alike."""

    def set_device(self, device: int) -> None:
        torch.cuda.set_device(device)

    def device_id(self) -> int:
        return torch.cuda.current_device()

    def device_count(self) -> int:
        return torch.cuda.device_count()

    def cu_count(self, device: int) -> int:
        return int(torch.cuda.get_device_properties(device).multi_processor_count)
