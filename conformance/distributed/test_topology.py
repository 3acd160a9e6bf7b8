"""TopologyDiscovery: the ranks of each node, compared with host names gathered by torch.distributed."""

import socket

import torch.distributed as dist

from conformance.distributed.modules import module_of
from conformance.support.cases import HostCase
from fixtures.findings import Findings
from fixtures.requirement import ANY_NODES, requirement


def run(env, case):
    """Discover the topology of this host, or of simulated hosts with ``ranks_per_host`` ranks each."""
    own, ranks_per_host = case.arguments
    name = f"host{env.rank // ranks_per_host}" if ranks_per_host else socket.gethostname()
    hosts = _gathered(name)
    facts = env.in_library(discovered, own, name if ranks_per_host else "", hosts)
    findings, me = Findings(env.rank), env.rank
    for label, refused in facts["before"].items():
        findings.equal(f"{label} before discover() raises RuntimeError", refused, True)
    findings.true("discover() returns the topology", facts["returned"])
    _same_everywhere(findings, "the topology", facts["topology"])

    nodes = [[rank for rank, host in enumerate(hosts) if host == name] for name in dict.fromkeys(hosts)]
    world, plan, groups = list(range(env.world_size)), facts["plan"], facts["groups"]
    findings.equal("groups of nodes", groups["INTRA_NODE"], nodes)
    findings.equal("groups of the world", groups["INTER_NODE_RDMA"], [world])
    findings.equal("groups of fabrics", sorted(groups.get("INTRA_RACK_FABRIC", [])), _fabrics(nodes, plan))
    findings.equal("ranks of this node", facts["nodes"][hosts[me]], _with(nodes, me))
    findings.equal("ranks of no node", facts["nodes"][""], [])
    for rank in world:
        node, entry, peers = _with(nodes, rank), plan[rank], facts["fabric peers"][rank]
        near = [other for other in node if other != rank]
        findings.equal(f"node peers of rank {rank}", facts["node peers"][rank], near)
        findings.equal(f"ipc_peers of rank {rank}", sorted(entry["ipc_peers"]), near)
        findings.equal(f"node of rank {rank}", entry["node"], hosts[rank])
        findings.equal(f"local_rank of rank {rank}", entry["local_rank"], node.index(rank))
        reached = [rank, *entry["ipc_peers"], *entry["fabric_peers"], *entry["rdma_peers"]]
        findings.equal(f"peers of rank {rank}, each in one list", sorted(reached), world)
        findings.equal(f"rdma_peers of rank {rank}", sorted(entry["rdma_peers"]), facts["rdma peers"][rank])
        findings.equal(
            f"fabric domain of rank {rank}",
            facts["domains"][rank],
            sorted([rank, *peers] if entry["fabric_domain"] else []),
        )
        for other in world:
            level = "INTRA_NODE" if other in node else "INTRA_RACK_FABRIC" if other in peers else "INTER_NODE_RDMA"
            findings.equal(f"level of ranks {rank} and {other}", facts["levels"][rank][other], level)
            if links := facts["links"]:
                if rank == other or other not in node:
                    wanted = "SELF" if rank == other else "UNKNOWN"
                    findings.equal(f"link between the GPUs of ranks {rank} and {other}", links[rank][other], wanted)
                findings.equal(
                    f"link of ranks {rank} and {other}, from the other end", links[rank][other], links[other][rank]
                )
    findings.equal("gpu_id of this rank", plan[me]["gpu_id"], env.iris.gpu_id)
    findings.true("the summary names the host", hosts[me] in facts["summary"])
    return findings.first


def discovered(env, own, name, hosts):
    """Return what the library discovers, on a host with this ``name`` if it is not empty."""
    real = socket.gethostname
    if name:
        socket.gethostname = lambda: name
    try:
        return _facts(env, own, hosts)
    finally:
        socket.gethostname = real


def _facts(env, own, hosts):
    module, world = module_of(env, "host.distributed.topology"), range(env.world_size)
    discovery = module.TopologyDiscovery(env.iris if own else None)
    before = {
        "topology": _refuses(lambda: discovery.topology),
        "get_communication_groups()": _refuses(discovery.get_communication_groups),
        "get_heap_distribution_plan()": _refuses(discovery.get_heap_distribution_plan),
    }
    topology = discovery.discover()
    plan = discovery.get_heap_distribution_plan()
    groups = discovery.get_communication_groups()
    return {
        "before": before,
        "returned": topology is discovery.topology,
        "topology": topology.to_dict(),
        "plan": {rank: dict(plan[rank]) for rank in world},
        "groups": {level.name: [list(group) for group in groups[level]] for level in groups},
        "nodes": {host: list(topology.get_ranks_for_node(host)) for host in {*hosts, ""}},
        "node peers": {rank: sorted(topology.get_node_peers(rank)) for rank in world},
        "rdma peers": {rank: sorted(topology.get_rdma_peers(rank)) for rank in world},
        "fabric peers": {rank: sorted(topology.get_fabric_domain_peers(rank)) for rank in world},
        "domains": {rank: sorted(topology.get_ranks_for_fabric_domain(plan[rank]["fabric_domain"])) for rank in world},
        "levels": {
            rank: {other: topology.get_interconnect_level(rank, other).name for other in world} for rank in world
        },
        "links": _links(topology, world) if hasattr(topology, "get_link_type") else {},
        "summary": topology.summary(),
    }


def _links(topology, world):
    """Return the link between each two ranks, by name. Upstream Iris has no such query."""
    return {rank: {other: topology.get_link_type(rank, other).name for other in world} for rank in world}


def _refuses(query):
    """Return whether a query raises RuntimeError."""
    try:
        query()
    except RuntimeError:
        return True
    return False


def _with(groups, rank):
    return next(group for group in groups if rank in group)


def _fabrics(nodes, plan):
    """Return the groups of the fabric tier: the domains, and each node's ranks in none; no group without a domain."""
    keys = {rank: entry["fabric_domain"] for rank, entry in plan.items()}
    domains = [[rank for rank in sorted(keys) if keys[rank] == key] for key in {*keys.values()} - {""}]
    alone = [[rank for rank in node if not keys[rank]] for node in nodes]
    return sorted([*domains, *filter(None, alone)]) if domains else []


def _gathered(value):
    every = [None] * dist.get_world_size()
    dist.all_gather_object(every, value)
    return every


def _same_everywhere(findings, label, value):
    for rank, other in enumerate(_gathered(value)):
        findings.equal(f"{label} on rank {rank}", other, value)


@requirement(
    "DIST-TOPOLOGY-001",
    one_process="",
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
    for name, wanted in (("InterconnectLevel", LEVELS), ("IntraNodeLinkType", LINKS)):
        numbers = {member.name: member.value for member in getattr(module, name)}
        findings.equal(f"numbers of {name}", numbers, wanted)
    topology = module.TopologyDiscovery(env.iris).discover()
    again = module.TopologyMap.from_dict(topology.to_dict())
    findings.equal("a topology converted to a dict and back", again.to_dict(), topology.to_dict())
    fabric = module.FabricInfo(cluster_uuid="f00d", clique_id=3)
    back = module.FabricInfo.from_dict(fabric.to_dict())
    findings.true("a fabric converted to a dict and back is equal", env.in_library(equal, back, fabric))
    return findings.first


def equal(env, one, other):
    return type(one) is type(other) and one == other


@requirement("DIST-TOPOLOGY-002", one_process="", cases=lambda ranks: [HostCase("data")], nodes=ANY_NODES)
def test_data(check, case):
    check(run_data, case)
