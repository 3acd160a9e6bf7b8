"""Collectives on several nodes.

CCL      Each collective in the group of the ranks of one node, on all nodes at the same time.
REFUSED  In a group with ranks of several nodes it raises ValueError on every rank of the group, and launches nothing.
"""

import torch.distributed as dist

from conformance.collectives import calls
from conformance.collectives.operations import ALWAYS, COLLECTIVES, described
from conformance.nodes.cases import within
from conformance.support.cases import HostCase
from fixtures.findings import Findings
from fixtures.requirement import requirement

DIMENSIONS = {"m": 5, "n": 70, "calls": 2}


def run(env, case):
    """Make the case's calls in the group of each node."""
    return calls.run(env, within(env, case))


def cases(ranks, op):
    make = COLLECTIVES[op].case
    return [
        make(dtype="int32", **DIMENSIONS),
        make(dtype="fp32", **DIMENSIONS, gluon=True),
        make(dtype="fp16", **DIMENSIONS, async_op=True, default=True),
    ]


@requirement("NODES-CCL-001", cases=cases, race=False, op=COLLECTIVES)
def test_within_nodes(check, case, op):
    check(run, case)


def run_refused(env, case, op):
    """Call the op in the world, and in a group of the first ranks of all nodes."""
    findings = Findings(env.rank)
    first = tuple(range(0, env.world_size, env.world_size // env.nodes))
    handle = env.group(first, (first,))
    tensors = [env.iris.zeros((8 * env.world_size, 8 * env.world_size)) for _ in range(2)]
    for name, group in (("world", None), ("first ranks of the nodes", handle)):
        if group is not None and env.rank not in first:
            continue
        env.launched()
        findings.raises(f"{op} in the {name}", ValueError, _call_of(env, op, group, tensors))
        findings.equal(f"kernels that {op} in the {name} launched", len(env.launched()), 0)
    env.settle()
    dist.barrier()
    return findings.first


def _call_of(env, op, group, tensors):
    if op == "device_barrier":
        return lambda: env.iris.device_barrier(group=group)
    if op == "barrier":
        return lambda: env.iris.ccl.barrier(group=group)
    description = described(op)
    arguments = tensors[:1] if description.in_place == ALWAYS else tensors
    root = {description.root: 0} if description.root else {}
    return lambda: getattr(env.iris.ccl, op)(*arguments, group=group, **root)


@requirement("NODES-REFUSED-001", cases=lambda ranks, op: [HostCase("refused")], op=("device_barrier", *COLLECTIVES))
def test_refused(check, case, op):
    check(run_refused, case, op=op)
