"""Topology on maps written by hand and on stand-ins for the sources about GPUs; on ranks: test_distributed.py."""

from __future__ import annotations

import sys
import types

import pynvml
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_under_test.host.distributed.topology import (
    FabricInfo,
    GPUInfo,
    InterconnectLevel,
    IntraNodeLinkType,
    NodeInfo,
    TopologyDiscovery,
    TopologyMap,
)
from iris_under_test.host.platform.cuda.nvml import nvml_facts
from iris_under_test.host.platform.rocm import kfd

NODE, RACK, RDMA = InterconnectLevel


def world(*places: tuple[str, str]) -> TopologyMap:
    """Ranks by (host, cluster UUID)."""
    return TopologyMap(
        tuple(
            GPUInfo(rank, 0, rank, host, fabric=FabricInfo(cluster, 7 if cluster else 0))
            for rank, (host, cluster) in enumerate(places)
        )
    )


def discovered(topology: TopologyMap) -> TopologyDiscovery:
    discovery = TopologyDiscovery()
    discovery._topology = topology
    return discovery


# Ranks 0, 2 on host a and 1 on b in fabric F; 3 on c alone; 4 and 5 on d in fabric G.
MIXED = world(("a", "F"), ("b", "F"), ("a", "F"), ("c", ""), ("d", "G"), ("d", "G"))


def test_levels():
    assert [MIXED.get_interconnect_level(0, other) for other in range(6)] == [NODE, RACK, NODE, RDMA, RDMA, RDMA]
    assert MIXED.get_interconnect_level(4, 5) == NODE
    assert world(("a", ""), ("b", "")).get_interconnect_level(0, 1) == RDMA, "an empty key is not a fabric"


def test_cliques_divide_a_cluster():
    gpus = [GPUInfo(rank, 0, 0, f"host{rank}", fabric=FabricInfo("F", rank // 2)) for rank in range(3)]
    topology = TopologyMap(tuple(gpus))
    assert [topology.get_interconnect_level(0, other) for other in (1, 2)] == [RACK, RDMA]


def test_queries():
    assert (MIXED.get_node_peers(0), MIXED.get_node_peers(3)) == ([2], [])
    assert (MIXED.get_fabric_domain_peers(0), MIXED.get_fabric_domain_peers(3)) == ([1, 2], [])
    assert (MIXED.get_rdma_peers(0), MIXED.get_rdma_peers(4)) == ([3, 4, 5], [0, 1, 2, 3])
    assert (MIXED.get_ranks_for_node("a"), MIXED.get_ranks_for_node("unknown")) == ([0, 2], [])
    assert MIXED.get_ranks_for_fabric_domain("F:7") == [0, 1, 2]
    assert MIXED.get_ranks_for_fabric_domain("") == []
    assert MIXED.nodes["d"] == NodeInfo("d", (4, 5))
    assert MIXED.summary().splitlines()[0] == "6 ranks on 4 nodes, 2 fabric domains"
    for query in (MIXED.get_node_peers, MIXED.get_fabric_domain_peers, MIXED.get_rdma_peers):
        for rank in (-1, 6):
            with pytest.raises(ValueError, match=str(rank)):
                query(rank)


def test_groups():
    assert discovered(MIXED).get_communication_groups() == {
        NODE: [[0, 2], [1], [3], [4, 5]],
        RACK: [[0, 1, 2], [3], [4, 5]],
        RDMA: [[0, 1, 2, 3, 4, 5]],
    }
    plain = discovered(world(("a", ""), ("b", "")))
    assert plain.get_communication_groups() == {NODE: [[0], [1]], RACK: [], RDMA: [[0, 1]]}


def test_plan():
    plan = discovered(MIXED).get_heap_distribution_plan()
    assert plan[0] == {
        "ipc_peers": [2],
        "fabric_peers": [1],
        "rdma_peers": [3, 4, 5],
        "node": "a",
        "local_rank": 0,
        "gpu_id": 0,
        "fabric_domain": "F:7",
    }
    assert (plan[3]["fabric_peers"], plan[3]["rdma_peers"]) == ([], [0, 1, 2, 4, 5])


def test_links():
    links = {"bus1": IntraNodeLinkType.NVSWITCH}
    gpus = (
        GPUInfo(0, 0, 0, "a", pci_bus_id="bus0", links=links),
        GPUInfo(1, 1, 1, "a", pci_bus_id="bus1"),
        GPUInfo(2, 2, 0, "a", pci_bus_id="bus0"),
        GPUInfo(3, 0, 0, "b", pci_bus_id="bus1"),
        GPUInfo(4, 1, 1, "b"),
    )
    topology, kinds = TopologyMap(gpus), IntraNodeLinkType
    assert [topology.get_link_type(0, other) for other in range(5)] == [
        kinds.SELF, kinds.NVSWITCH, kinds.SELF, kinds.UNKNOWN, kinds.UNKNOWN,
    ]  # fmt: skip
    assert [topology.get_link_type(4, other) for other in (3, 4)] == [kinds.UNKNOWN, kinds.SELF]


def test_before_discovery():
    discovery = TopologyDiscovery()
    for query in (
        lambda: discovery.topology,
        discovery.get_communication_groups,
        discovery.get_heap_distribution_plan,
    ):
        with pytest.raises(RuntimeError, match="discover"):
            query()
    with pytest.raises(RuntimeError, match="init_process_group"):
        discovery.discover()


def test_ranks_are_each_there_once():
    with pytest.raises(ValueError, match=r"\[0, 0\]"):
        TopologyMap((GPUInfo(0, 0, 0, "a"), GPUInfo(0, 0, 0, "a")))


places = st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from(["", "F", "G"])), min_size=1, max_size=9)


@given(places)
def test_tiers_divide_the_world(drawn):
    topology = world(*drawn)
    size = topology.world_size
    plan, groups = discovered(topology).get_heap_distribution_plan(), discovered(topology).get_communication_groups()
    for rank in range(size):
        lists = [plan[rank][name] for name in ("ipc_peers", "fabric_peers", "rdma_peers")]
        assert sorted([rank, *lists[0], *lists[1], *lists[2]]) == list(range(size))
        for level, peers in zip(InterconnectLevel, lists, strict=True):
            for peer in peers:
                assert (
                    topology.get_interconnect_level(rank, peer) == topology.get_interconnect_level(peer, rank) == level
                )
    for level, members in groups.items():
        flat = sorted(rank for group in members for rank in group)
        assert flat == (list(range(size)) if topology.fabric_domains or level != RACK else [])


@given(places)
def test_round_trip(drawn):
    import json

    topology = world(*drawn)
    assert TopologyMap.from_dict(json.loads(json.dumps(topology.to_dict()))) == topology
    for node in topology.nodes.values():
        assert NodeInfo.from_dict(node.to_dict()) == node


# Sources about GPUs


class NvmlError(Exception):
    pass


class Nvml(types.ModuleType):
    """Four GPUs: 0 and 1 on a switch, 0 and 2 by a link, 3 on PCIe alone. ``fabric``: (state, status, uuid)."""

    NVMLError = NvmlError
    NVML_NVLINK_DEVICE_TYPE_SWITCH = 2
    NVML_GPU_FABRIC_STATE_COMPLETED = 3
    NVML_TOPOLOGY_SINGLE, NVML_TOPOLOGY_MULTIPLE, NVML_TOPOLOGY_HOSTBRIDGE = 10, 20, 30
    NVML_TOPOLOGY_NODE, NVML_TOPOLOGY_SYSTEM = 40, 50
    fabric = (3, 0, bytes(range(16)))
    balance = 0

    c_nvmlGpuFabricInfoV_t = pynvml.c_nvmlGpuFabricInfoV_t  # noqa: N815 - the binding's

    def nvmlInit(self):  # noqa: N802
        self.balance += 1

    def nvmlShutdown(self):  # noqa: N802
        self.balance -= 1

    def nvmlDeviceGetHandleByPciBusId(self, bus):  # noqa: N802
        assert bus == b"0000:1a:00.0"
        return 0

    def nvmlDeviceGetCount(self):  # noqa: N802
        return 5

    def nvmlDeviceGetHandleByIndex(self, index):  # noqa: N802
        if index == 4:
            raise NvmlError("no permission")
        return index

    def nvmlDeviceGetPciInfo(self, device):  # noqa: N802
        return types.SimpleNamespace(busId=b"00000000:1%X:00.0" % (10 + device))

    def nvmlDeviceGetNvLinkState(self, device, link):  # noqa: N802
        if link >= 3:
            raise NvmlError("no such link")
        return link < {0: 2, 1: 1, 2: 1, 3: 0}[device]

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, device, link):  # noqa: N802
        return 2 if (device, link) in {(0, 0), (1, 0)} else 0

    def nvmlDeviceGetNvLinkRemotePciInfo(self, device, link):  # noqa: N802
        return self.nvmlDeviceGetPciInfo({0: 2, 2: 0}[device])

    def nvmlDeviceGetTopologyCommonAncestor(self, device, other):  # noqa: N802
        return 40

    def nvmlDeviceGetGpuFabricInfoV(self, device, structure):  # noqa: N802
        if self.fabric is None:
            raise NvmlError("not supported")
        info = structure._obj  # of a reference: the binding hands it to the library as it is
        assert info.version == pynvml.nvmlGpuFabricInfo_v2
        info.state, info.status, uuid = self.fabric
        info.clusterUuid[:], info.cliqueId = uuid, 9


@pytest.fixture
def nvml(monkeypatch):
    module = Nvml("pynvml")
    monkeypatch.setitem(sys.modules, "pynvml", module)
    yield module
    assert module.balance == 0


def test_nvml(nvml):
    kinds = IntraNodeLinkType
    assert nvml_facts("0000:1a:00.0") == {
        "fabric": FabricInfo(bytes(range(16)).hex(), 9),
        "links": {
            "0000:1b:00.0": kinds.NVSWITCH,
            "0000:1c:00.0": kinds.NVLINK,
            "0000:1d:00.0": kinds.PCIE_NUMA,
        },
    }


@pytest.mark.parametrize("fabric", [None, (2, 0, b"x" * 16), (3, 3, b"x" * 16), (3, 0, bytes(16))])
def test_no_fabric_without_a_cluster(nvml, fabric):
    nvml.fabric = fabric
    assert nvml_facts("0000:1a:00.0")["fabric"] == FabricInfo()


def test_without_nvml(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert nvml_facts("0000:1a:00.0") == {}


def test_kfd(tmp_path, monkeypatch):
    """As the driver writes it: node 0 a CPU, 1 and 2 joined by xGMI, 3 by PCIe, 4 by PCIe across sockets."""
    nodes, pci = tmp_path / "nodes", tmp_path / "pci"
    monkeypatch.setattr(kfd, "KFD", nodes)
    monkeypatch.setattr(kfd, "PCI", pci)

    def write(path, **properties):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{name} {number}\n" for name, number in properties.items()))

    write(nodes / "0" / "properties", cpu_cores_count=64, simd_count=0, location_id=0)
    for node, bus in ((1, 0x1B), (2, 0x3D), (3, 0x4E), (4, 0x5F)):
        write(nodes / str(node) / "properties", simd_count=1216, location_id=bus << 8, domain=2)
        numa = pci / f"0002:{bus:02x}:00.0" / "numa_node"
        numa.parent.mkdir(parents=True)
        numa.write_text("1\n" if node == 4 else "0\n")
    links = nodes / "1"
    write(links / "io_links" / "0" / "properties", type=2, node_from=1, node_to=0)
    write(links / "io_links" / "1" / "properties", type=11, node_from=1, node_to=2)
    write(links / "p2p_links" / "0" / "properties", type=2, node_from=1, node_to=3)
    write(links / "p2p_links" / "1" / "properties", type=2, node_from=1, node_to=4)
    kinds = IntraNodeLinkType
    assert kfd.kfd_facts("0002:1b:00.0") == {
        "links": {
            "0002:3d:00.0": kinds.NVLINK,
            "0002:4e:00.0": kinds.PCIE_NUMA,
            "0002:5f:00.0": kinds.PCIE_SYSTEM,
        }
    }
    (pci / "0002:4e:00.0" / "numa_node").unlink()
    assert kfd.kfd_facts("0002:1b:00.0")["links"]["0002:4e:00.0"] == kinds.UNKNOWN


def test_without_kfd(tmp_path, monkeypatch):
    monkeypatch.setattr(kfd, "KFD", tmp_path)
    assert kfd.kfd_facts("0002:1b:00.0") == {"links": {}}
