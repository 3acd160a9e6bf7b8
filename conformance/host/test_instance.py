"""iris(heap_size) and what an instance says about itself: rank, world, device, heap, and the context tensor."""

import torch

from conformance.host.checks import run_named
from conformance.rma.test_load import read_address
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.cases import HostCase
from harness.oracles import gathered

TRACING_ENTRIES = 17


def queries(env, found):
    iris = env.iris
    found.equal("get_rank()", iris.get_rank(), env.rank)
    found.equal("cur_rank", iris.cur_rank, env.rank)
    found.equal("get_num_ranks()", iris.get_num_ranks(), env.world_size)
    found.equal("num_ranks", iris.num_ranks, env.world_size)
    found.equal("comm", iris.comm, None)
    found.equal("gpu_id is an int", isinstance(iris.gpu_id, int), True)
    found.equal("get_device_id()", iris.get_device_id(), iris.gpu_id)
    units = iris.get_cu_count()
    found.true(f"get_cu_count() is a positive int: {units!r}", isinstance(units, int) and units > 0)
    found.equal("get_cu_count() as the device has it", units, _compute_units(env, iris))
    found.equal("get_device() as text", str(iris.get_device()), str(iris.device))
    found.equal("get_device().type", iris.get_device().type, env.device.torch_device.type)
    bases = iris.get_heap_bases()
    found.equal("dtype of heap bases", bases.dtype, torch.int64)
    found.equal("shape of heap bases", tuple(bases.shape), (env.world_size,))
    found.equal("heap bases are all different", len(set(bases.tolist())), env.world_size)
    found.true("heap_bases is the live table", iris.heap_bases.data_ptr() == bases.data_ptr())
    found.true("every base is page aligned", all(base > 0 and base % 4096 == 0 for base in bases.tolist()))


def _compute_units(env, iris):
    """Of a GPU, as torch says; of an emulated one, of the GPU that it stands for (MI300X, MI350)."""
    if iris.get_device().type == "cuda":
        return torch.cuda.get_device_properties(iris.get_device()).multi_processor_count
    return {"gfx942": 304, "gfx950": 256}[env.device.arch]


def heap(env, found):
    iris = env.under_test.iris(heap_size=1 << 18)
    found.equal("heap_size", iris.heap_size, 1 << 18)
    first, second = iris.empty(100, dtype=torch.uint8), iris.heap.allocate(10, torch.float32)
    for what, tensor in (("empty", first), ("heap.allocate", second)):
        found.equal(f"alignment of {what}", tensor.data_ptr() % 1024, 0)
        found.true(f"{what} is on the heap", iris.is_symmetric(tensor))
    found.true("allocations do not overlap", second.data_ptr() >= first.data_ptr() + 100)
    base = int(iris.get_heap_bases()[env.rank])
    found.true("the own base is where the own heap starts", base <= first.data_ptr() < base + (1 << 18))
    found.raises("an allocation larger than the heap", MemoryError, lambda: iris.empty(1 << 19, dtype=torch.uint8))
    offsets = gathered(torch.tensor([second.data_ptr() - base]))
    found.equal("offset of the same allocation on all ranks", len(set(offsets.tolist())), 1)
    iris.close()


def bad_sizes(env, found):
    """Everywhere, and on one rank alone: then the others, whose size is right, are told."""
    for size in (0, -1, "1M", None, 2.5, 1 << 62):
        found.raises(f"heap_size={size!r}", ValueError, lambda size=size: env.under_test.iris(heap_size=size))
        for culprit in {0, env.world_size - 1} if env.world_size > 1 else ():
            mine = size if env.rank == culprit else 1 << 18
            found.raises(
                f"heap_size={size!r} on rank {culprit}",
                ValueError,
                lambda mine=mine: env.under_test.iris(heap_size=mine),
            )
    if env.world_size > 1:
        mine = (1 << 18) + 4096 * env.rank
        found.raises("heap sizes that differ", ValueError, lambda: env.under_test.iris(heap_size=mine))


def uninitialised(env, found):
    """Without a process group; the group itself is put aside meanwhile, as it carries the other cases."""
    import torch.distributed as dist

    world = dist.distributed_c10d._world.default_pg
    dist.distributed_c10d._world.default_pg = None
    try:
        found.raises("iris() before init_process_group", RuntimeError, lambda: env.under_test.iris(heap_size=1 << 18))
    finally:
        dist.distributed_c10d._world.default_pg = world


def current_device(env, found):
    """An instance makes its rank's device the current one, before it asks the others: nccl speaks from there."""
    if env.device.torch_device.type != "cuda":
        return
    torch.cuda.set_device((env.iris.gpu_id + 1) % torch.cuda.device_count())
    try:
        iris = env.under_test.iris(heap_size=1 << 18)
        found.equal("the current device", torch.cuda.current_device(), iris.gpu_id)
    finally:
        torch.cuda.set_device(env.iris.gpu_id)
    env.settle()
    iris.close()


def bases_reach_peers(env, found):
    """A peer's base, as mapped here, is that peer's memory: what it wrote at its heap's start is seen through it."""
    iris = env.under_test.iris(heap_size=1 << 18)
    mine = iris.empty(64, dtype=torch.int32)
    mine.fill_(1000 + env.rank)
    offset = mine.data_ptr() - int(iris.get_heap_bases()[env.rank])
    env.settle()
    for rank, base in enumerate(iris.get_heap_bases().tolist()):
        found.equal(f"rank {rank}'s heap through the base table", read_address(env, base + offset), 1000 + rank)
    env.settle()
    iris.close()


INIT = {check.__name__: check for check in (queries, heap, bad_sizes, uninitialised, current_device, bases_reach_peers)}


def run_init(env, case):
    return run_named(env, case, INIT)


@requirement("HOST-INIT-001", cases=lambda ranks: [HostCase(name) for name in INIT])
def test_instance(check, case):
    check(run_init, case)


def run_context(env, case):
    """Before and after further allocations, in the shared instance and in a second one."""
    found = Findings(env.rank)
    second = env.under_test.iris(heap_size=1 << 18)
    for iris in (env.iris, second):
        for moment in ("at first", "after an allocation"):
            context = iris.get_device_context()
            found.equal(f"dtype of the context {moment}", context.dtype, torch.int64)
            wanted = [env.rank, env.world_size, *iris.get_heap_bases().tolist(), *[0] * TRACING_ENTRIES]
            found.same(f"the context tensor {moment}", context.cpu(), torch.tensor(wanted, dtype=torch.int64))
            found.true("get_device_context() gives one tensor", context is iris.get_device_context())
            second.empty(16)
    found.true(
        "instances have heaps of their own",
        set(env.iris.get_heap_bases().tolist()).isdisjoint(second.get_heap_bases().tolist()),
    )
    env.settle()
    second.close()
    return found.first


@requirement("HOST-CONTEXT-001", cases=lambda ranks: [HostCase("context")])
def test_context_tensor(check, case):
    check(run_context, case)
