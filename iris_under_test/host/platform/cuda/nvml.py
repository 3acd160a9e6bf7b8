"""The fabric and the links of an NVIDIA GPU, through NVML."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from typing import Any

from iris_under_test.host.distributed.links import FabricInfo, IntraNodeLinkType

__all__ = ["nvml_facts"]

_MOST_NVLINKS = 18


def nvml_facts(bus: str) -> dict[str, Any]:
    """``fabric`` and ``links``; what NVML does not know is not there, and nothing where it is not installed."""
    try:
        import pynvml
    except ModuleNotFoundError:
        return {}
    with contextlib.ExitStack() as using:
        try:
            pynvml.nvmlInit()
            using.callback(pynvml.nvmlShutdown)
            device = pynvml.nvmlDeviceGetHandleByPciBusId(bus.encode())
        except pynvml.NVMLError:
            return {}
        return {"fabric": _nvml_fabric(pynvml, device), "links": dict(_nvml_links(pynvml, device))}


def _nvml_fabric(pynvml: Any, device: Any) -> FabricInfo:
    info = pynvml.c_nvmlGpuFabricInfoV_t()
    try:
        # By reference: the binding passes on what it is given, and a structure would go by value.
        pynvml.nvmlDeviceGetGpuFabricInfoV(device, ctypes.byref(info))
    except pynvml.NVMLError:
        return FabricInfo()
    uuid = bytes(info.clusterUuid)
    # A GPU with NVSwitches is registered with a fabric of its node alone, whose cluster has no UUID.
    if info.state != pynvml.NVML_GPU_FABRIC_STATE_COMPLETED or info.status != 0 or not any(uuid):
        return FabricInfo()
    return FabricInfo(uuid.hex(), int(info.cliqueId))


def _nvml_links(pynvml: Any, device: Any) -> Iterator[tuple[str, IntraNodeLinkType]]:
    """Each other GPU of this machine that NVML sees."""
    own = _nvml_bus(pynvml.nvmlDeviceGetPciInfo(device))
    direct, switched = _nvlink_ends(pynvml, device)
    for index in range(pynvml.nvmlDeviceGetCount()):
        try:
            other = pynvml.nvmlDeviceGetHandleByIndex(index)
            bus = _nvml_bus(pynvml.nvmlDeviceGetPciInfo(other))
            if bus == own:
                continue
            if bus in direct:
                yield bus, IntraNodeLinkType.NVLINK
            elif switched and _nvlink_ends(pynvml, other)[1]:
                yield bus, IntraNodeLinkType.NVSWITCH
            else:
                yield bus, _common_ancestor(pynvml, pynvml.nvmlDeviceGetTopologyCommonAncestor(device, other))
        except pynvml.NVMLError:
            continue  # a GPU that this process may not look at, or a virtual machine without a PCI tree


def _nvlink_ends(pynvml: Any, device: Any) -> tuple[set[str], bool]:
    """The GPUs that NVLinks of this one lead to, and whether some lead to switches."""
    gpus: set[str] = set()
    switched = False
    for link in range(_MOST_NVLINKS):
        try:
            if not pynvml.nvmlDeviceGetNvLinkState(device, link):
                continue
            if pynvml.nvmlDeviceGetNvLinkRemoteDeviceType(device, link) == pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
                switched = True
            else:
                gpus.add(_nvml_bus(pynvml.nvmlDeviceGetNvLinkRemotePciInfo(device, link)))
        except pynvml.NVMLError:
            continue  # this GPU has no such link
    return gpus, switched


def _nvml_bus(info: Any) -> str:
    """Return the address in the form 0000:1b:00.0; NVML writes eight digits of domain, and may use capitals."""
    text = info.busId.decode() if isinstance(info.busId, bytes) else str(info.busId)
    domain, rest = text.lower().split(":", 1)
    return f"{int(domain, 16):04x}:{rest}"


def _common_ancestor(pynvml: Any, level: int) -> IntraNodeLinkType:
    return {
        pynvml.NVML_TOPOLOGY_SINGLE: IntraNodeLinkType.PCIE_SWITCH,
        pynvml.NVML_TOPOLOGY_MULTIPLE: IntraNodeLinkType.PCIE_SWITCH,
        pynvml.NVML_TOPOLOGY_HOSTBRIDGE: IntraNodeLinkType.PCIE_HOST_BRIDGE,
        pynvml.NVML_TOPOLOGY_NODE: IntraNodeLinkType.PCIE_NUMA,
        pynvml.NVML_TOPOLOGY_SYSTEM: IntraNodeLinkType.PCIE_SYSTEM,
    }.get(level, IntraNodeLinkType.UNKNOWN)
