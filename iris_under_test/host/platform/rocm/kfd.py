"""The links of an AMD GPU, from what the amdgpu driver shows of its topology; needs no library and starts nothing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from iris_under_test.host.distributed.links import IntraNodeLinkType

__all__ = ["kfd_facts"]

_SYS = Path(os.environ.get("IRIS_SYSTEM_ROOT", "/")) / "sys"  # the variable is set on an emulated machine
KFD = _SYS / "class/kfd/kfd/topology/nodes"
PCI = _SYS / "bus/pci/devices"
_KFD_XGMI, _KFD_PCIE = 11, 2  # HSA_IOLINKTYPE_*, linux/include/uapi/linux/kfd_sysfs.h


def kfd_facts(bus: str) -> dict[str, Any]:
    """``links`` of the GPU at this PCI address, as ``GPUInfo`` has them."""
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
    """Return the NUMA node of a PCI address, -1 if the system does not know it."""
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
