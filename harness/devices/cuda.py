"""Hopper (sm_90)."""

from __future__ import annotations

import importlib.util

from harness.devices.gpu import Gpu


class Cuda(Gpu):
    """An NVIDIA GPU under CUDA."""

    name = "cuda"
    lanes = 32

    def missing(self) -> str | None:
        """A CUDA build of torch, and a GPU of this arch."""
        if importlib.util.find_spec("torch") is None:
            return "the package torch is not installed; install its CUDA build"
        import torch

        if not torch.version.cuda:
            return f"torch {torch.__version__} is not a CUDA build; install torch from the CUDA wheel index"
        if not torch.cuda.is_available():
            return "no NVIDIA GPU is visible; check the driver and CUDA_VISIBLE_DEVICES"
        major, minor = torch.cuda.get_device_capability(0)
        found = f"sm_{major}{minor}"
        return None if found == self.arch else f"the visible GPU is {found}, not {self.arch}"
