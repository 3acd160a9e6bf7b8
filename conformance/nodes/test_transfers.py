"""put, get, store, load and copy between the ranks of one node, on all nodes at the same time.

Every rank transfers to or from every rank of its node, itself among them. What torch.distributed moves within the nodes
is what the heaps must hold; a transfer that reached into another node's heap would show there.
"""

from dataclasses import replace

from conformance.rma import transfer
from conformance.rma.cases import TransferCase
from conformance.rma.operations import TRANSFERS
from fixtures.requirement import requirement

DTYPES = ("int32", "fp16", "int64")


def run(env, case, op):
    """Run the case with the pairs of ranks that are on one node."""
    size = env.world_size // env.nodes
    targets = tuple(
        tuple(peer for peer in peers if peer // size == actor // size) for actor, peers in enumerate(case.targets)
    )
    return transfer.run(env, replace(case, targets=targets), op)


def cases(ranks, op):
    everyone = tuple(range(ranks))
    return [
        TransferCase(dtype=dtype, n=n, targets=(everyone,) * ranks, spt=2)
        for dtype, n in zip(DTYPES, (300, 1, 1000), strict=True)
    ]


@requirement("NODES-RMA-001", cases=cases, race=False, op=tuple(TRANSFERS))
def test_transfers(check, case, op):
    check(run, case, op=op)
