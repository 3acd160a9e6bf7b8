"""Calls of the host between ranks of all nodes: the barrier and the broadcast of an instance."""

import numpy as np
from torch.distributed import distributed_c10d

from conformance.support.cases import HostCase
from fixtures.findings import Findings
from fixtures.requirement import requirement


def run_barrier(env, case):
    """Check that a rank that has left the barrier sees the mark of a late rank in torch.distributed's store."""
    findings = Findings(env.rank)
    store = distributed_c10d._get_default_store()  # torch has no public way to it
    for late in range(env.world_size):
        key = f"late-{late}"
        env.settle()
        store.delete_key(key)
        env.settle()
        env.late(late, case.late_ms)
        if env.rank == late:
            store.set(key, "there")
        env.iris.barrier()
        findings.true(f"the mark of rank {late} after the barrier", store.check([key]))
    env.settle()
    return findings.first


@requirement("NODES-HOST-001", cases=lambda ranks: [HostCase("barrier", late_ms=30)])
def test_barrier(check, case):
    check(run_barrier, case)


def run_broadcast(env, case):
    """Broadcast values from each rank to all."""
    findings = Findings(env.rank)
    for source in range(env.world_size):
        for value in (source + 0.5, f"text of {source}", {"rank": source}, [source, 2, 3]):
            got = env.iris.broadcast(value if env.rank == source else 0, source)
            plain = got.tolist() if isinstance(got, np.ndarray) else got
            findings.equal(f"a {type(value).__name__} from rank {source}", plain, value)
    return findings.first


@requirement("NODES-HOST-002", cases=lambda ranks: [HostCase("broadcast")])
def test_broadcast(check, case):
    check(run_broadcast, case)
