"""Barriers, sizes that are refused, memory of other allocators, and the optional methods of a heap."""

import torch

from conformance.providers import kernels
from conformance.providers.cases import BarrierCase, SizeCase
from conformance.providers.heaps import SIZE, heap, new_heap, refuse, with_form
from fixtures.addresses import address_of
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.oracles import bool_all

REFUSED = (0, -1, 1 << 60)
WORD = 8


@with_form
def barrier(env, case):
    """Each rank stores to every rank's heap, calls the barrier, and reads its own heap at once: the stores of the rank
    that was held back until the others were at the barrier must be there."""
    findings = Findings(env.rank)
    with heap(env) as one:
        one.memory.zero_()
        for turn in range(1, case.rounds * env.world_size + 1):
            env.settle()
            step, held = env.gate.step(), (case.late + turn - 1) % env.world_size
            if env.rank == held:
                env.gate.hold(step)
            env.gate.enter(step)
            with env.acting(), env.gate.watching():
                for peer in range(env.world_size):
                    mark = torch.tensor([100 * turn + env.rank], dtype=torch.int64)
                    kernels.store(env, one.bases, peer, WORD * env.rank, mark)
                one.barrier()
                env.device.synchronize()
            words = one.memory[: WORD * env.world_size].cpu().view(torch.int64).tolist()
            env.gate.reach(step)
            if env.fault is None:
                for sender, word in enumerate(words):
                    findings.equal(
                        f"word that rank {sender} stored before barrier {turn}, read after it",
                        word,
                        100 * turn + sender,
                    )
    return findings.first


@with_form
def refused(env, case):
    """A heap of that size is refused on every rank, and a heap of a good size can be made afterwards."""
    findings = Findings(env.rank)
    kinds = (ValueError, TypeError, MemoryError, OverflowError, RuntimeError, OSError)
    findings.raises(f"a heap of {case.size} bytes", kinds, lambda: env.in_library(refuse, case.size))
    if not bool_all(findings.first is None):
        return findings.first
    with heap(env) as one:
        env.settle()
        with env.acting():
            kernels.store(env, one.bases, (env.rank + 1) % env.world_size, 0, torch.tensor([7], dtype=torch.int64))
        env.settle()
        if env.fault is None:
            findings.equal("word stored to a heap after a refused one", int(one.memory[:8].view(torch.int64)[0]), 7)
    return findings.first


@with_form
def foreign(env, case):
    """Tensors of torch's own allocator, made before and after a heap, are in no rank's heap and keep their values."""
    findings = Findings(env.rank)
    library = env.module("torch")
    tensors = [library.full((1000,), 5, dtype=torch.int32, device=env.device.torch_device)]
    with heap(env, case.size) as one:
        tensors.append(library.full((1000,), 5, dtype=torch.int32, device=env.device.torch_device))
        for number, tensor in enumerate(tensors):
            for owner, base in enumerate(one.addresses):
                findings.true(
                    f"tensor {number} of torch, {address_of(tensor):#x}, is outside rank {owner}'s heap, {base:#x}",
                    address_of(tensor) + tensor.nbytes <= base or base + case.size <= address_of(tensor),
                )
        env.settle()
        with env.acting():
            for start in range(0, case.size, case.size // 16):
                kernels.store(env, one.bases, (env.rank + 1) % env.world_size, start, torch.full((512,), -1))
        env.settle()
        for number, tensor in enumerate(tensors):
            findings.true(f"tensor {number} of torch is unchanged", bool((tensor == 5).all()))
    return findings.first


@with_form
def close(env, case):
    """Closing a heap twice has no further effect, and leaves another heap as it is."""
    findings = Findings(env.rank)
    with heap(env, case.size) as other:
        other.memory.fill_(env.rank + 1)
        first = new_heap(env, case.size)
        env.settle()
        first.close()
        first.close()
        findings.true("the other heap after a heap was closed", bool((other.memory == env.rank + 1).all()))
        env.settle()
        with env.acting():
            peer = (env.rank + 1) % env.world_size
            loaded = kernels.load(env, other.bases, peer, 0, 8, torch.uint8).tolist()
            findings.equal(f"bytes of rank {peer}'s other heap, loaded after a heap was closed", loaded, [peer + 1] * 8)
    return findings.first


@with_form
def closed(env, case):
    """A closed heap's barrier raises on all ranks, so that no rank waits for ever; a new heap can be made."""
    findings = Findings(env.rank)
    one = new_heap(env, case.size)
    env.settle()
    one.close()
    findings.raises("barrier() of a closed heap", (RuntimeError, ValueError, OSError), one.barrier)
    env.settle()
    with heap(env, case.size) as other:
        other.memory.zero_()
    return findings.first


@with_form
def contains(env, case):
    """``contains`` is true for the bytes of this rank's heap and for no other address."""
    findings = Findings(env.rank)
    with heap(env, case.size) as one:
        own = env.module("torch").zeros(1, device=env.device.torch_device)
        for place, address, wanted in (
            ("the first byte", one.base, True),
            ("the last byte", one.base + case.size - 1, True),
            ("the byte before the heap", one.base - 1, False),
            ("a tensor of torch", address_of(own), False),
        ):
            findings.equal(f"contains({place}, {address:#x})", one.provided.contains(address), wanted)
    return findings.first


def late_barriers(ranks):
    from conformance.providers import strategies

    return strategies.barriers(ranks)


@requirement("PROVIDER-BARRIER-001", cases=late_barriers, ranks=2)
def test_barrier(check, case: BarrierCase):
    check(barrier, case)


@requirement("PROVIDER-REFUSE-001", cases=lambda ranks: [SizeCase(size) for size in REFUSED])
def test_refused_sizes(check, case):
    check(refused, case)


@requirement("PROVIDER-FOREIGN-001", cases=lambda ranks: [SizeCase(SIZE)])
def test_memory_of_other_allocators(check, case):
    check(foreign, case)


@requirement("PROVIDER-CLOSE-001", cases=lambda ranks: [SizeCase(SIZE)])
def test_close(check, case):
    check(close, case)


@requirement("PROVIDER-CLOSE-002", cases=lambda ranks: [SizeCase(SIZE)])
def test_use_after_close(check, case):
    check(closed, case)


@requirement("PROVIDER-CONTAINS-001", cases=lambda ranks: [SizeCase(SIZE)])
def test_contains(check, case):
    check(contains, case)
