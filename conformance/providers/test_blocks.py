"""Remote stores and loads through the table of peer bases land at the same offset of the right rank's heap, and nowhere
else."""

from conformance.providers import kernels
from conformance.providers.cases import BlockCase
from conformance.providers.heaps import arena_offset, with_form
from fixtures.requirement import requirement
from harness.cases import ALL, of_name, payload, rounds_needed
from harness.oracles import exchange

DTYPES = (*ALL, "bool")
SOURCE, SLOT = 4096, 128 * 1024
"""Bytes of the arena at which the block that others load starts, and the slot that others store to."""


@with_form
def store(env, case):
    return _run(env, case, _store)


@with_form
def load(env, case):
    return _run(env, case, _load)


def _run(env, case, act):
    mismatch, arena = None, arena_offset(env)
    for round_ in range(rounds_needed(case.dtype, env.world_size * case.n)):
        mismatch = act(env, case, round_, arena) or mismatch
    return mismatch


def _store(env, case, round_, arena):
    me, ranks, image, dtype = env.rank, env.world_size, env.image, of_name(case.dtype)
    peer = (me + case.distance) % ranks
    mine = payload(case.dtype, case.n, rank=me, ranks=ranks, round_=round_)
    image.reset()
    received = exchange(mine, _pairs(ranks, case.distance), rank=me, ranks=ranks)
    start = SLOT + case.offset * dtype.itemsize
    [(sender, values)] = received.items()
    image.expect(image.claim(f"slot that rank {sender} stores to", start, case.n, dtype), values)
    env.late(case.late, case.late_ms)
    with env.acting():
        kernels.store(env, env.iris.get_heap_bases(), peer, arena + start, mine)
    env.settle()
    return image.difference()


def _load(env, case, round_, arena):
    me, ranks, image, dtype = env.rank, env.world_size, env.image, of_name(case.dtype)
    peer = (me + case.distance) % ranks
    mine = payload(case.dtype, case.n, rank=me, ranks=ranks, round_=round_)
    image.reset()
    start = SOURCE + case.offset * dtype.itemsize
    image.fill(image.claim("block that others load", start, case.n, dtype), mine)
    received = exchange(mine, {(to, source) for source, to in _pairs(ranks, case.distance)}, rank=me, ranks=ranks)
    target = image.claim(f"copy of what rank {peer} holds", SLOT + case.offset * dtype.itemsize, case.n, dtype)
    image.expect(target, received[peer])
    env.late(case.late, case.late_ms)
    with env.acting():
        loaded = kernels.load(env, env.iris.get_heap_bases(), peer, arena + start, case.n, dtype)
        image.tensor(target).copy_(loaded)
    env.settle()
    return image.difference()


def _pairs(ranks, distance):
    return {(rank, (rank + distance) % ranks) for rank in range(ranks)}


def drawn(ranks, dtype):
    from conformance.providers import strategies

    return strategies.blocks(ranks, dtype)


@requirement("PROVIDER-STORE-001", cases=drawn, weight=4.0, dtype=DTYPES)
def test_store(check, case: BlockCase, dtype):
    check(store, case)


@requirement("PROVIDER-LOAD-001", cases=drawn, weight=4.0, dtype=DTYPES)
def test_load(check, case: BlockCase, dtype):
    check(load, case)
