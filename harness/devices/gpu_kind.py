"""Description of a kind of GPU, and the record of one GPU."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.devices.base import Kind
from harness.devices.shared_memory import MemoryCalls

_NCCL = """
    NCCL_ALGO NCCL_ASYNC_ERROR_HANDLING NCCL_BLOCKING_WAIT NCCL_BUFFSIZE NCCL_CUMEM_ENABLE NCCL_DEBUG
    NCCL_IB_DISABLE NCCL_LAUNCH_MODE NCCL_MAX_NCHANNELS NCCL_MIN_NCHANNELS NCCL_NVLS_ENABLE NCCL_P2P_DISABLE
    NCCL_P2P_LEVEL NCCL_PROTO NCCL_SHM_DISABLE
"""
NCCL_VARIABLES = tuple(_NCCL.split())
"""``Kind.variables`` of a kind whose library is NCCL or RCCL, which reads NCCL's variables."""


@dataclass(frozen=True)
class GpuInfo:
    """A GPU. ``index`` counts within the caller's visible devices; ``arch`` as in gfx942 or sm_90; ``memory`` in bytes.

    ``uuid`` as the driver's tools write it (GPU-..., or MIG-... for a part of one); ``bus_id`` as in 0000:1b:00.0;
    ``peers``: indices of the GPUs whose memory it can access; ``device``: the name of its kind.
    """

    index: int
    name: str
    arch: str
    memory: int
    uuid: str
    bus_id: str
    peers: tuple[int, ...]
    device: str

    def __str__(self) -> str:
        return f"{self.index} ({self.name}, {self.arch}, {self.bus_id})"


class UnreadableError(Exception):
    """Memory in use, or users, that cannot be read here; the message states the reason in one line."""


class GpuKind(Kind, ABC):
    """A kind of GPU: its names, and the queries to its driver. The queries through torch are common to all kinds.

    ``driver_facts`` and ``gpus`` run in the child process of the inventory, everything else in any process.
    """

    is_gpu = True

    build: str
    """torch's build for it, as messages name it."""

    runtime: str
    """The runtime of that build, as messages name it."""

    version_key: str
    """The attribute of ``torch.version`` that holds the runtime's version, None in other builds."""

    torch_type = "cuda"
    """torch's device type and the name of its module in torch; torch for ROCm uses CUDA's."""

    backend = "nccl"
    """The torch.distributed backend for tensors on it."""

    library: str
    """The library under that backend."""

    library_prefixes: tuple[str, ...]
    """Prefixes of the environment variables of that library."""

    masks: tuple[str, ...]
    """The variables that choose visible GPUs; the first that is set counts."""

    outer_masks: tuple[str, ...] = ()
    """Variables that hide GPUs before ``masks`` are applied."""

    tool: str
    """The vendor's program that lists GPUs."""

    faults: tuple[str, ...]
    """Prefixes of torch's message after a kernel faulted."""

    listing: str
    """The ending of the file in which Triton keeps the listing of a kernel."""

    binary: str
    """The ending of the file in which Triton keeps its machine code."""

    # -- finding -----------------------------------------------------------------------------------------------------

    @abstractmethod
    def driver_facts(self) -> dict[str, Any]:
        """Return the parts of its driver that are present, as plain data under its own keys; see
        ``harness.devices.probe``."""

    @abstractmethod
    def missing_driver(self, facts: Mapping[str, Any]) -> str | None:
        """Return what its ``driver_facts`` show to be missing, and how to get it; None if nothing is."""

    @abstractmethod
    def arch_of(self, properties: Any) -> str:
        """Return the arch of a GPU from ``torch.cuda.get_device_properties``."""

    def triton_target(self, arch: str) -> tuple[str, Any] | None:
        """Return the backend and the arch of Triton's ``GPUTarget`` for an arch; None if kernels are not to be compiled
        ahead, on ranks without a GPU."""
        return None

    @abstractmethod
    def bus_id_of(self, index: int) -> str:
        """Return the PCI bus id of GPU ``index`` from the driver, for a torch that does not report it."""

    def gpus(self, torch: Any) -> list[dict[str, Any]]:
        """Return the visible GPUs as plain data, the fields of ``GpuInfo``. Starts a context."""
        module = getattr(torch, self.torch_type)
        module.init()
        count = module.device_count()
        return [self._gpu(module, index, count) for index in range(count)]

    def uuid_of(self, uuid: str, entry: str) -> str:
        """Return the UUID of a GPU that the caller chose by ``entry`` of a mask."""
        return uuid

    def _gpu(self, module: Any, index: int, count: int) -> dict[str, Any]:
        properties = module.get_device_properties(index)
        return {
            "index": index,
            "name": properties.name,
            "arch": self.arch_of(properties),
            "memory": properties.total_memory,
            "uuid": f"GPU-{str(properties.uuid).removeprefix('GPU-')}",
            "bus_id": self._bus_id(properties, index),
            "peers": [
                other for other in range(count) if other != index and module.can_device_access_peer(index, other)
            ],
            "device": self.name,
        }

    def _bus_id(self, properties: Any, index: int) -> str:
        """Return the bus id in the form ``0000:1b:00.0``."""
        if hasattr(properties, "pci_bus_id"):
            return f"{properties.pci_domain_id:04x}:{properties.pci_bus_id:02x}:{properties.pci_device_id:02x}.0"
        domain, _, rest = self.bus_id_of(index).lower().partition(":")
        return f"{int(domain, 16):04x}:{rest}"

    # -- choosing ----------------------------------------------------------------------------------------------------

    @abstractmethod
    def visibility(self, gpus: Sequence[GpuInfo], caller: Mapping[str, str]) -> dict[str, str]:
        """Return the variables that make a process see only these GPUs, in this order.

        ``caller``: the environment under which their indices were determined.
        """

    def mask_entries(self, caller: Mapping[str, str] = os.environ) -> tuple[str, ...] | None:
        """Return the GPUs that ``caller`` makes visible, in order: indices, UUIDs or MIG ids; None if no mask is
        set."""
        for variable in self.masks:
            if (value := caller.get(variable)) is not None:
                return tuple(entry.strip() for entry in value.split(",") if entry.strip())
        return None

    # -- occupancy ---------------------------------------------------------------------------------------------------

    @abstractmethod
    def memory_in_use(self, gpu: GpuInfo) -> int:
        """Return the bytes of the GPU's memory in use by any process, read without a GPU context. Raises
        UnreadableError."""

    @abstractmethod
    def users_of(self, gpu: GpuInfo) -> list[tuple[int, int | None]]:
        """Return the processes that use the GPU: pid and bytes (None: not reported). Raises UnreadableError.

        A container does not see processes outside it, or sees them under pids that are unknown inside.
        """

    def shared_memory(self, pid: int) -> str | None:
        """Return the prefix of the files in /dev/shm that the driver makes for process ``pid``; None if it makes
        none."""
        return None

    # -- running -----------------------------------------------------------------------------------------------------

    def torch_module(self) -> Any:
        """Return ``torch.cuda``, or the module of ``torch_type``."""
        import torch

        return getattr(torch, self.torch_type)

    def runtime_version(self) -> str | None:
        """Return the version of the runtime that torch was built for; None in another build."""
        import torch

        version: str | None = getattr(torch.version, self.version_key, None)
        return version

    def collectives(self) -> str:
        """Return the library of collectives with its version, such as ``NCCL 2.27.3``."""
        return f"{self.library} {'.'.join(map(str, self.torch_module().nccl.version()))}"

    def memory_calls(self) -> MemoryCalls | None:
        """Return the calls with which another process can map memory of this one; None if the harness knows none."""
        return None

    # -- code --------------------------------------------------------------------------------------------------------

    def disassembly(self, files: Mapping[str, str]) -> str | None:
        """Return the disassembled machine code, if the listing is not the code that runs and there is a disassembler.

        ``files``: the files that Triton kept of a kernel, path by name.
        """
        return None

    def without_disassembly(self, files: Mapping[str, str]) -> str | None:
        """Return the reason why there is no ``disassembly``; None if there is one."""
        return f"the {self.listing.lstrip('.')} runs as it is listed"

    def usage(self, files: Mapping[str, str]) -> str:
        """Return registers and memory of the machine code, for ``harness.isa.fingerprint``; empty if the listing has
        them."""
        return ""
