"""as_symmetric: an ordinary tensor's values on the heap; a copy with torch, the same memory with vmem.

Where a device cannot map memory a second time, vmem copies too: CUDA can what ``cuMemCreate`` made for export (another
heap's, torch's expandable segments), the emulated device what torch allocated.
"""

import torch

from conformance.host.checks import offset_in_heap
from conformance.rma.test_load import read_address
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.cases import HostCase
from harness.oracles import gathered

HEAP = 8 << 20
ALLOCATORS = ("torch", "vmem")


def values(env, found, iris):
    """Shapes, dtypes, strides and values, at one offset on all ranks, where peers find them."""
    here = env.device.torch_device
    for original in (
        torch.arange(24, dtype=torch.int32, device=here).view(2, 3, 4) + 100 * env.rank,
        torch.full((5,), 0.5 + env.rank, dtype=torch.bfloat16, device=here),
        torch.tensor(7 + env.rank, device=here),
        torch.arange(100_000, dtype=torch.int64, device=here) * (env.rank + 1),
        (torch.arange(64, dtype=torch.int32, device=here) + env.rank)[16:48],
        torch.ones(3, 0, device=here),
        torch.tensor([True, False], device=here),
        torch.full((3,), 1.5 + env.rank, device=here, requires_grad=True),
        torch.tensor([1 + 2j, env.rank - 3j], device=here).conj(),
    ):
        wanted = original.detach().cpu().resolve_conj().clone()
        got = iris.as_symmetric(original)
        what = f"as_symmetric of {wanted.dtype} {tuple(wanted.shape)}"
        found.same(what, got, wanted)
        found.equal(f"strides of {what}", got.stride(), wanted.stride())
        found.true(f"{what} is on the heap", iris.is_symmetric(got))
        found.equal(f"requires_grad of {what}", got.requires_grad, False)
        found.same(f"original of {what}", original.detach().resolve_conj(), wanted)
        if got.numel():
            offsets = gathered(torch.tensor([offset_in_heap(iris, got)])).tolist()
            found.equal(f"offset of {what} on all ranks", len(set(offsets)), 1)
        if wanted.dtype is torch.int32:
            for rank, base in enumerate(iris.get_heap_bases().tolist()):
                first = int(wanted.view(-1)[0]) - {3: 100, 1: 1}[wanted.dim()] * (env.rank - rank)
                found.equal(f"{what} of rank {rank}", read_address(env, base + offset_in_heap(iris, got)), first)
        env.settle()
        iris.free(got)
        found.same(f"original of {what}, after free", original.detach().resolve_conj(), wanted)


def refused(env, found, iris):
    """On every rank, whichever asks; then nothing has changed."""
    here = env.device.torch_device
    fine = torch.zeros(6, device=here)
    for culprit in range(env.world_size):
        for what, wrong in (
            ("a tensor on another device", torch.zeros(6, device="meta")),
            ("a transposed tensor", torch.zeros(2, 3, device=here).t()),
            ("every second element", torch.zeros(12, device=here)[::2]),
        ):
            tensor = wrong if env.rank == culprit else fine
            says = "" if env.rank == culprit else f"[{culprit}]"
            found.raises(f"{what} on rank {culprit}", RuntimeError, lambda t=tensor: iris.as_symmetric(t), says=says)
        if env.world_size > 1:
            differs = torch.zeros(7 if env.rank == culprit else 6, device=here)
            found.raises("sizes that differ", RuntimeError, lambda differs=differs: iris.as_symmetric(differs))
    found.raises("more than the heap", MemoryError, lambda: iris.as_symmetric(torch.zeros(HEAP, device=here)))
    found.equal("offset of the next allocation", offset_in_heap(iris, iris.zeros(1)), 0)


def same_memory(env, found, iris):
    """Written through either, seen through both: with vmem; with torch, through neither."""
    aliases = iris.heap.allocator_type == "vmem"
    other = env.under_test.iris(heap_size=HEAP, allocator_type="vmem")
    if env.device.name == "emulated":
        original = torch.zeros(5000, dtype=torch.int32)
    else:
        original = other.zeros(5000, dtype=torch.int32)
    view = original[1000:2000]
    got = iris.as_symmetric(original)
    original.fill_(env.rank + 10)
    found.equal("written to the original, seen on the heap", got[4999].item() == env.rank + 10, aliases)
    found.equal("written to the original, seen in a view of it", view[0].item(), env.rank + 10)
    got[:1000].fill_(env.rank + 20)
    found.equal("written on the heap, seen in the original", original[0].item() == env.rank + 20, aliases)
    env.settle()
    peer = (env.rank + 1) % env.world_size
    base = int(iris.get_heap_bases()[peer])
    found.equal("seen by a peer", read_address(env, base + offset_in_heap(iris, got)), peer + 20)
    env.settle()
    iris.free(got)
    found.equal("the original after free", original[4999].item(), env.rank + 10)
    again = iris.as_symmetric(original)
    env.settle()
    iris.close()
    found.equal("the original after close", original[4999].item(), env.rank + 10)
    original.fill_(3)
    found.equal("the second mapping after close", again[1].item() == 3, aliases)
    env.settle()
    other.close()


CHECKS = {check.__name__: check for check in (values, refused, same_memory)}


def run(env, case):
    found, (allocator,) = Findings(env.rank), case.arguments
    iris = env.under_test.iris(heap_size=HEAP, allocator_type=allocator)
    CHECKS[case.what](env, found, iris)
    env.settle()
    iris.close()
    return found.first


@requirement(
    "MEMORY-AS-SYMMETRIC-001", cases=lambda ranks: [HostCase(name, (kind,)) for name in CHECKS for kind in ALLOCATORS]
)
def test_as_symmetric(check, case):
    check(run, case)
