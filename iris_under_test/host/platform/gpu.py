"""CUDA and ROCm: to be built on ``torch.distributed._symmetric_memory``, behind ``base.Platform``."""

from __future__ import annotations

from typing import Any

__all__ = ["refusal"]


def refusal(driver: Any) -> NotImplementedError:
    """The error to raise on this device, naming it."""
    target = driver.get_current_target()
    return NotImplementedError(
        f"symmetric memory on {target.backend} {target.arch} is not available yet: "
        "use the emulated device, whose Triton driver runs kernels on CPU tensors"
    )
