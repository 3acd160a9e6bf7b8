"""How much memory of a GPU is in use, and by whom, read without a GPU context.

NVML on NVIDIA GPUs; on AMD GPUs the driver's files in /sys, since amdsmi has no place in a process that runs tests.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.devices.inventory import GpuInfo

_SYS = Path("/sys")


class UnreadableError(Exception):
    """The memory in use cannot be read here; says why in one line."""


def memory_in_use(gpu: GpuInfo) -> int:
    """Bytes of the GPU's memory that are in use, by whomever. Raises UnreadableError."""
    if gpu.arch.startswith("gfx"):
        path = _SYS / "bus" / "pci" / "devices" / gpu.bus_id / "mem_info_vram_used"
        try:
            return int(path.read_text())
        except (OSError, ValueError) as error:
            raise UnreadableError(f"{path}: {error}") from error
    nvml = _nvml()
    try:
        return int(nvml.nvmlDeviceGetMemoryInfo(nvml.nvmlDeviceGetHandleByUUID(gpu.uuid)).used)
    except nvml.NVMLError as error:
        raise UnreadableError(f"NVML does not tell the memory of {gpu.uuid}: {error}") from error


def users_of(gpu: GpuInfo) -> list[tuple[int, int | None]]:
    """Processes that use the GPU: pid and bytes (None: not told). A container sees no processes outside it, or sees
    them with pids that it does not know. Raises UnreadableError."""
    if gpu.arch.startswith("gfx"):
        return list(_users_of_amd(gpu))
    nvml = _nvml()
    try:
        handle = nvml.nvmlDeviceGetHandleByUUID(gpu.uuid)
        return [(int(user.pid), user.usedGpuMemory) for user in nvml.nvmlDeviceGetComputeRunningProcesses(handle)]
    except nvml.NVMLError as error:
        raise UnreadableError(f"NVML does not tell the processes of {gpu.uuid}: {error}") from error


@functools.cache
def _nvml() -> Any:
    try:
        import pynvml
    except ImportError as error:
        raise UnreadableError("the package nvidia-ml-py is not installed") from error
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise UnreadableError(f"NVML does not start: {error}") from error
    return pynvml


def _users_of_amd(gpu: GpuInfo) -> Iterator[tuple[int, int | None]]:
    kfd = _SYS / "class" / "kfd" / "kfd"
    number = next((found for found in _numbers(kfd, gpu.bus_id)), None)
    for path in sorted(kfd.glob(f"proc/*/vram_{number}")):
        try:
            used = int(path.read_text())
        except (OSError, ValueError):  # it ended while we looked
            continue
        if used:
            yield int(path.parent.name), used


def _numbers(kfd: Path, bus_id: str) -> Iterator[str]:
    """The numbers that the compute driver gives the GPU at that bus id."""
    domain, bus, rest = bus_id.split(":")
    device, function = rest.split(".")
    place = {"domain": int(domain, 16), "location_id": int(bus, 16) << 8 | int(device, 16) << 3 | int(function, 16)}
    for node in sorted(kfd.glob("topology/nodes/*")):
        try:
            lines = (node / "properties").read_text().splitlines()
            number = (node / "gpu_id").read_text().strip()
        except OSError:  # a node that this container may not see
            continue
        properties = {key: int(value) for key, _, value in (line.partition(" ") for line in lines)}
        if number != "0" and all(properties.get(key) == value for key, value in place.items()):
            yield number
