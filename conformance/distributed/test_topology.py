"""TopologyDiscovery: the ranks of each node, compared with host names gathered by torch.distributed."""

import socket

import torch.distributed as dist

from conformance.distributed.modules import module_of
from conformance.support.cases import HostCase
from fixtures.findings import Findings
from fixtures.requirement import ANY_NODES, requirement


def run(env, case):
    """Discover the topology of this host, or of simulated hosts with ``ranks_per_host`` ranks each."""
    real, (_, ranks_per_host) = socket.gethostname, case.arguments
    if ranks_per_host:
        name = f"host{env.rank // ranks_per_host}"
        socket.gethostname = lambda: name
    try:
        return _discovered(env, case)
    finally:
        socket.gethostname = real


def _discovered(env, case):
    findings, me = Findings(env.rank), env.rank
    module = module_of(env, "host.distributed.topology")
    levels = module.InterconnectLevel
    discovery = module.TopologyDiscovery(env.iris if case.arguments[0] else None)
    for name, query in {
        "topology": lambda: discovery.topology,
        "get_communication_groups()": discovery.get_communication_groups,
        "get_heap_distribution_plan()": discovery.get_heap_distribution_plan,
    }.items():
        findings.raises(f"{name} before discover()", RuntimeError, query)
    topology = discovery.discover()
    findings.true("discover() returns the topology", topology is discovery.topology)
    _same_everywhere(findings, "the topology", topology.to_dict())

    hosts = _gathered(socket.gethostname())
    nodes = [[rank for rank, host in enumerate(hosts) if host == name] for name in dict.fromkeys(hosts)]
    world, plan, groups = list(range(env.world_size)), discovery.get_heap_distribution_plan(), None
    groups = discovery.get_communication_groups()
    findings.equal("groups of nodes", [list(group) for group in groups[levels.INTRA_NODE]], nodes)
    findings.equal("groups of the world", [list(group) for group in groups[levels.INTER_NODE_RDMA]], [world])
    findings.equal("ranks of this node", list(topology.get_ranks_for_node(hosts[me])), _with(nodes, me))
    findings.equal("ranks of no node", list(topology.get_ranks_for_node("")), [])
    for rank in world:
        node, entry = _with(nodes, rank), plan[rank]
        near = [other for other in node if other != rank]
        findings.equal(f"node peers of rank {rank}", sorted(topology.get_node_peers(rank)), near)
        findings.equal(f"ipc_peers of rank {rank}", sorted(entry["ipc_peers"]), near)
        findings.equal(f"node of rank {rank}", entry["node"], hosts[rank])
        findings.equal(f"local_rank of rank {rank}", entry["local_rank"], node.index(rank))
        reached = [rank, *entry["ipc_peers"], *entry["fabric_peers"], *entry["rdma_peers"]]
        findings.equal(f"peers of rank {rank}, each in one list", sorted(reached), world)
        findings.equal(f"rdma_peers of rank {rank}", sorted(entry["rdma_peers"]), sorted(topology.get_rdma_peers(rank)))
        domain = topology.get_ranks_for_fabric_domain(entry["fabric_domain"])
        peers = sorted(topology.get_fabric_domain_peers(rank))
        findings.equal(
            f"fabric domain of rank {rank}", sorted(domain), sorted([rank, *peers] if entry["fabric_domain"] else [])
        )
        for other in world:
            level = (
                levels.INTRA_NODE
                if other in node
                else levels.INTRA_RACK_FABRIC
                if other in peers
                else levels.INTER_NODE_RDMA
            )
            findings.equal(f"level of ranks {rank} and {other}", topology.get_interconnect_level(rank, other), level)
    findings.equal("gpu_id of this rank", plan[me]["gpu_id"], env.iris.gpu_id)
    findings.true("the summary names the host", hosts[me] in topology.summary())
    return findings.first


def _with(groups, rank):
    return next(group for group in groups if rank in group)


def _gathered(value):
    every = [None] * dist.get_world_size()
    dist.all_gather_object(every, value)
    return every


def _same_everywhere(findings, label, value):
    for rank, other in enumerate(_gathered(value)):
        findings.equal(f"{label} on rank {rank}", other, value)


@requirement(
    "DIST-TOPOLOGY-001",
    cases=lambda ranks: [HostCase("topology", place) for place in ((True, 0), (False, 0), (True, 1), (True, 2))],
    nodes=ANY_NODES,
)
def test_topology(check, case):
    check(run, case)


LEVELS = {"INTRA_NODE": 0, "INTRA_RACK_FABRIC": 1, "INTER_NODE_RDMA": 2}
LINKS = {
    "SELF": -1, "NVLINK": 0, "NVSWITCH": 1, "PCIE_SWITCH": 2, "PCIE_HOST_BRIDGE": 3, "PCIE_NUMA": 4, "PCIE_SYSTEM": 5,
    "UNKNOWN": 99,
}  # fmt: skip


def run_data(env, case):
    """Check the values of the enumerations, and the conversion of records to dicts and back."""
    findings, module = Findings(env.rank), module_of(env, "host.distributed.topology")
    for kind, wanted in ((module.InterconnectLevel, LEVELS), (module.IntraNodeLinkType, LINKS)):
        findings.equal(f"numbers of {kind.__name__}", {member.name: member.value for member in kind}, wanted)
    topology = module.TopologyDiscovery(env.iris).discover()
    again = module.TopologyMap.from_dict(topology.to_dict())
    findings.equal("a topology converted to a dict and back", again.to_dict(), topology.to_dict())
    fabric = module.FabricInfo(cluster_uuid="f00d", clique_id=3)
    findings.equal("a fabric converted to a dict and back", module.FabricInfo.from_dict(fabric.to_dict()), fabric)
    return findings.first


@requirement("DIST-TOPOLOGY-002", cases=lambda ranks: [HostCase("data")], nodes=ANY_NODES)
def test_data(check, case):
    check(run_data, case)
