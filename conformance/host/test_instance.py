"""iris(heap_size), and an instance's properties: rank, world size, device, heap, and the context tensor."""

import torch

from conformance.host.checks import run_named
from conformance.rma.words import read_address
from conformance.support.cases import HostCase, alike
from conformance.support.instances import release
from fixtures.addresses import address_of
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.oracles import gathered

TRACING_ENTRIES = 17


def queries(env, findings):
    iris = env.iris
    findings.equal("get_rank()", iris.get_rank(), env.rank)
    findings.equal("cur_rank", iris.cur_rank, env.rank)
    findings.equal("get_num_ranks()", iris.get_num_ranks(), env.world_size)
    findings.equal("num_ranks", iris.num_ranks, env.world_size)
    findings.equal("comm", iris.comm, None)
    findings.equal("gpu_id is an int", isinstance(iris.gpu_id, int), True)
    findings.equal("get_device_id()", iris.get_device_id(), iris.gpu_id)
    units = iris.get_cu_count()
    findings.true(f"get_cu_count() is a positive int: {units!r}", isinstance(units, int) and units > 0)
    findings.equal("get_cu_count() is the device's number of compute units", units, _compute_units(env, iris))
    findings.equal("get_device() as text", str(iris.get_device()), str(iris.device))
    findings.equal("get_device().type", iris.get_device().type, env.device.torch_device.type)
    bases = iris.get_heap_bases()
    findings.equal("dtype of heap bases", bases.dtype, torch.int64)
    findings.equal("shape of heap bases", tuple(bases.shape), (env.world_size,))
    findings.equal("heap bases are all different", len(set(bases.tolist())), env.world_size)
    findings.true("heap_bases is the live table", address_of(iris.heap_bases) == address_of(bases))
    findings.true("every base is page aligned", all(base > 0 and base % 4096 == 0 for base in bases.tolist()))


def _compute_units(env, iris):
    """Return the number of compute units: torch's for a GPU, else that of the emulated GPU (MI300X or MI350)."""
    if iris.get_device().type == "cuda":
        return torch.cuda.get_device_properties(iris.get_device()).multi_processor_count
    return {"gfx942": 304, "gfx950": 256}[env.device.arch]


def heap(env, findings):
    iris = env.under_test.iris(heap_size=1 << 18)
    findings.equal("heap_size", iris.heap_size, 1 << 18)
    first, second = iris.empty(100, dtype=torch.uint8), iris.heap.allocate(10, torch.float32)
    for label, tensor in (("empty", first), ("heap.allocate", second)):
        findings.equal(f"alignment of {label}", address_of(tensor) % 1024, 0)
        findings.true(f"{label} is on the heap", iris.is_symmetric(tensor))
    findings.true("allocations do not overlap", address_of(second) >= address_of(first) + 100)
    base = int(iris.get_heap_bases()[env.rank])
    findings.true("this rank's base is the start of its heap", base <= address_of(first) < base + (1 << 18))
    findings.raises("an allocation larger than the heap", MemoryError, lambda: iris.empty(1 << 19, dtype=torch.uint8))
    offsets = gathered(torch.tensor([address_of(second) - base]))
    findings.equal("offset of the same allocation on all ranks", len(set(offsets.tolist())), 1)
    release(iris)


def bad_sizes(env, findings, alike=False):
    """Pass a wrong size on all ranks, and unless ``alike`` on one rank only: then the others get the error too."""
    for size in (0, -1, "1M", None, 2.5, 1 << 62):
        findings.raises(f"heap_size={size!r}", ValueError, lambda size=size: env.under_test.iris(heap_size=size))
        for culprit in {0, env.world_size - 1} if env.world_size > 1 and not alike else ():
            mine = size if env.rank == culprit else 1 << 18
            findings.raises(
                f"heap_size={size!r} on rank {culprit}",
                ValueError,
                lambda mine=mine: env.under_test.iris(heap_size=mine),
            )
    if env.world_size > 1 and not alike:
        mine = (1 << 18) + 4096 * env.rank
        findings.raises("heap sizes that differ", ValueError, lambda: env.under_test.iris(heap_size=mine))


def uninitialised(env, findings):
    """Create an instance without a default process group."""
    findings.raises("iris() before init_process_group", RuntimeError, lambda: env.in_library(without_a_group))


def without_a_group(env):
    """Make an instance in a process without a default process group: the existing one is removed for the call."""
    import torch.distributed as dist

    world = dist.distributed_c10d._world.default_pg
    dist.distributed_c10d._world.default_pg = None
    try:
        env.under_test.iris(heap_size=1 << 18)
    finally:
        dist.distributed_c10d._world.default_pg = world


def current_device(env, findings):
    """Check that creating an instance makes the rank's GPU the current device: nccl uses the current device."""
    if env.device.torch_device.type != "cuda":
        return
    torch.cuda.set_device((env.iris.gpu_id + 1) % torch.cuda.device_count())
    try:
        iris = env.under_test.iris(heap_size=1 << 18)
        findings.equal("the current device", torch.cuda.current_device(), iris.gpu_id)
    finally:
        torch.cuda.set_device(env.iris.gpu_id)
    env.settle()
    release(iris)


def bases_reach_peers(env, findings):
    """Check that a peer's base in the table is that peer's memory: a value that the peer wrote can be read there."""
    iris = env.under_test.iris(heap_size=1 << 18)
    mine = iris.empty(64, dtype=torch.int32)
    mine.fill_(1000 + env.rank)
    offset = address_of(mine) - int(iris.get_heap_bases()[env.rank])
    env.settle()
    for rank, base in enumerate(iris.get_heap_bases().tolist()):
        findings.equal(f"rank {rank}'s heap through the base table", read_address(env, base + offset), 1000 + rank)
    env.settle()
    release(iris)


INIT = {check.__name__: check for check in (queries, heap, bad_sizes, uninitialised, current_device, bases_reach_peers)}


def run_init(env, case):
    return run_named(env, case, INIT)


def init_cases(ranks):
    return [HostCase(name, alike() if name == "bad_sizes" else ()) for name in INIT]


@requirement("HOST-INIT-001", cases=init_cases)
def test_instance(check, case):
    check(run_init, case)


def run_context(env, case):
    """Check that an allocation leaves the context tensor as it was, and that two instances have separate heaps."""
    findings = Findings(env.rank)
    second = env.under_test.iris(heap_size=1 << 18)
    for iris in (env.iris, second):
        for moment in ("at first", "after an allocation"):
            context = iris.get_device_context()
            findings.equal(f"dtype of the context {moment}", context.dtype, torch.int64)
            wanted = [env.rank, env.world_size, *iris.get_heap_bases().tolist(), *[0] * TRACING_ENTRIES]
            findings.same(f"the context tensor {moment}", context.cpu(), torch.tensor(wanted, dtype=torch.int64))
            findings.true("get_device_context() returns the same tensor again", context is iris.get_device_context())
            second.empty(16)
    findings.true(
        "instances have heaps of their own",
        set(env.iris.get_heap_bases().tolist()).isdisjoint(second.get_heap_bases().tolist()),
    )
    env.settle()
    release(second)
    return findings.first


@requirement("HOST-CONTEXT-001", cases=lambda ranks: [HostCase("context")])
def test_context_tensor(check, case):
    check(run_context, case)
