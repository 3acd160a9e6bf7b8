"""The links of a GPU to other GPUs, and its fabric, as the device's driver reports them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import IntEnum
from typing import Any

__all__ = ["FabricInfo", "IntraNodeLinkType"]


class IntraNodeLinkType(IntEnum):
    """The connection between two GPUs of one node; NVLINK stands for any direct link of GPUs, AMD's xGMI too."""

    SELF = -1
    NVLINK = 0
    NVSWITCH = 1
    PCIE_SWITCH = 2
    PCIE_HOST_BRIDGE = 3
    PCIE_NUMA = 4
    PCIE_SYSTEM = 5
    UNKNOWN = 99


@dataclass(frozen=True)
class FabricInfo:
    """The place of a GPU in a fabric. Without a cluster it is in no fabric."""

    cluster_uuid: str = ""
    clique_id: int = 0

    @property
    def is_valid(self) -> bool:
        """True if the GPU is part of a fabric: its cluster has a UUID other than zeros, which stand for none."""
        return bool(self.cluster_uuid.strip("0-"))

    @property
    def domain_key(self) -> str:
        """The same text for GPUs that reach each other's memory over the fabric; empty for a GPU in no fabric."""
        return f"{self.cluster_uuid}:{self.clique_id}" if self.is_valid else ""

    def to_dict(self) -> dict[str, Any]:
        """Return the record as a dict of strings, numbers, lists and dicts."""
        return asdict(self)

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> FabricInfo:
        """Return the record of a dict that ``to_dict`` returned."""
        return cls(**plain)
