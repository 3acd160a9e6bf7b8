"""Device functions of an adapter, in the suite's kernels, and its signals between two ranks."""

import importlib

import torch
import triton
import triton.language as tl

from conformance.calls.cases import CallCase
from conformance.providers import kernels
from conformance.support.masks import kept_lanes
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.cases import of_name, payload
from harness.oracles import exchange

DTYPES = ("fp32", "bf16", "int64", "int8")
SLOT = 64 * 1024
BLOCK = 256


@triton.jit(do_not_specialize=["rank", "peer", "n"])
def store_by(function: tl.constexpr, target, values, keep, bases, rank, peer, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = (offsets < n) & (tl.load(keep + offsets, mask=offsets < n, other=0) != 0)
    function(target + offsets, tl.load(values + offsets, mask=mask), bases, rank, peer, mask)


@triton.jit(do_not_specialize=["rank", "peer", "n"])
def load_by(function: tl.constexpr, source, values, keep, bases, rank, peer, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = (offsets < n) & (tl.load(keep + offsets, mask=offsets < n, other=0) != 0)
    tl.store(values + offsets, function(source + offsets, bases, rank, peer, mask), mask=mask)


def store(env, case):
    me, ranks, image, dtype = env.rank, env.world_size, env.image, of_name(case.dtype)
    peer = (me + case.distance) % ranks
    mine = payload(case.dtype, case.n, rank=me, ranks=ranks)
    image.reset()
    [(sender, values)] = exchange(mine, _pairs(ranks, case.distance), rank=me, ranks=ranks).items()
    slot = image.claim(f"slot that rank {sender} stores to", SLOT, case.n, dtype)
    image.expect(slot, values, kept_lanes("holes", case.n, sender))
    with env.acting():
        _launch(env, case, store_by, "store", image.tensor(slot), mine.to(env.device.torch_device), peer)
    env.settle()
    return image.difference()


def load(env, case):
    me, ranks, image, dtype = env.rank, env.world_size, env.image, of_name(case.dtype)
    peer = (me + case.distance) % ranks
    mine = payload(case.dtype, case.n, rank=me, ranks=ranks)
    image.reset()
    held = image.claim("block that others load", 1024, case.n, dtype)
    image.fill(held, mine)
    received = exchange(mine, {(to, source) for source, to in _pairs(ranks, case.distance)}, rank=me, ranks=ranks)
    target = image.claim(f"copy of what rank {peer} holds", SLOT, case.n, dtype)
    image.expect(target, received[peer], kept_lanes("holes", case.n, me))
    with env.acting():
        _launch(env, case, load_by, "load", image.tensor(held), image.tensor(target), peer)
    env.settle()
    return image.difference()


def signal(env, case):
    """Send ``calls`` messages to a peer, each with a signal; read each after the wait for its signal, and confirm it
    with a signal back. One rank sends when the others have read, or wait for it."""
    findings = Findings(env.rank)
    me, ranks, adapter, heap = env.rank, env.world_size, env.adapter, env.iris.heap
    to, source = (me + case.distance) % ranks, (me - case.distance) % ranks
    count = min(case.n, kernels.BLOCK)
    env.image.reset()
    env.settle()
    start = SLOT + env.image.arena.data_ptr() - heap.base
    for turn in range(case.calls):
        step, first = env.gate.step(), case.data + 1000 * turn
        if env.rank == case.late:
            env.gate.hold(step)
        env.gate.enter(step)
        with env.acting(), env.gate.watching():
            kernels.store(env, heap.bases, to, start, torch.full((count,), first + me, dtype=torch.int32))
            adapter.signal(heap.provided, to)
            adapter.wait(heap.provided, source)
            env.device.synchronize()
            words = env.pointer(SLOT, torch.int32).as_strided((count,), (1,)).tolist()
            env.gate.reach(step)
            findings.equal(f"message {turn} of rank {source}, after its signal", words, [first + source] * count)
            adapter.signal(heap.provided, source)
            adapter.wait(heap.provided, to)
    env.settle()
    return findings.first


def _launch(env, case, kernel, name, pointer, values, peer):
    module, _, attribute = env.adapter.device_functions()[name].partition(":")
    function = getattr(importlib.import_module(module), attribute)
    keep = torch.from_numpy(kept_lanes("holes", case.n, env.rank).astype("uint8")).to(env.device.torch_device)
    grid = (triton.cdiv(case.n, BLOCK),)
    bases = env.iris.get_heap_bases()
    kernel[grid](function, pointer, values, keep, bases, env.rank, peer, case.n, BLOCK=BLOCK, num_warps=env.warps(1))


def _pairs(ranks, distance):
    return {(rank, (rank + distance) % ranks) for rank in range(ranks)}


def drawn(ranks, dtype):
    from conformance.calls import strategies

    return strategies.calls(ranks, dtype)


def late_messages(ranks):
    from conformance.calls import strategies

    return strategies.signals(ranks)


@requirement("CALL-STORE-001", cases=drawn, dtype=DTYPES)
def test_store(check, case: CallCase, dtype):
    check(store, case)


@requirement("CALL-LOAD-001", cases=drawn, dtype=DTYPES)
def test_load(check, case: CallCase, dtype):
    check(load, case)


@requirement("CALL-SIGNAL-001", cases=late_messages, ranks=2)
def test_signal(check, case: CallCase):
    check(signal, case)
