"""MI300X, MI325X (gfx942) and MI350 (gfx950)."""

from __future__ import annotations

import importlib.util

from harness.devices.gpu import Gpu


class Rocm(Gpu):
    """An AMD GPU under ROCm."""

    name = "rocm"
    lanes = 64

    def missing(self) -> str | None:
        """A ROCm build of torch, and a GPU of this arch."""
        if importlib.util.find_spec("torch") is None:
            return "the package torch is not installed; install its ROCm build"
        import torch

        if not torch.version.hip:
            return f"torch {torch.__version__} is not a ROCm build; install torch from the ROCm wheel index"
        if not torch.cuda.is_available():
            return "no AMD GPU is visible; check the driver and ROCR_VISIBLE_DEVICES"
        found = torch.cuda.get_device_properties(0).gcnArchName.split(":")[0]
        return None if found == self.arch else f"the visible GPU is {found}, not {self.arch}"
