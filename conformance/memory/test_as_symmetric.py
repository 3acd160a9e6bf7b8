"""as_symmetric: an ordinary tensor's values on the heap. The allocator torch copies them, vmem maps the same memory.

If the device cannot map the memory a second time, vmem copies too. CUDA can map memory that ``cuMemCreate`` made for
export (another heap's, torch's expandable segments); the emulated device can map memory that torch allocated.
"""

import contextlib
import time

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from conformance.host.checks import offset_in_heap
from conformance.rma.words import read_address, write_address
from conformance.support.cases import HostCase, alike
from conformance.support.instances import allocator_of, release
from fixtures import judged
from fixtures.addresses import address_of
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.oracles import gathered

HEAP = 8 << 20
ALLOCATORS = ("torch", "vmem")
PAUSE = 0.02
"""Seconds by which a write is late."""


def values(env, findings, iris, uniform=False):
    """Check shape, dtype, strides and values of the result, its offset on all ranks, and that peers can read it.
    Unless ``uniform``, parts of a tensor begin at another place on each rank, or the tensor has another size."""
    here, part = env.device.torch_device, 0 if uniform else env.rank
    far = part << 14
    for original in (
        torch.arange(24, dtype=torch.int32, device=here).view(2, 3, 4) + 100 * env.rank,
        torch.full((5,), 0.5 + env.rank, dtype=torch.bfloat16, device=here),
        torch.tensor(7 + env.rank, device=here),
        torch.arange(100_000, dtype=torch.int64, device=here) * (env.rank + 1),
        (torch.arange(64, dtype=torch.int32, device=here) + env.rank)[16:48],
        (torch.arange(64, dtype=torch.int32, device=here) + env.rank - part)[part:][:33],
        (torch.arange(env.world_size << 14, dtype=torch.int32, device=here) + env.rank - far)[far:][:7],
        (torch.arange(far + 9, dtype=torch.int32, device=here) + env.rank)[:9],
        torch.ones(3, 0, device=here),
        torch.tensor([True, False], device=here),
        torch.full((3,), 1.5 + env.rank, device=here, requires_grad=True),
        torch.tensor([1 + 2j, env.rank - 3j], device=here).conj(),
    ):
        wanted = original.detach().cpu().resolve_conj().clone()
        got = iris.as_symmetric(original)
        label = f"as_symmetric of {wanted.dtype} {tuple(wanted.shape)}"
        findings.same(label, got, wanted)
        findings.equal(f"strides of {label}", got.stride(), wanted.stride())
        findings.true(f"{label} is on the heap", iris.is_symmetric(got))
        findings.equal(f"requires_grad of {label}", got.requires_grad, False)
        findings.same(f"original of {label}", original.detach().resolve_conj(), wanted)
        if got.numel():
            offsets = gathered(torch.tensor([offset_in_heap(iris, got)])).tolist()
            findings.equal(f"offset of {label} on all ranks", len(set(offsets)), 1)
        if wanted.dtype is torch.int32:
            for rank, base in enumerate(iris.get_heap_bases().tolist()):
                first = int(wanted.view(-1)[0]) - {3: 100, 1: 1}[wanted.dim()] * (env.rank - rank)
                findings.equal(f"{label} of rank {rank}", read_address(env, base + offset_in_heap(iris, got)), first)
        env.settle()
        if hasattr(iris, "free"):
            iris.free(got)
        findings.same(f"original of {label}, after free", original.detach().resolve_conj(), wanted)


def refused(env, findings, iris, uniform=False):
    """Check that every rank refuses if any rank passes a wrong tensor (``uniform``: all do), and that the heap is
    unchanged."""
    here = env.device.torch_device
    fine = torch.zeros(6, device=here)
    for culprit in range(env.world_size):
        for label, wrong in (
            ("a tensor on another device", torch.zeros(6, device="meta")),
            ("a transposed tensor", torch.zeros(2, 3, device=here).t()),
            ("every second element", torch.zeros(12, device=here)[::2]),
        ):
            tensor = wrong if uniform or env.rank == culprit else fine
            says = "" if uniform or env.rank == culprit else f"[{culprit}]"
            findings.raises(
                f"{label} on rank {culprit}", RuntimeError, lambda t=tensor: iris.as_symmetric(t), says=says
            )
        if env.world_size > 1 and not uniform:
            differs = torch.zeros(7 if env.rank == culprit else 6, device=here)
            findings.raises("sizes that differ", RuntimeError, lambda differs=differs: iris.as_symmetric(differs))
    findings.raises("more than the heap", MemoryError, lambda: env.in_library(share_too_much, iris))
    findings.equal("offset of the next allocation", offset_in_heap(iris, iris.zeros(1)), 0)


def share_too_much(env, iris):
    iris.as_symmetric(torch.zeros(HEAP, device=env.device.torch_device))


def same_memory(env, findings, iris):
    """Check that with vmem the original and the result are the same memory, and that with torch they are not."""
    aliases = allocator_of(env, iris) == "vmem"
    seen = env.in_library(shared_values, iris)
    me, peer = env.rank, (env.rank + 1) % env.world_size
    for place, written in {"on the heap": me + 10, "in the original": me + 20, "after close": 3}.items():
        findings.equal(f"a value written to one of the two is seen {place}", seen[place] == written, aliases)
    wanted = {
        "in a view": me + 10,
        "of the peer": peer + 20,
        "after free": me + 10,
        "of the original after close": me + 10,
    }
    for place, value in wanted.items():
        findings.equal(f"value {place}", seen[place], value)


def shared_values(env, iris):
    """Write to an ordinary tensor and to what as_symmetric made of it, and return what is read in the other one."""
    seen = {}
    other = env.under_test.iris(heap_size=HEAP, allocator_type="vmem")
    if env.device.name == "emulated":
        original = torch.zeros(5000, dtype=torch.int32)
    else:
        original = other.zeros(5000, dtype=torch.int32)
    view = original[1000:2000]
    got = iris.as_symmetric(original)
    original.fill_(env.rank + 10)
    seen["on the heap"], seen["in a view"] = got[4999].item(), view[0].item()
    got[:1000].fill_(env.rank + 20)
    seen["in the original"] = original[0].item()
    env.settle()
    peer = (env.rank + 1) % env.world_size
    base = int(iris.get_heap_bases()[peer])
    seen["of the peer"] = read_address(env, base + offset_in_heap(iris, got))
    env.settle()
    if hasattr(iris, "free"):
        iris.free(got)
    seen["after free"] = original[4999].item()
    again = iris.as_symmetric(original)
    env.settle()
    release(iris)
    seen["of the original after close"] = original[4999].item()
    original.fill_(3)
    seen["after close"] = again[1].item()
    env.settle()
    release(other)
    return seen


def dropped(env, findings, iris):
    """Check that a tensor on the heap keeps its values when the original is dropped and torch allocates again."""
    got, others = env.in_library(of_dropped, iris)
    findings.same("values after the original was dropped", got, torch.full((300,), env.rank + 1, dtype=torch.int32))
    env.settle()
    del others
    release(iris)


def of_dropped(env, iris):
    """Return as_symmetric of a tensor that is then dropped, and tensors that torch has allocated since."""
    here = env.device.torch_device
    got = iris.as_symmetric(torch.full((300,), env.rank + 1, dtype=torch.int32, device=here))
    return got, [torch.full((300,), -1, dtype=torch.int32, device=here) for _ in range(8)]


def room(env, findings, iris):
    """Check that a part of a large tensor takes only its own bytes from the heap, though vmem maps all of it. The heap
    is empty before, or has allocations, with or without a hole between them."""
    rest = HEAP - (1 << 20)
    for live, freed in ((0, ()), (1, ()), (3, ()), (4, (1, 2))):
        label = f"with {live - len(freed)} allocations, {len(freed)} freed between them"
        before = [iris.full((300,), turn, dtype=torch.int32) for turn in range(live)]
        for turn in reversed(freed):
            iris.free(before.pop(turn))
        part = env.in_library(of_a_part, iris)
        try:
            made = iris.empty(rest, dtype=torch.uint8)
            findings.true(f"{label}, the rest of the heap is allocated", iris.is_symmetric(made))
            iris.free(made)
        except (MemoryError, RuntimeError) as error:
            findings.note(f"an allocation of {rest} bytes, {label}", str(error), "a tensor")
        findings.same(f"values of the part, {label}", part, torch.zeros(16, dtype=torch.int32))
        kept = [int(tensor.sum()) // 300 for tensor in before]
        findings.equal(f"values of the allocations, {label}", kept, [n for n in range(live) if n not in freed])
        for tensor in (part, *before):
            iris.free(tensor)


class LateWrites(TorchDispatchMode):
    """Delay each operator of torch that writes to a tensor, inside the ``with`` block."""

    @classmethod
    def _should_skip_dynamo(cls):
        """Return False, so that torch does not import its compiler to keep it out of this mode."""
        return False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        named = (argument.alias_info for argument in func._schema.arguments)
        if func.namespace == "aten" and any(alias is not None and alias.is_write for alias in named):
            time.sleep(PAUSE)
        return func(*args, **(kwargs or {}))


def late(env, findings, iris):
    """Check that the call returns on no rank before it has written on every rank: each rank in turn is late to copy,
    while the others read its values at once, and then write to its tensor at once."""
    warm = iris.zeros(1, dtype=torch.int32)
    read_address(env, address_of(warm))  # compiled: the accesses below must not give the late rank time
    for slow in range(env.world_size):
        for writes in (False, True):
            got = env.in_library(as_symmetric_late, iris, env.rank == slow, env.rank + 50)
            base = int(iris.get_heap_bases()[slow]) + offset_in_heap(iris, got)
            if writes and env.rank == (slow + 1) % env.world_size:
                write_address(env, base, 7)
            elif not writes:
                seen = read_address(env, base)
                findings.equal(f"value of rank {slow}, which copies late, read directly after", seen, slow + 50)
            env.settle()
            if writes and env.rank == slow:
                findings.equal("value that another rank wrote directly after", int(got[0]), 7)
            env.settle()


def as_symmetric_late(env, iris, is_late, value):
    original = torch.full((64,), value, dtype=torch.int32, device=env.device.torch_device)
    with LateWrites() if is_late else contextlib.nullcontext():
        return iris.as_symmetric(original)


def of_a_part(env, iris):
    return iris.as_symmetric(torch.zeros(5 << 18, dtype=torch.int32, device=env.device.torch_device)[:16])


CHECKS = {check.__name__: check for check in (values, refused, same_memory, dropped, room, late)}
EXTENDED = {"room"}
"""Checks of what upstream Iris does not promise."""
UNIFORM = {"values", "refused"}
"""Checks in which ranks pass different tensors, unless their last argument is true."""


def run(env, case):
    findings, (allocator, *uniform) = Findings(env.rank), case.arguments
    iris = env.under_test.iris(heap_size=HEAP, allocator_type=allocator)
    CHECKS[case.what](env, findings, iris, *uniform)
    env.settle()
    release(iris)
    return findings.first


@requirement(
    "MEMORY-AS-SYMMETRIC-001",
    cases=lambda ranks: [
        HostCase(name, (kind, *(alike() if name in UNIFORM else ())))
        for name in CHECKS
        for kind in ALLOCATORS
        if name not in EXTENDED or judged.offers("Iris.free")
    ],
)
def test_as_symmetric(check, case):
    check(run, case)
