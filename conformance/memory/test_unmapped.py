"""With the allocator vmem, an access to an unmapped address faults: beyond the last chunk, in a peer's heap, after
free. What is mapped is registered with the device as this rank's memory, or as a peer's.

On a GPU such a fault destroys the context, so this test needs the emulated device, which continues.
"""

import torch

from conformance.host.checks import offset_in_heap
from conformance.rma.words import is_peers, read_address
from conformance.support.cases import HostCase
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.errors import KernelFault

HEAP = 1 << 20
GRANULE = 64 << 10


def run(env, case):
    (peer_distance,) = case.arguments
    findings, peer = Findings(env.rank), (env.rank + peer_distance) % env.world_size
    iris = env.under_test.iris(heap_size=HEAP, allocator_type="vmem")
    base = int(iris.get_heap_bases()[peer])
    faults(env, findings, "before any allocation", base)
    small, large = iris.zeros(100, dtype=torch.int32), iris.zeros(3 * GRANULE // 4, dtype=torch.int32)
    start, stop = offset_in_heap(iris, large), offset_in_heap(iris, large) + large.nbytes
    env.settle()
    for offset in (0, 4, start, GRANULE, 2 * GRANULE, stop - 4):
        findings.equal(f"word at offset {offset} of rank {peer}", read_address(env, base + offset), 0)
    findings.equal(f"the heap of rank {peer} is registered as a peer's", is_peers(env, base), peer != env.rank)
    faults(env, findings, "beyond the last chunk", base + -(-stop // GRANULE) * GRANULE)
    faults(env, findings, "the last word of the heap", base + HEAP - 4)
    faults(env, findings, "before the heap", base - 4)
    env.settle()
    iris.free(large)
    faults(env, findings, "freed memory", base + 2 * GRANULE)
    findings.equal("the allocation before it", read_address(env, base), 0)
    env.settle()
    again = iris.zeros(3 * GRANULE // 4, dtype=torch.int32)
    findings.equal("offset of the second allocation", offset_in_heap(iris, again), start)
    env.settle()
    findings.equal("memory that was freed and allocated again", read_address(env, base + 2 * GRANULE), 0)
    env.settle()
    iris.free(small)
    iris.free(again)
    faults(env, findings, "an empty heap", base)
    env.settle()
    iris.close()
    return findings.first


def faults(env, findings, label, address):
    findings.raises(f"reading {label} at {address:#x}", KernelFault, lambda: read_address(env, address), says="")


@requirement(
    "MEMORY-UNMAPPED-001",
    cases=lambda ranks: [HostCase("unmapped", (d,)) for d in (0, 1)],
    device="emulated",
    because="a fault costs a GPU its context",
)
def test_unmapped(check, case):
    check(run, case)
