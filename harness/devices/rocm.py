"""AMD GPUs under ROCm: MI300X and MI325X (gfx942), MI350 (gfx950)."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.devices.gpu_kind import NCCL_VARIABLES, GpuInfo, GpuKind, UnreadableError
from harness.devices.shared_memory import MemoryCalls
from harness.telemetry.source import Library

_ROOT = Path(os.environ.get("IRIS_SYSTEM_ROOT", "/"))
"""The folder of ``sys`` and ``dev``; an emulated machine has one of its own."""

_SYS = _ROOT / "sys"
_KFD = _ROOT / "dev" / "kfd"

_VARIABLES = """
    AMD_LOG_LEVEL AMD_SERIALIZE_COPY AMD_SERIALIZE_KERNEL CUDA_VISIBLE_DEVICES GPU_DEVICE_ORDINAL GPU_MAX_HW_QUEUES
    HIP_LAUNCH_BLOCKING HIP_VISIBLE_DEVICES HSA_ENABLE_IPC_MODE_LEGACY HSA_ENABLE_PEER_SDMA HSA_ENABLE_SDMA
    HSA_FORCE_FINE_GRAIN_PCIE HSA_NO_SCRATCH_RECLAIM HSA_OVERRIDE_GFX_VERSION HSA_XNACK IRIS_HARNESS_EMULATE
    IRIS_SYSTEM_ROOT PYTORCH_HIP_ALLOC_CONF
    RCCL_MSCCL_ENABLE ROCM_HOME ROCM_PATH ROCR_VISIBLE_DEVICES
"""


class Rocm(GpuKind):
    """AMD GPUs. Memory and users are read from the driver's files in /sys: a process that runs tests must not load
    amdsmi."""

    name = "rocm"
    shares_memory = True
    archs = ("gfx942", "gfx950")
    profiles = {
        "mi300x-8": ("gfx942", ("MI300X",)),
        "mi325x-8": ("gfx942", ("MI325X",)),
        "mi350-8": ("gfx950", ("MI350X", "MI355X")),
    }
    lanes = 64
    vendor = "AMD"
    build = "ROCm"
    runtime = "HIP"
    version_key = "hip"
    library = "RCCL"
    library_prefixes = ("NCCL_", "RCCL_")
    masks = ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
    outer_masks = ("ROCR_VISIBLE_DEVICES",)
    tool = "rocminfo"
    faults = ("HIP error", "CUDA error")
    crash_lines = ("Memory access fault by GPU", "HSA_STATUS_ERROR", ":0:rocdevice")
    listing = ".amdgcn"
    binary = ".hsaco"
    triton_backend = "amd"
    triton_packages = ("triton-rocm", "pytorch-triton-rocm")
    packages = ("amdsmi",)
    variables = (*_VARIABLES.split(), *NCCL_VARIABLES)
    variable_prefixes = ("AMD_", "CUDA_", "GPU_", "HIP_", "HSA_", "NCCL_", "RCCL_", "ROCM_", "ROCR_")
    telemetry = Library("amdsmi", source="harness.telemetry.amdsmi_source", module="amdsmi", package="amdsmi")

    def driver_facts(self) -> dict[str, Any]:
        """Return whether the compute driver is present, and whether this user may open it."""
        return {"kfd": _KFD.exists(), "permission": os.access(_KFD, os.R_OK | os.W_OK)}

    def missing_driver(self, facts: Mapping[str, Any]) -> str | None:
        """Report a missing driver, or missing permission to use it."""
        if not facts["kfd"]:
            return (
                "there is no AMD driver (/dev/kfd): load amdgpu, or start the container with --device /dev/kfd"
                " --device /dev/dri"
            )
        if not facts["permission"]:
            return "/dev/kfd may not be opened: add the user to its group (render), or the container with --group-add"
        return None

    def arch_of(self, properties: Any) -> str:
        """Return the arch without its features: gfx942 for ``gfx942:sramecc+:xnack-``."""
        return str(properties.gcnArchName).split(":")[0]

    def triton_target(self, arch: str) -> tuple[str, Any] | None:
        """Return the arch as it is."""
        return "hip", arch

    def bus_id_of(self, index: int) -> str:
        """Read the bus id from the HIP library that torch has loaded."""
        text = ctypes.create_string_buffer(32)
        status = ctypes.CDLL(_hip()).hipDeviceGetPCIBusId(text, len(text), index)
        if status != 0:
            raise OSError(f"the PCI bus id of GPU {index} could not be read: status {status}")
        return text.value.decode()

    def memory_calls(self) -> MemoryCalls:
        """Return those of HIP. Before ROCm 7.1 a descriptor is passed by a pointer, since then in a pointer's place."""
        version = tuple(int(part) for part in str(self.runtime_version()).split(".")[:2])
        return MemoryCalls(_hip(), "hip", "hipDrvGetErrorName", by_value=version >= (7, 1))

    def visibility(self, gpus: Sequence[GpuInfo], caller: Mapping[str, str]) -> dict[str, str]:
        """Name the GPUs by index, as HIP requires. Indices count within the GPUs of ROCR_VISIBLE_DEVICES: they come
        from the caller's mask if it has one."""
        entries = self.mask_entries(caller)
        chosen = ",".join(str(gpu.index) if entries is None else entries[gpu.index] for gpu in gpus)
        first, *others = self.masks
        return {first: chosen, **{name: chosen for name in others if name in caller}}

    def memory_in_use(self, gpu: GpuInfo) -> int:
        """Read the driver's file of the GPU."""
        path = _SYS / "bus" / "pci" / "devices" / gpu.bus_id / "mem_info_vram_used"
        try:
            return int(path.read_text())
        except (OSError, ValueError) as error:
            raise UnreadableError(f"{path}: {error}") from error

    def users_of(self, gpu: GpuInfo) -> list[tuple[int, int | None]]:
        """Read the compute driver's files of processes."""
        return list(_users(gpu))


def _hip() -> str:
    """Return the path of the HIP library that torch has loaded."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        return next(line.split()[-1] for line in maps if "libamdhip64" in line)


def _users(gpu: GpuInfo) -> Iterator[tuple[int, int | None]]:
    kfd = _SYS / "class" / "kfd" / "kfd"
    number = next((gpu_id for gpu_id in _numbers(kfd, gpu.bus_id)), None)
    for path in sorted(kfd.glob(f"proc/*/vram_{number}")):
        try:
            used = int(path.read_text())
        except (OSError, ValueError):  # it ended in the meantime
            continue
        if used:
            yield int(path.parent.name), used


def _numbers(kfd: Path, bus_id: str) -> Iterator[str]:
    """Yield the numbers that the compute driver gives the GPU at that bus id."""
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
