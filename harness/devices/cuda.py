"""NVIDIA GPUs under CUDA: Hopper (sm_90)."""

from __future__ import annotations

import ctypes
import functools
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.devices.gpu_kind import NCCL_VARIABLES, GpuInfo, GpuKind, UnreadableError
from harness.devices.shared_memory import MemoryCalls
from harness.errors import HarnessError
from harness.telemetry.source import Library

_SECONDS = 10.0
"""Seconds that one of NVIDIA's programs may take for one kernel."""

_VARIABLES = """
    CUDA_DEVICE_MAX_CONNECTIONS CUDA_DEVICE_ORDER CUDA_LAUNCH_BLOCKING CUDA_MODULE_LOADING CUDA_VISIBLE_DEVICES
    PYTORCH_CUDA_ALLOC_CONF PYTORCH_NVML_BASED_CUDA_CHECK TORCH_CUDA_ARCH_LIST TORCH_USE_CUDA_DSA
"""


class Cuda(GpuKind):
    """NVIDIA GPUs. Memory and users are read through NVML; the programs in Triton's package disassemble machine
    code."""

    name = "cuda"
    shares_memory = True
    archs = ("sm_90",)
    profiles = {"h200-8": ("sm_90", ("H200",))}
    lanes = 32
    vendor = "NVIDIA"
    build = "CUDA"
    runtime = "CUDA"
    version_key = "cuda"
    library = "NCCL"
    library_prefixes = ("NCCL_",)
    masks = ("CUDA_VISIBLE_DEVICES",)
    tool = "nvidia-smi"
    faults = ("CUDA error",)
    listing = ".ptx"
    binary = ".cubin"
    triton_backend = "nvidia"
    triton_packages = ("pytorch-triton",)
    packages = ("nvidia-ml-py",)
    variables = (*_VARIABLES.split(), *NCCL_VARIABLES)
    variable_prefixes = ("CUDA_", "NCCL_")
    telemetry = Library("nvml", source="harness.telemetry.nvml_source", module="pynvml", package="nvidia-ml-py")

    def driver_facts(self) -> dict[str, Any]:
        """Return whether the kernel driver and its library are present: a container may have one without the other."""
        return {
            "driver": os.path.exists("/dev/nvidiactl") or os.path.exists("/proc/driver/nvidia/version"),
            "library": _loads("libcuda.so.1"),
        }

    def missing_driver(self, facts: Mapping[str, Any]) -> str | None:
        """Report a missing kernel driver, or a missing library of it."""
        if not facts["library"] and not facts["driver"]:
            return "there is no NVIDIA driver: install it, or run on a machine with a GPU"
        if not facts["library"]:
            return (
                "the NVIDIA driver is there but not its library libcuda.so.1: start the container with --gpus all, or"
                " install the driver's libraries"
            )
        if not facts["driver"]:
            return "libcuda.so.1 is there but no NVIDIA driver: start the container with --gpus all, or load the driver"
        return None

    def arch_of(self, properties: Any) -> str:
        """Return the arch of the compute capability: sm_90 for (9, 0)."""
        return f"sm_{properties.major}{properties.minor}"

    def triton_target(self, arch: str) -> tuple[str, Any] | None:
        """Return the compute capability as Triton writes it: ("cuda", 90) for sm_90."""
        return "cuda", int(arch.removeprefix("sm_"))

    def bus_id_of(self, index: int) -> str:
        """Read the bus id from the driver's library."""
        text = ctypes.create_string_buffer(32)
        status = ctypes.CDLL("libcuda.so.1").cuDeviceGetPCIBusId(text, len(text), index)
        if status != 0:
            raise OSError(f"the PCI bus id of GPU {index} could not be read: status {status}")
        return text.value.decode()

    def uuid_of(self, uuid: str, entry: str) -> str:
        """Return the UUID of the part (MIG) that the caller chose, not of the whole GPU."""
        return entry if entry.startswith("MIG-") else uuid

    def visibility(self, gpus: Sequence[GpuInfo], caller: Mapping[str, str]) -> dict[str, str]:
        """Name the GPUs by UUID, which means the same under any mask."""
        return {self.masks[0]: ",".join(gpu.uuid for gpu in gpus)}

    def memory_in_use(self, gpu: GpuInfo) -> int:
        """Return the memory that NVML reports."""
        nvml = _nvml()
        try:
            return int(nvml.nvmlDeviceGetMemoryInfo(nvml.nvmlDeviceGetHandleByUUID(gpu.uuid)).used)
        except nvml.NVMLError as error:
            raise UnreadableError(f"NVML does not report the memory of {gpu.uuid}: {error}") from error

    def users_of(self, gpu: GpuInfo) -> list[tuple[int, int | None]]:
        """Return the processes that NVML reports."""
        nvml = _nvml()
        try:
            handle = nvml.nvmlDeviceGetHandleByUUID(gpu.uuid)
            return [(int(user.pid), user.usedGpuMemory) for user in nvml.nvmlDeviceGetComputeRunningProcesses(handle)]
        except nvml.NVMLError as error:
            raise UnreadableError(f"NVML does not report the processes of {gpu.uuid}: {error}") from error

    def shared_memory(self, pid: int) -> str:
        """Return the prefix of the driver's own files: ``cuda.shm.UID.PID.N``, PID in hexadecimal."""
        return f"cuda.shm.{os.getuid()}.{pid:x}."

    def memory_calls(self) -> MemoryCalls:
        """Return those of the driver API."""
        versions = {"MemGetAddressRange": "_v2", "IpcOpenMemHandle": "_v2"}
        return MemoryCalls("libcuda.so.1", "cu", "cuGetErrorName", versions)

    def disassembly(self, files: Mapping[str, str]) -> str | None:
        """Return the machine code that ptxas made of PTX, with each instruction's source line and inlining, and the
        registers and memory that it needs."""
        path, program = self._machine_code(files), tool("nvdisasm")
        if path is None or program is None:
            return None
        return f"{_output(program, '-gi', '-c', '-ndf', path)}\n// {self.usage(files)}\n"

    def without_disassembly(self, files: Mapping[str, str]) -> str | None:
        """Report missing machine code, or a missing disassembler."""
        if self._machine_code(files) is None:
            return f"Triton kept no {self.binary.lstrip('.')}, only {sorted(files)}"
        return None if tool("nvdisasm") else "nvdisasm is neither in Triton's package nor on the PATH"

    def usage(self, files: Mapping[str, str]) -> str:
        """Return the line of cuobjdump, ``REG:18 STACK:0 SHARED:0 LOCAL:0 ...``; empty without a cubin or cuobjdump.

        Takes a few milliseconds, once for each cubin.
        """
        path, program = self._machine_code(files), tool("cuobjdump")
        if path is None or program is None:
            return ""
        lines = _output(program, "-res-usage", path).splitlines()
        return next((line.strip() for line in lines if line.strip().startswith("REG:")), "")

    def _machine_code(self, files: Mapping[str, str]) -> str | None:
        return next((path for name, path in files.items() if name.endswith(self.binary)), None)


@functools.cache
def tool(name: str) -> str | None:
    """Return the path of a program of NVIDIA's in Triton's package, else on the PATH, else None."""
    import triton

    own = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / name
    return str(own) if own.is_file() else shutil.which(name)


@functools.lru_cache(maxsize=256)
def _output(program: str, *arguments: str) -> str:
    try:
        done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise HarnessError(f"{program} {' '.join(arguments)}: {error}") from error
    if done.returncode != 0:
        raise HarnessError(f"{program} {' '.join(arguments)} ended with status {done.returncode}: {done.stderr[:200]}")
    return done.stdout


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


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True
