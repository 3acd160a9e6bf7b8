"""gfx942 machine code executed on the CPU by ``harness.emulator``."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from typing import Any

from harness.errors import UsageError
from harness.seeds import RULE, seed_of
from harness.telemetry import EmulatedRecorder, Recorder

# The modes of ``harness.emulator.watch``, which is not imported before it is needed, and those that take a seed.
MODES = ("fast", "check", "weak", "trace", "race")
_SEEDED = ("weak", "race", "trace")


def parse_mode(text: str) -> tuple[str, int | None]:
    """``check`` or ``weak:7`` as mode and seed; UsageError for what is neither."""
    mode, colon, seed = text.partition(":")
    if mode not in MODES:
        raise UsageError(f"the emulated device has no mode {mode!r:.60}; choose one of {', '.join(MODES)}")
    if colon and mode not in _SEEDED:
        raise UsageError(f"mode {mode} takes no seed: {text!r:.60}")
    value = seed_of(seed) if colon else None
    if colon and value is None:
        raise UsageError(f"the seed of {text!r:.60} is not {RULE}")
    return mode, value


class Emulated:
    """Tensors are CPU tensors; launches are synchronous; every launch leaves a record."""

    name = "emulated"
    lanes = 64
    backend = "gloo"
    modules: tuple[str, ...] = ("harness.emulator",)

    def __init__(self, arch: str, mode: str = "fast") -> None:
        """``mode`` as ``parse_mode`` takes it."""
        self.arch = arch
        self.mode, self._seed = parse_mode(mode)
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

        # LLVM joins narrow accesses into wide ones that are misaligned, where strides are odd: no fault of a kernel.
        options = {"strict_alignment": False} if self.mode == "check" else {}
        self._driver = emulator.activate(arch=self.arch, mode=self.mode, choices=self._seed, **options)

    @property
    def torch_device(self) -> Any:
        """torch.device("cpu")."""
        import torch

        return torch.device("cpu")

    def synchronize(self) -> None:
        """Launches have ended when they return."""

    def healthy(self) -> bool:
        """True: a fault ends a launch, not the device."""
        return True

    def recorder(self, drain: Callable[[], Sequence[Any]]) -> Recorder | None:
        """The emulator's own counters."""
        return EmulatedRecorder(drain)

    def drain_launches(self) -> list[Any]:
        """``harness.emulator.LaunchRecord`` per launch since the last call."""
        return list(self._driver.drain_launches())
