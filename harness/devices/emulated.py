"""gfx942 machine code executed on the CPU by ``harness.emulator``."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from typing import Any

from harness.telemetry import EmulatedRecorder, Recorder


class Emulated:
    """Tensors are CPU tensors; launches are synchronous; every launch leaves a record."""

    name = "emulated"
    lanes = 64
    backend = "gloo"
    modules: tuple[str, ...] = ("harness.emulator",)

    def __init__(self, arch: str) -> None:
        self.arch = arch
        self._driver: Any = None

    def missing(self) -> str | None:
        """The two packages that it needs."""
        for package in ("torch", "triton"):
            if importlib.util.find_spec(package) is None:
                return f"the package {package} is not installed; python -m pip install {package}"
        return None

    def activate(self, local_rank: int) -> None:
        """Install the emulator's Triton driver in this process. ``local_rank`` makes no difference: there is one
        device."""
        from harness import emulator

        self._driver = emulator.activate(arch=self.arch)

    @property
    def torch_device(self) -> Any:
        """torch.device("cpu")."""
        import torch

        return torch.device("cpu")

    def synchronize(self) -> None:
        """Launches have ended when they return."""

    def recorder(self, drain: Callable[[], Sequence[Any]]) -> Recorder | None:
        """The emulator's own counters."""
        return EmulatedRecorder(drain)

    def drain_launches(self) -> list[Any]:
        """``harness.emulator.LaunchRecord`` per launch since the last call."""
        return list(self._driver.drain_launches())
