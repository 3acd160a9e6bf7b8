"""CUDA and ROCm: to be built on ``torch.distributed._symmetric_memory``, behind ``base.Platform``."""

from __future__ import annotations

from typing import Any, NoReturn

__all__ = ["refuse"]


def refuse(driver: Any) -> NoReturn:
    """Raises NotImplementedError naming the device."""
    target = driver.get_current_target()
    raise NotImplementedError(
        f"symmetric memory on {target.backend} {target.arch} is not available yet: "
        "use the emulated device, whose Triton driver runs kernels on CPU tensors"
    )
