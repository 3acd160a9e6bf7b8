"""Which ranks share a node, a fabric, or neither, and how the GPUs of a node are linked.

topology = TopologyDiscovery(ctx)
topology.discover()                          # collective
topology.get_communication_groups()          # tier -> lists of ranks
topology.get_heap_distribution_plan()[rank]  # by what each other rank's heap can be reached

A node is a host name. A fabric is the one that the GPU's driver reports (NVIDIA: cluster UUID and clique). What no
tool of the machine reports (no NVML, no amdsmi) stays empty or UNKNOWN, and is never guessed. Only ``discover``
communicates with other ranks; everything else computes on a ``TopologyMap``, which travels as a dict.
"""

from __future__ import annotations

import socket
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from enum import IntEnum
from typing import Any, Protocol

import torch.distributed as dist

from iris_under_test.host.platform import current

from .links import FabricInfo, IntraNodeLinkType

__all__ = [
    "FabricInfo",
    "GPUInfo",
    "InterconnectLevel",
    "IntraNodeLinkType",
    "NodeInfo",
    "TopologyDiscovery",
    "TopologyMap",
]


class InterconnectLevel(IntEnum):
    """The nearest tier that two ranks have in common."""

    INTRA_NODE = 0
    INTRA_RACK_FABRIC = 1
    INTER_NODE_RDMA = 2


@dataclass(frozen=True)
class GPUInfo:
    """The GPU of one rank, as that rank sees it.

    ``gpu_id`` is its ordinal there, ``local_rank`` counts the ranks of its node; ``uuid`` and ``pci_bus_id`` as the
    driver writes them, empty on the emulated device. ``links``: other GPUs' ``pci_bus_id`` -> ``IntraNodeLinkType``.
    """

    global_rank: int
    local_rank: int
    gpu_id: int
    hostname: str
    name: str = ""
    uuid: str = ""
    pci_bus_id: str = ""
    fabric: FabricInfo = field(default_factory=FabricInfo)
    links: Mapping[str, int] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the record as a dict of strings, numbers, lists and dicts."""
        return {**asdict(self), "links": {key: int(link) for key, link in self.links.items()}}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> GPUInfo:
        """Return the record of a dict that ``to_dict`` returned."""
        return cls(**{**plain, "fabric": FabricInfo.from_dict(plain["fabric"]), "links": dict(plain["links"])})


@dataclass(frozen=True)
class NodeInfo:
    """A host and its ranks, ascending."""

    hostname: str
    ranks: tuple[int, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the record as a dict of strings, numbers, lists and dicts."""
        return {"hostname": self.hostname, "ranks": list(self.ranks)}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> NodeInfo:
        """Return the record of a dict that ``to_dict`` returned."""
        return cls(plain["hostname"], tuple(plain["ranks"]))


@dataclass(frozen=True)
class TopologyMap:
    """All ranks' GPUs, by rank. Immutable; lists of ranks are ascending. ValueError for an unknown rank."""

    gpus: tuple[GPUInfo, ...]

    def __post_init__(self) -> None:
        if [gpu.global_rank for gpu in self.gpus] != list(range(len(self.gpus))):
            raise ValueError(f"a topology has each rank once, in order, got {[gpu.global_rank for gpu in self.gpus]}")

    @property
    def world_size(self) -> int:
        """The number of ranks."""
        return len(self.gpus)

    @property
    def nodes(self) -> dict[str, NodeInfo]:
        """Host name -> node, in the order of their lowest ranks."""
        return {name: NodeInfo(name, tuple(ranks)) for name, ranks in self._by(lambda gpu: gpu.hostname).items()}

    @property
    def fabric_domains(self) -> dict[str, list[int]]:
        """Domain key -> its ranks."""
        domains = self._by(lambda gpu: gpu.fabric.domain_key)
        domains.pop("", None)
        return domains

    def get_interconnect_level(self, rank: int, other: int) -> InterconnectLevel:
        """The nearest tier of the two; a rank and itself share their node."""
        one, two = self._gpu(rank), self._gpu(other)
        if one.hostname == two.hostname:
            return InterconnectLevel.INTRA_NODE
        if one.fabric.domain_key and one.fabric.domain_key == two.fabric.domain_key:
            return InterconnectLevel.INTRA_RACK_FABRIC
        return InterconnectLevel.INTER_NODE_RDMA

    def get_link_type(self, rank: int, other: int) -> IntraNodeLinkType:
        """Return the link between the GPUs of two ranks of one node; UNKNOWN where none is reported, or for two nodes.

        Ranks that share a GPU (a test on few) have SELF between them.
        """
        one, two = self._gpu(rank), self._gpu(other)
        if rank == other:
            return IntraNodeLinkType.SELF
        if one.hostname != two.hostname:
            return IntraNodeLinkType.UNKNOWN
        if one.pci_bus_id and one.pci_bus_id == two.pci_bus_id:
            return IntraNodeLinkType.SELF
        return IntraNodeLinkType(one.links.get(two.pci_bus_id, IntraNodeLinkType.UNKNOWN))

    def get_node_peers(self, rank: int) -> list[int]:
        """The other ranks of its node."""
        return self._peers(rank, InterconnectLevel.INTRA_NODE)

    def get_fabric_domain_peers(self, rank: int) -> list[int]:
        """The other ranks of its fabric domain, those of its own node among them; none where it is in no fabric."""
        key = self._gpu(rank).fabric.domain_key
        return [other for other in self.fabric_domains.get(key, []) if other != rank]

    def get_rdma_peers(self, rank: int) -> list[int]:
        """The ranks that it shares neither a node nor a fabric with."""
        return self._peers(rank, InterconnectLevel.INTER_NODE_RDMA)

    def get_ranks_for_node(self, hostname: str) -> list[int]:
        """Return all ranks of a host; empty for a host without ranks."""
        return [gpu.global_rank for gpu in self.gpus if gpu.hostname == hostname]

    def get_ranks_for_fabric_domain(self, domain_key: str) -> list[int]:
        """Return all ranks of a fabric domain; empty for an unknown key, and for the empty key."""
        return self.fabric_domains.get(domain_key, [])

    def summary(self) -> str:
        """Some lines for a person."""
        lines = [f"{self.world_size} ranks on {len(self.nodes)} nodes, {len(self.fabric_domains)} fabric domains"]
        for node in self.nodes.values():
            lines.append(f"  {node.hostname}: ranks {', '.join(map(str, node.ranks))}")
        for key, ranks in self.fabric_domains.items():
            lines.append(f"  fabric {key}: ranks {', '.join(map(str, ranks))}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return the record as a dict of strings, numbers, lists and dicts."""
        return {"gpus": [gpu.to_dict() for gpu in self.gpus]}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> TopologyMap:
        """Return the record of a dict that ``to_dict`` returned."""
        return cls(tuple(GPUInfo.from_dict(gpu) for gpu in plain["gpus"]))

    def _peers(self, rank: int, level: InterconnectLevel) -> list[int]:
        self._gpu(rank)
        return [
            other
            for other in range(self.world_size)
            if other != rank and self.get_interconnect_level(rank, other) == level
        ]

    def _by(self, key: Any) -> dict[str, list[int]]:
        groups: dict[str, list[int]] = defaultdict(list)
        for gpu in self.gpus:
            groups[key(gpu)].append(gpu.global_rank)
        return dict(groups)

    def _gpu(self, rank: int) -> GPUInfo:
        if not 0 <= rank < self.world_size:
            raise ValueError(f"rank must be in [0, {self.world_size}), got {rank}")
        return self.gpus[rank]


class HasDevice(Protocol):
    """The part of an ``Iris`` that ``TopologyDiscovery`` uses."""

    @property
    def gpu_id(self) -> int: ...


class TopologyDiscovery:
    """The topology of the world: ``discover`` gathers it once, the other functions read it.

    ``iris_ctx`` is an instance, whose device is meant; without one it is the device that an instance would have.
    """

    def __init__(self, iris_ctx: HasDevice | None = None) -> None:
        self._instance = iris_ctx
        self._topology: TopologyMap | None = None

    @property
    def topology(self) -> TopologyMap:
        """RuntimeError before ``discover``."""
        if self._topology is None:
            raise RuntimeError("the topology is not known yet: call discover() first, on every rank")
        return self._topology

    def discover(self) -> TopologyMap:
        """Collective over the world. The same map on every rank.

        Raises:
            RuntimeError: torch.distributed is not initialised; on every rank, a rank cannot identify its device.
        """
        if not dist.is_initialized():
            raise RuntimeError("torch.distributed is not initialised: call init_process_group first")
        self._topology = TopologyMap(tuple(_with_local_ranks(_gather(self._instance))))
        return self._topology

    def get_communication_groups(self) -> dict[InterconnectLevel, list[list[int]]]:
        """Each tier's groups, which divide the world: ranks of a group reach each other within that tier.

        Nodes; then fabric domains, with a node that is in none as a group of its own (and no group at all without any
        fabric); then the world.
        """
        topology = self.topology
        nodes = [list(node.ranks) for node in topology.nodes.values()]
        racks: list[list[int]] = []
        if topology.fabric_domains:
            fabrics = topology.fabric_domains.values()
            covered = {rank for ranks in fabrics for rank in ranks}
            alone = [[rank for rank in ranks if rank not in covered] for ranks in nodes]
            racks = sorted([*map(list, fabrics), *filter(None, alone)])
        return {
            InterconnectLevel.INTRA_NODE: nodes,
            InterconnectLevel.INTRA_RACK_FABRIC: racks,
            InterconnectLevel.INTER_NODE_RDMA: [list(range(topology.world_size))],
        }

    def get_heap_distribution_plan(self) -> dict[int, dict[str, Any]]:
        """For each rank, which of the others' heaps it reaches how: every other rank is in one of the three lists.

        ``{"ipc_peers", "fabric_peers", "rdma_peers", "node", "local_rank", "gpu_id", "fabric_domain"}``.
        """
        topology, plan = self.topology, {}
        for gpu in topology.gpus:
            rank, near = gpu.global_rank, set(topology.get_node_peers(gpu.global_rank))
            plan[rank] = {
                "ipc_peers": sorted(near),
                "fabric_peers": [peer for peer in topology.get_fabric_domain_peers(rank) if peer not in near],
                "rdma_peers": topology.get_rdma_peers(rank),
                "node": gpu.hostname,
                "local_rank": gpu.local_rank,
                "gpu_id": gpu.gpu_id,
                "fabric_domain": gpu.fabric.domain_key,
            }
        return plan


def _gather(instance: HasDevice | None) -> list[dict[str, Any]]:
    """Gather each rank's GPUInfo as a dict, in which ``local_rank`` is still 0."""
    rank = dist.get_rank()
    own: dict[str, Any] = {}
    error = ""
    try:
        platform = current()
        gpu_id = platform.device_id(rank) if instance is None else instance.gpu_id
        own = GPUInfo(rank, 0, gpu_id, socket.gethostname(), **platform.gpu_facts(gpu_id)).to_dict()
    except Exception as failure:  # noqa: BLE001 - whatever it is, the other ranks must hear of it
        error = f"{type(failure).__name__}: {failure}"
    gathered: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, (error, own))
    errors = {rank: text for rank, (text, _) in enumerate(gathered) if text}
    if errors:
        raise RuntimeError(f"ranks cannot identify their device: {errors}")
    return [plain for _, plain in gathered]


def _with_local_ranks(gathered: Iterable[Mapping[str, Any]]) -> Iterable[GPUInfo]:
    counted: dict[str, int] = defaultdict(int)
    for plain in gathered:
        yield GPUInfo.from_dict({**plain, "local_rank": counted[plain["hostname"]]})
        counted[plain["hostname"]] += 1
