"""The emulated device: ``harness.emulator`` executes AMD machine code on the CPU."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from typing import Any

from harness.devices.base import Kind
from harness.errors import UsageError
from harness.seeds import RULE, seed_of
from harness.telemetry import EmulatedRecorder, Recorder

_SEEDED = ("weak", "race", "trace")
"""The modes that take a seed."""


class EmulatedKind(Kind):
    """Kind of the emulated device: AMD machine code without a GPU."""

    name = "emulated"
    shares_memory = True
    archs = ("gfx942", "gfx950")
    profiles = {f"emulated-{arch}": (arch, ()) for arch in archs}
    lanes = 64
    vendor = "AMD"
    triton_backend = "amd"
    # The modes of ``harness.emulator.watch``, which is not imported before it is needed.
    modes = ("fast", "check", "weak", "trace", "race")


def parse_mode(text: str) -> tuple[str, int | None]:
    """Return mode and seed of a text such as ``check`` or ``weak:7``; UsageError for any other text."""
    mode, colon, seed = text.partition(":")
    if mode not in EmulatedKind.modes:
        raise UsageError(f"the emulated device has no mode {mode!r:.60}; choose one of {', '.join(EmulatedKind.modes)}")
    if colon and mode not in _SEEDED:
        raise UsageError(f"mode {mode} takes no seed, got {text!r:.60}: use {mode}")
    value = seed_of(seed) if colon else None
    if colon and value is None:
        raise UsageError(f"the seed of {text!r:.60} is not {RULE}")
    return mode, value


class Emulated:
    """The emulated device. Tensors are CPU tensors; launches are synchronous; every launch leaves a record."""

    name = EmulatedKind.name
    lanes = EmulatedKind.lanes
    backend = "gloo"
    modules: tuple[str, ...] = ("harness.emulator", "harness.emulator.driver.ahead:load_compiled")

    def __init__(self, kind: Kind, arch: str, mode: str = "fast") -> None:
        """Make the device; ``mode``: a text for ``parse_mode``."""
        self.kind = kind
        self.arch = arch
        self.mode, self._seed = parse_mode(mode)
        self._driver: Any = None

    def missing(self) -> str | None:
        """Report a missing package."""
        for package in ("torch", "triton"):
            if importlib.util.find_spec(package) is None:
                return f"the package {package} is not installed; python -m pip install {package}"
        return None

    def select(self, local_rank: int) -> None:
        """Do nothing: tensors are on the CPU."""

    def activate(self, local_rank: int) -> None:
        """Install the emulator's Triton driver in this process. ``local_rank`` has no effect: there is one device."""
        from harness import emulator

        # With odd strides LLVM merges narrow accesses into misaligned wide ones, which is not an error of the kernel.
        options: dict[str, Any] = {"strict_alignment": False} if self.mode == "check" else {}
        self._driver = emulator.activate(arch=self.arch, mode=self.mode, choices=self._seed, **options)

    @property
    def torch_device(self) -> Any:
        """The CPU: ``torch.device("cpu")``."""
        import torch

        return torch.device("cpu")

    def synchronize(self) -> None:
        """Do nothing: launches have ended when they return."""

    def healthy(self) -> bool:
        """Return True: a fault ends a launch, not the device."""
        return True

    def recorder(self, drain: Callable[[], Sequence[Any]]) -> Recorder | None:
        """Return a recorder of the emulator's own counters."""
        return EmulatedRecorder(drain)

    def drain_launches(self) -> list[Any]:
        """Return a ``harness.emulator.LaunchRecord`` for each launch since the last call."""
        return list(self._driver.drain_launches())
