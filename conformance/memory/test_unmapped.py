"""With vmem, what has no memory faults: beyond the last chunk, in a peer's heap too, and what was freed.

A GPU checks pages and loses its context over it, so this needs the emulated device, which goes on.
"""

import torch

from conformance.host.checks import offset_in_heap
from conformance.rma.test_load import read_address
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.cases import HostCase
from harness.errors import KernelFault

HEAP = 1 << 20
GRANULE = 64 << 10


def run(env, case):
    (peer_distance,) = case.arguments
    found, peer = Findings(env.rank), (env.rank + peer_distance) % env.world_size
    iris = env.under_test.iris(heap_size=HEAP, allocator_type="vmem")
    base = int(iris.get_heap_bases()[peer])
    faults(env, found, "before any allocation", base)
    small, large = iris.zeros(100, dtype=torch.int32), iris.zeros(3 * GRANULE // 4, dtype=torch.int32)
    start, stop = offset_in_heap(iris, large), offset_in_heap(iris, large) + large.nbytes
    env.settle()
    for offset in (0, 4, start, GRANULE, 2 * GRANULE, stop - 4):
        found.equal(f"what lies at {offset} of rank {peer}", read_address(env, base + offset), 0)
    faults(env, found, "beyond the last chunk", base + -(-stop // GRANULE) * GRANULE)
    faults(env, found, "the last word of the heap", base + HEAP - 4)
    faults(env, found, "before the heap", base - 4)
    env.settle()
    iris.free(large)
    faults(env, found, "what was freed", base + 2 * GRANULE)
    found.equal("the allocation before it", read_address(env, base), 0)
    env.settle()
    again = iris.zeros(3 * GRANULE // 4, dtype=torch.int32)
    found.equal("offset of what is allocated again", offset_in_heap(iris, again), start)
    env.settle()
    found.equal("what was freed and allocated again", read_address(env, base + 2 * GRANULE), 0)
    env.settle()
    iris.free(small)
    iris.free(again)
    faults(env, found, "when everything is freed", base)
    env.settle()
    iris.close()
    return found.first


def faults(env, found, what, address):
    found.raises(f"reading {what} at {address:#x}", KernelFault, lambda: read_address(env, address), says="")


@requirement(
    "MEMORY-UNMAPPED-001",
    cases=lambda ranks: [HostCase("unmapped", (d,)) for d in (0, 1)],
    device="emulated",
    because="a fault costs a GPU its context",
)
def test_unmapped(check, case):
    check(run, case)
