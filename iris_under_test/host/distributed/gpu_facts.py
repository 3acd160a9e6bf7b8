"""What this process can tell of one GPU for the topology: NVIDIA's through NVML, AMD's from the kernel's files."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from .topology import FabricInfo, IntraNodeLinkType

__all__ = ["gpu_facts"]

KFD = Path("/sys/class/kfd/kfd/topology/nodes")
PCI = Path("/sys/bus/pci/devices")
_KFD_XGMI, _KFD_PCIE = 11, 2  # HSA_IOLINKTYPE_*, linux/include/uapi/linux/kfd_sysfs.h
_MOST_NVLINKS = 18


def gpu_facts(gpu_id: int) -> dict[str, Any]:
    """``name``, ``uuid``, ``pci_bus_id``, ``fabric`` and ``links`` of a visible GPU, as ``GPUInfo`` has them.

    Of the emulated device there is a name alone. RuntimeError where no driver is active.
    """
    from triton.runtime import driver

    active = driver.active
    if active.get_active_torch_device().type == "cpu":
        return {"name": f"emulated {active.get_current_target().arch}"}
    properties = torch.cuda.get_device_properties(gpu_id)
    bus = f"{properties.pci_domain_id:04x}:{properties.pci_bus_id:02x}:{properties.pci_device_id:02x}.0"
    facts = {"name": properties.name, "uuid": str(properties.uuid), "pci_bus_id": bus}
    return {**facts, **(_kfd_facts(bus) if torch.version.hip else _nvml_facts(bus))}


def _nvml_facts(bus: str) -> dict[str, Any]:
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
    found = pynvml.c_nvmlGpuFabricInfoV_t()
    try:
        # By reference: the binding passes on what it is given, and a structure would go by value.
        pynvml.nvmlDeviceGetGpuFabricInfoV(device, ctypes.byref(found))
    except pynvml.NVMLError:
        return FabricInfo()
    uuid = bytes(found.clusterUuid)
    # A GPU beside NVSwitches is registered with a fabric of its node alone, whose cluster has no UUID.
    if found.state != pynvml.NVML_GPU_FABRIC_STATE_COMPLETED or found.status != 0 or not any(uuid):
        return FabricInfo()
    return FabricInfo(uuid.hex(), int(found.cliqueId))


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
    """As in 0000:1b:00.0; NVML writes eight digits of domain, and may use capitals."""
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


def _kfd_facts(bus: str) -> dict[str, Any]:
    """``links``, from what the amdgpu driver shows of its topology; needs no library and starts nothing."""
    buses = {}
    for folder in KFD.glob("[0-9]*"):
        node = _kfd_properties(folder / "properties")
        if node.get("simd_count"):  # a GPU
            place = node["location_id"]
            buses[int(folder.name)] = (
                f"{node.get('domain', 0):04x}:{place >> 8 & 0xFF:02x}:{place >> 3 & 0x1F:02x}.{place & 7}"
            )
    links = {}
    for number, own in buses.items():
        if own != bus:
            continue
        for path in sorted((KFD / str(number)).glob("*_links/*/properties")):  # io_links and p2p_links
            link = _kfd_properties(path)
            other = buses.get(link.get("node_to", -1))
            if other is not None:
                links[other] = _kfd_link(link.get("type", -1), own, other)
    return {"links": links}


def _kfd_link(kind: int, own: str, other: str) -> IntraNodeLinkType:
    if kind == _KFD_XGMI:
        return IntraNodeLinkType.NVLINK
    numa = {_numa_node(own), _numa_node(other)}
    if kind != _KFD_PCIE or -1 in numa:
        return IntraNodeLinkType.UNKNOWN
    return IntraNodeLinkType.PCIE_NUMA if len(numa) == 1 else IntraNodeLinkType.PCIE_SYSTEM


def _numa_node(bus: str) -> int:
    """-1 where the system does not say."""
    try:
        return int((PCI / bus / "numa_node").read_text("ascii"))
    except OSError:
        return -1


def _kfd_properties(path: Path) -> dict[str, int]:
    """Lines of a name and a number. Empty where this process may not read it, as in a container with few GPUs."""
    try:
        lines = path.read_text("ascii").splitlines()
    except OSError:
        return {}
    return {name: int(number) for name, _, number in (line.partition(" ") for line in lines)}
