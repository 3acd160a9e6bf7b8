"""The small collectives on arrays and numbers, and what a group looks like: as torch.distributed has them."""

import time

import numpy as np
import torch
import torch.distributed as dist

from conformance.distributed.modules import module_of
from conformance.rma.test_load import launch as load
from conformance.rma.test_put import launch as put
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.cases import HostCase, TransferCase, chunks_of, members_of

DTYPES = ("int64", "float32", "int8", "uint64", "float16", "float64", "bool", "complex64", "uint8", "int16")


def run_gather(env, case):
    """Every rank's array, with values of its own, as pickled objects go round."""
    dtype, shape, seed = case.arguments
    shape = tuple(shape)
    found, helpers = Findings(env.rank), module_of(env, "host.distributed.helpers")
    mine = (np.random.default_rng([seed, env.rank]).normal(size=shape) * 50).astype(dtype)
    every = [None] * env.world_size
    dist.all_gather_object(every, mine)
    wanted = np.stack(every)
    env.late(case.late, case.late_ms)
    results = {"distributed_allgather_multidim": helpers.distributed_allgather_multidim(mine)}
    if len(shape) == 1:
        results["distributed_allgather"] = helpers.distributed_allgather(mine)
    else:
        found.raises("distributed_allgather of it", ValueError, lambda: helpers.distributed_allgather(mine))
    for name, got in results.items():
        found.equal(f"type of {name}", type(got).__name__, "ndarray")
        found.equal(f"dtype of {name}", str(got.dtype), dtype)
        found.equal(f"shape of {name}", got.shape, wanted.shape)
        found.equal(f"bytes of {name}", got.tobytes(), wanted.tobytes())
    other = mine if env.rank else np.zeros((*shape, 2), dtype)
    if env.world_size > 1:
        for name in ("distributed_allgather", "distributed_allgather_multidim"):
            gather = getattr(helpers, name)
            found.raises(f"{name} of arrays that differ", ValueError, lambda gather=gather: gather(other))
        # Which no array can be made of: only that rank knows, and the others must hear of it.
        ragged = mine if env.rank else [[1], [1, 2]]
        found.raises("rank 0's ragged list", ValueError, lambda: helpers.distributed_allgather_multidim(ragged))
    env.settle()
    return found.first


def gather_cases(ranks):
    from hypothesis import strategies as st

    shapes = st.lists(st.integers(0, 5), max_size=3).map(tuple) | st.tuples(st.integers(1, 300))
    return st.builds(
        HostCase,
        what=st.just("gather"),
        arguments=st.tuples(st.sampled_from(DTYPES), shapes, st.integers(0, 999)),
        late=st.integers(-1, ranks - 1),
        late_ms=st.just(5),
    )


@requirement("DIST-GATHER-001", cases=gather_cases, weight=0.5)
def test_gather(check, case):
    check(run_gather, case)


SCALARS = (0, -7, 2**40, 0.1, -1.5, True, False, 1j)


def run_broadcast(env, case):
    found, helpers = Findings(env.rank), module_of(env, "host.distributed.helpers")
    for source in {0, env.world_size - 1}:
        for value in SCALARS:
            got = helpers.distributed_broadcast_scalar(value if env.rank == source else 99, source)
            found.equal(f"scalar from rank {source}", got, value)
        tensor = torch.arange(12).reshape(3, 4)
        got = helpers.distributed_broadcast_tensor(tensor if env.rank == source else None, source)
        found.equal(f"tensor from rank {source}", (type(got).__name__, got.tolist()), ("ndarray", tensor.tolist()))
    found.raises(
        "a scalar that is none",
        (ValueError, RuntimeError),
        lambda: helpers.distributed_broadcast_scalar("text" if env.rank == 0 else 1),
    )
    found.raises(
        "a rank that there is not", ValueError, lambda: helpers.distributed_broadcast_tensor(1, env.world_size)
    )
    env.settle()
    return found.first


@requirement("DIST-BROADCAST-001", cases=lambda ranks: [HostCase("broadcast")])
def test_broadcast(check, case):
    check(run_broadcast, case)


def run_barriers(env, case):
    """Nobody is out of a barrier before the late one is in; the mark goes round by the store, not by the barrier."""
    (group,) = case.arguments
    found, helpers = Findings(env.rank), module_of(env, "host.distributed.helpers")
    members = members_of(group, env.rank, env.world_size)
    handle = env.group(members, chunks_of(group, env.world_size))
    store = dist.distributed_c10d._get_default_store()
    late = members[case.late % len(members)]
    key = f"conformance/barrier/{members}/{_call(env)}"
    env.late(late, case.late_ms)
    if env.rank == late:
        store.set(key, "here")
    helpers.distributed_barrier(handle)
    found.true(f"rank {late}, which is late, is in when the barrier is left", store.check([key]))
    env.settle()
    return found.first


def _call(env):
    """What no other call of this or an earlier set of processes has, the same on all ranks."""
    times = [None] * env.world_size
    dist.all_gather_object(times, time.time_ns())
    return times[0]


@requirement(
    "DIST-BARRIER-001",
    cases=lambda ranks: [
        HostCase("barrier", (group,), late=late, late_ms=40) for group in ("world", "stride") for late in (0, 1)
    ],
)
def test_barriers(check, case):
    check(run_barriers, case)


def run_device_barrier(env, case):
    """Each rank's kernel writes into every peer's heap; behind the barrier, its own heap holds what all wrote."""
    found, helpers, me = Findings(env.rank), module_of(env, "host.distributed.helpers"), env.rank
    iris = env.under_test.iris(heap_size=1 << 16)
    env.image.reset()
    env.image.arena[4096 : 4096 + 4 * env.world_size].zero_()
    source = torch.full((1,), 300 + me, dtype=torch.int32, device=env.device.torch_device)
    seen = torch.zeros(env.world_size, dtype=torch.int32, device=env.device.torch_device)
    keep = torch.ones(env.world_size, dtype=torch.uint8, device=env.device.torch_device)
    env.settle()
    with env.acting():
        env.late(case.late % env.world_size, case.late_ms)
        for peer in range(env.world_size):
            put(env, TransferCase(n=1), source, env.pointer(4096 + 4 * me, torch.int32), keep, peer)
        helpers.distributed_device_barrier(iris)
        load(env, TransferCase(n=env.world_size), env.pointer(4096, torch.int32), seen, keep, me)
    env.settle()
    found.equal("cells behind the barrier", seen.tolist(), [300 + rank for rank in range(env.world_size)])
    iris.close()
    return found.first


@requirement(
    "DIST-BARRIER-002", cases=lambda ranks: [HostCase("device_barrier", late=late, late_ms=20) for late in (0, 1)]
)
def test_device_barrier(check, case):
    check(run_device_barrier, case)


def run_group_info(env, case):
    """Every form of group: whole, strided, halves; and members that are not evenly spaced, or not there."""
    (group,) = case.arguments
    found, helpers = Findings(env.rank), module_of(env, "host.distributed.helpers")
    me, size = env.rank, env.world_size
    if group is None:
        wanted, handle = (me, me, size, 0, 1), None
    else:
        members = members_of(group, me, size)
        handle = env.group(members, chunks_of(group, size))
        stride = members[1] - members[0] if len(members) > 1 else 1
        wanted = (members.index(me), me, len(members), members[0], stride)
    found.equal(f"group {group}", tuple(helpers.extract_group_info(handle, me, size)), wanted)
    if handle is not None and len(members) < size:
        stranger = next(rank for rank in range(size) if rank not in members)
        found.raises(
            "a rank outside the group", RuntimeError, lambda: helpers.extract_group_info(handle, stranger, size)
        )
    return found.first


@requirement(
    "DIST-GROUP-001", cases=lambda ranks: [HostCase("group", (group,)) for group in (None, "world", "stride", "halves")]
)
def test_group_info(check, case):
    check(run_group_info, case)


def run_agreement(env, case):
    """Rows of numbers from all, and errors that some have and all must hear of."""
    found, helpers, me = Findings(env.rank), module_of(env, "host.distributed.helpers"), env.rank
    ends = [-(2**63), 2**63 - 1, me]
    found.equal("rows", helpers.exchange(ends), [[*ends[:2], rank] for rank in range(env.world_size)])
    helpers.agree(None, "nothing")
    for failing in (0, env.world_size - 1):
        own = KeyError("mine") if me == failing else None
        says = "mine" if own else f"acting failed on ranks [{failing}]"
        found.raises(
            f"an error of rank {failing}",
            KeyError if own else RuntimeError,
            lambda own=own: helpers.agree(own, "acting"),
            says=says,
        )
    helpers.host_barrier()
    found.equal("a value for everybody", helpers.broadcast_value("text" if me == 0 else None, 0), "text")
    where = helpers.collective_device()
    total = torch.ones(1, device=where)
    dist.all_reduce(total)
    found.equal("a sum where collectives are", total.item(), float(env.world_size))
    return found.first


@requirement("DIST-AGREE-001", cases=lambda ranks: [HostCase("agreement")])
def test_agreement(check, case):
    check(run_agreement, case)
