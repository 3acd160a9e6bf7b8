"""Devices by name."""

from __future__ import annotations

from collections.abc import Mapping

from harness.devices import inventory
from harness.devices.base import Device
from harness.devices.cuda import Cuda
from harness.devices.emulated import Emulated
from harness.devices.gpu import Gpu
from harness.devices.rocm import Rocm
from harness.errors import UsageError

_ARCHS = {"emulated": ("gfx942", "gfx950"), "rocm": ("gfx942", "gfx950"), "cuda": ("sm_90",)}
_GPUS: Mapping[str, type[Rocm] | type[Cuda]] = {"rocm": Rocm, "cuda": Cuda}
NAMES = tuple(_ARCHS)


def known(name: str, arch: str | None = None, mode: str = "fast", ranks_per_gpu: int = 1) -> Device:
    """The device of that name and arch (None: its first), whether or not this machine has it; UsageError if unknown.

    ``mode`` is the emulated device's: ``fast``, ``check``, ``weak:SEED``, ... UsageError for one that it has not, and
    for any other device. ``ranks_per_gpu``: how many ranks share a GPU; UsageError where there are none.
    """
    if name not in _ARCHS:
        raise UsageError(f"unknown device {name!r}; choose one of {', '.join(NAMES)}")
    archs = _ARCHS[name]
    if arch is not None and arch not in archs:
        raise UsageError(f"device {name} has no arch {arch!r}; choose one of {', '.join(archs)}")
    if name == Emulated.name:
        if ranks_per_gpu != 1:
            raise UsageError(f"device {name} has no GPUs that {ranks_per_gpu} ranks could share")
        return Emulated(arch or archs[0], mode)
    if mode != "fast":
        raise UsageError(f"device {name} has no modes: {mode!r} is one of the emulated device")
    return _GPUS[name](arch or archs[0], ranks_per_gpu)


def get(name: str, arch: str | None = None, mode: str = "fast", ranks: int = 1, ranks_per_gpu: int = 1) -> Device:
    """Like ``known``, but also a UsageError when this machine cannot run ``ranks`` ranks on it, naming what is missing.

    For GPUs this asks a child process, once per process: ranks, which run where that was asked, take ``known``.
    """
    device = known(name, arch, mode, ranks_per_gpu)
    if reason := device.missing():
        raise UsageError(f"device {name} cannot be used here: {reason}")
    if isinstance(device, Gpu):
        inventory.check(inventory.visible(name), ranks, ranks_per_gpu)
    return device
