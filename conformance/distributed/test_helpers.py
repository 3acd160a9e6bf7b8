"""The helper collectives on arrays and numbers, and a group's geometry, compared with torch.distributed."""

import time

import numpy as np
import torch
import torch.distributed as dist

from conformance.distributed.modules import module_of
from conformance.rma.cases import TransferCase
from conformance.rma.kernels import launch
from conformance.rma.operations import TRANSFERS
from conformance.support.cases import HostCase, alike
from conformance.support.instances import release
from fixtures.findings import Findings
from fixtures.requirement import ANY_NODES, requirement
from harness.cases import chunks_of, members_of

DTYPES = ("int64", "float32", "int8", "uint64", "float16", "float64", "bool", "complex64", "uint8", "int16")


def run_gather(env, case):
    """Gather arrays with different values on each rank; torch.distributed's all_gather_object is the oracle."""
    dtype, shape, seed, *uniform = case.arguments
    shape = tuple(shape)
    findings, helpers = Findings(env.rank), module_of(env, "host.distributed.helpers")
    mine = (np.random.default_rng([seed, env.rank]).normal(size=shape) * 50).astype(dtype)
    every = [None] * env.world_size
    dist.all_gather_object(every, mine)
    wanted = np.stack(every)
    env.late(case.late, case.late_ms)
    results = {"distributed_allgather_multidim": helpers.distributed_allgather_multidim(mine)}
    if len(shape) == 1:
        results["distributed_allgather"] = helpers.distributed_allgather(mine)
    else:
        findings.raises("distributed_allgather of it", ValueError, lambda: helpers.distributed_allgather(mine))
    for name, got in results.items():
        findings.equal(f"type of {name}", type(got).__name__, "ndarray")
        findings.equal(f"dtype of {name}", str(got.dtype), dtype)
        findings.equal(f"shape of {name}", got.shape, wanted.shape)
        findings.equal(f"bytes of {name}", got.tobytes(), wanted.tobytes())
    _check_views(env, findings, helpers, dtype)
    other = mine if env.rank else np.zeros((*shape, 2), dtype)
    if env.world_size > 1 and not any(uniform):
        for name in ("distributed_allgather", "distributed_allgather_multidim"):
            gather = getattr(helpers, name)
            findings.raises(f"{name} of arrays that differ", ValueError, lambda gather=gather: gather(other))
        # A ragged list is not an array. Only rank 0 can detect that, and all ranks must get an error.
        ragged = mine if env.rank else [[1], [1, 2]]
        findings.raises("rank 0's ragged list", ValueError, lambda: helpers.distributed_allgather_multidim(ragged))
    env.settle()
    return findings.first


def _check_views(env, findings, helpers, dtype):
    """Check arrays whose elements are not one behind the other in memory."""
    grids = [(np.arange(12) + 50 * rank).astype(dtype).reshape(3, 4) for rank in range(env.world_size)]
    for label, view in VIEWS.items():
        got = helpers.distributed_allgather_multidim(view(grids[env.rank]))
        findings.equal(f"a gathered {label} array", got.tolist(), [view(grid).tolist() for grid in grids])
    got = helpers.distributed_allgather(grids[env.rank][:, 1])
    findings.equal("a gathered column", got.tolist(), [grid[:, 1].tolist() for grid in grids])


VIEWS = {
    "transposed": np.transpose,
    "Fortran-ordered": np.asfortranarray,
    "strided": lambda grid: grid[::2, ::2],
    "reversed": lambda grid: grid[::-1, ::-1],
    "repeated": lambda grid: np.broadcast_to(grid[:, :1], grid.shape),
}


def gather_cases(ranks):
    from hypothesis import strategies as st

    shapes = st.lists(st.integers(0, 5), max_size=3).map(tuple) | st.tuples(st.integers(1, 300))
    return st.builds(
        HostCase,
        what=st.just("gather"),
        arguments=st.tuples(st.sampled_from(DTYPES), shapes, st.integers(0, 999), *map(st.just, alike())),
        late=st.integers(-1, ranks - 1),
        late_ms=st.just(5),
    )


@requirement("DIST-GATHER-001", one_process="", nodes=ANY_NODES, cases=gather_cases, weight=0.5)
def test_gather(check, case):
    check(run_gather, case)


SCALARS = (0, -7, 2**40, 0.1, -1.5, True, False, 1j)


def run_broadcast(env, case):
    findings, helpers = Findings(env.rank), module_of(env, "host.distributed.helpers")
    for source in {0, env.world_size - 1}:
        for value in SCALARS:
            got = helpers.distributed_broadcast_scalar(value if env.rank == source else 99, source)
            findings.equal(f"scalar from rank {source}", got, value)
        tensor = torch.arange(12).reshape(3, 4)
        got = helpers.distributed_broadcast_tensor(tensor if env.rank == source else None, source)
        findings.equal(f"tensor from rank {source}", (type(got).__name__, got.tolist()), ("ndarray", tensor.tolist()))
    if not any(case.arguments):
        findings.raises(
            "a text as a scalar",
            (ValueError, RuntimeError),
            lambda: helpers.distributed_broadcast_scalar("text" if env.rank == 0 else 1),
        )
    findings.raises(
        "an unknown source rank", ValueError, lambda: helpers.distributed_broadcast_tensor(1, env.world_size)
    )
    env.settle()
    return findings.first


@requirement(
    "DIST-BROADCAST-001", one_process="", nodes=ANY_NODES, cases=lambda ranks: [HostCase("broadcast", alike())]
)
def test_broadcast(check, case):
    check(run_broadcast, case)


def run_barriers(env, case):
    """Check that no rank leaves a barrier before the late rank has entered, which it marks in the store."""
    (group,) = case.arguments
    findings, helpers = Findings(env.rank), module_of(env, "host.distributed.helpers")
    members = members_of(group, env.rank, env.world_size)
    handle = env.group(members, chunks_of(group, env.world_size))
    store = dist.distributed_c10d._get_default_store()
    late = members[case.late % len(members)]
    key = f"conformance/barrier/{members}/{_call(env)}"
    env.late(late, case.late_ms)
    if env.rank == late:
        store.set(key, "here")
    helpers.distributed_barrier(handle)
    findings.true(f"the late rank {late} has entered when the barrier is left", store.check([key]))
    env.settle()
    return findings.first


def _call(env):
    """Return a number that is the same on all ranks and unique to this call."""
    times = [None] * env.world_size
    dist.all_gather_object(times, time.time_ns())
    return times[0]


@requirement(
    "DIST-BARRIER-001",
    one_process="",
    nodes=ANY_NODES,
    cases=lambda ranks: [
        HostCase("barrier", (group,), late=late, late_ms=40) for group in ("world", "stride") for late in (0, 1)
    ],
)
def test_barriers(check, case):
    check(run_barriers, case)


def run_device_barrier(env, case):
    """Write into every peer's heap with a kernel; after the barrier this rank's heap holds all ranks' values."""
    findings, helpers, me = Findings(env.rank), module_of(env, "host.distributed.helpers"), env.rank
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
            launch(
                env, TRANSFERS["put"], TransferCase(n=1), source, env.pointer(4096 + 4 * me, torch.int32), keep, peer
            )
        helpers.distributed_device_barrier(iris)
        launch(env, TRANSFERS["load"], TransferCase(n=env.world_size), env.pointer(4096, torch.int32), seen, keep, me)
    env.settle()
    findings.equal("cells read after the barrier", seen.tolist(), [300 + rank for rank in range(env.world_size)])
    release(iris)
    return findings.first


@requirement(
    "DIST-BARRIER-002",
    one_process="",
    cases=lambda ranks: [HostCase("device_barrier", late=late, late_ms=20) for late in (0, 1)],
)
def test_device_barrier(check, case):
    check(run_device_barrier, case)


def run_group_info(env, case):
    """Check extract_group_info of the world, strided groups and halves, and that it refuses a rank outside."""
    (group,) = case.arguments
    findings, helpers = Findings(env.rank), module_of(env, "host.distributed.helpers")
    me, size = env.rank, env.world_size
    if group is None:
        wanted, handle = (me, me, size, 0, 1), None
    else:
        members = members_of(group, me, size)
        handle = env.group(members, chunks_of(group, size))
        stride = members[1] - members[0] if len(members) > 1 else 1
        wanted = (members.index(me), me, len(members), members[0], stride)
    findings.equal(f"group {group}", tuple(helpers.extract_group_info(handle, me, size)), wanted)
    if handle is not None and len(members) < size:
        outsider = next(rank for rank in range(size) if rank not in members)
        findings.raises(
            "a rank outside the group", RuntimeError, lambda: helpers.extract_group_info(handle, outsider, size)
        )
    return findings.first


@requirement(
    "DIST-GROUP-001",
    one_process="",
    nodes=ANY_NODES,
    cases=lambda ranks: [HostCase("group", (group,)) for group in (None, "world", "stride", "halves")],
)
def test_group_info(check, case):
    check(run_group_info, case)


def run_agreement(env, case):
    """Check exchange(), which gathers rows of numbers, and agree(), which reports one rank's error on all ranks."""
    findings, helpers, me = Findings(env.rank), module_of(env, "host.distributed.helpers"), env.rank
    ends = [-(2**63), 2**63 - 1, me]
    findings.equal("rows", helpers.exchange(ends), [[*ends[:2], rank] for rank in range(env.world_size)])
    helpers.agree(None, "nothing")
    for failing in (0, env.world_size - 1):
        own = KeyError("mine") if me == failing else None
        says = "mine" if own else f"acting failed on ranks [{failing}]"
        findings.raises(
            f"an error of rank {failing}",
            KeyError if own else RuntimeError,
            lambda own=own: helpers.agree(own, "acting"),
            says=says,
        )
    helpers.host_barrier()
    findings.equal("a value broadcast to all ranks", helpers.broadcast_value("text" if me == 0 else None, 0), "text")
    where = helpers.collective_device()
    total = torch.ones(1, device=where)
    dist.all_reduce(total)
    findings.equal("a sum on collective_device()", total.item(), float(env.world_size))
    return findings.first


@requirement("DIST-AGREE-001", one_process="", nodes=ANY_NODES, cases=lambda ranks: [HostCase("agreement")])
def test_agreement(check, case):
    check(run_agreement, case)
