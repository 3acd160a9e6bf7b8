"""Devices by name."""

from __future__ import annotations

from harness.devices import inventory, table
from harness.devices.base import Device
from harness.devices.emulated import Emulated
from harness.devices.gpu import Gpu
from harness.devices.gpu_kind import GpuKind
from harness.errors import UsageError


def known(name: str, arch: str | None = None, mode: str = "fast", ranks_per_gpu: int = 1) -> Device:
    """Return the device of that name and arch (None: its first), even if this machine lacks it; UsageError if unknown.

    ``mode``: mode of the emulated device, such as ``fast``, ``check`` or ``weak:SEED``; UsageError for an unknown mode,
    and for any mode of another device. ``ranks_per_gpu``: number of ranks that share a GPU; UsageError for a device
    without GPUs.
    """
    kind = table.kind(name)
    if arch is not None and arch not in kind.archs:
        raise UsageError(f"device {name} has no arch {arch!r}; choose one of {', '.join(kind.archs)}")
    arch = arch or kind.archs[0]
    if isinstance(kind, GpuKind):
        if mode != "fast":
            raise UsageError(f"device {name} has no modes, got {mode!r}: use it with --device emulated only")
        return Gpu(kind, arch, ranks_per_gpu)
    if ranks_per_gpu != 1:
        raise UsageError(f"device {name} has no GPUs that {ranks_per_gpu} ranks could share: use 1 rank per GPU")
    return Emulated(kind, arch, mode)


def get(name: str, arch: str | None = None, mode: str = "fast", ranks: int = 1, ranks_per_gpu: int = 1) -> Device:
    """Return the device as ``known`` does; UsageError, naming what is missing, if this machine cannot run ``ranks``
    ranks on it.

    For GPUs this queries a child process, once per process. Ranks call ``known``: their controller has checked already.
    """
    device = known(name, arch, mode, ranks_per_gpu)
    if reason := device.missing():
        raise UsageError(f"device {name} cannot be used here: {reason}")
    if device.kind.is_gpu:
        inventory.check(inventory.visible(name), ranks, ranks_per_gpu)
    return device
