"""Collectives of 1 and 64 MiB by hundreds of programs, on GPUs: each program takes many tiles, and uses its flags and
slots as often.

A tensor lies between two guards. Its rows are 1,000 elements long, no multiple of a tile's. One of the smaller tensors
begins at the lowest alignment of its elements: a GPU that needs more for wide accesses faults where a kernel makes them
at the alignment of another tensor.
"""

import functools

import torch

from conformance.collectives.operations import ALWAYS, COLLECTIVES, Inputs, described, published
from conformance.support.cases import HostCase
from conformance.support.instances import release
from fixtures import judged
from fixtures.findings import Findings
from fixtures.requirement import requirement

MIB = 1 << 20
SIZES = ((MIB, 0, 1), (MIB, 1, 0), (64 * MIB, 0, 0))
"""Bytes of the larger one of input and output, and the elements by which each starts after a multiple of 1024 bytes."""
COLUMNS = 1000
TILE = (32, 64)
GUARD = 4096
"""Elements before and after each tensor, which must not change."""
BEFORE = -99
PROGRAMS = 840
"""Divisible by every number of ranks up to 8, as the variant "partitioned" requires."""
MOVED, REDUCED = torch.int32, torch.bfloat16


def run(env, case):
    name, variant, gluon, size, *shifts = case.arguments
    op = described(name)
    me, ranks = env.rank, env.world_size
    dtype = REDUCED if op.reduces else MOVED
    inputs, outputs = _shapes(op, size // dtype.itemsize, ranks)
    counts = [rows * columns for rows, columns in (inputs, outputs)]
    iris = env.under_test.iris(heap_size=3 * (sum(counts) + 4 * GUARD) * dtype.itemsize + 64 * MIB)
    given, wanted = _given_and_wanted(name, inputs, dtype, me, ranks, env.device.torch_device)
    memories = [iris.empty(count + 2 * GUARD, dtype=dtype) for count in counts]
    starts = [GUARD + shift for shift in shifts]
    source, target = (
        memory[start : start + shape[0] * shape[1]].view(shape)
        for memory, start, shape in zip(memories, starts, (inputs, outputs), strict=True)
    )
    if op.in_place == ALWAYS:
        source = target
    for memory in memories:
        memory.fill_(BEFORE)
    source.copy_(given)
    unwritten = torch.full_like(wanted, BEFORE)
    if op.owned is not None:
        tiles = op.case(m=outputs[0], n=outputs[1], block_m=TILE[0], block_n=TILE[1])
        wanted = torch.where(op.owned(tiles, me, ranks).to(wanted.device), wanted, unwritten)
    if op.results_at == "root" and me != 0:
        wanted = unwritten
    env.settle()
    with env.acting():
        settings = env.under_test.config(
            block_size_m=TILE[0], block_size_n=TILE[1], comm_sms=PROGRAMS, num_warps=env.warps(4), use_gluon=gluon,
            threads_per_warp=env.device.lanes, **({f"{name}_variant": variant} if variant else {}),
        )  # fmt: skip
        for _ in range(2):  # the second call finds what the first left in flags, slots and workspaces
            tensors = {"output": target, "input": source}
            order = ("output",) if op.in_place == ALWAYS else ("output", "input")
            passed = [tensors[each] if op.passes(each, is_root=me == 0) else None for each in order]
            getattr(iris.ccl, name)(*passed, config=settings, **({op.root: 0} if op.root else {}))
    env.settle()
    findings = Findings(me)
    findings.same("the output", target, wanted)
    for tensor, memory, start, count in zip(("input", "output"), memories, starts, counts, strict=True):
        for side, part in (("before", memory[:start]), ("after", memory[start + count :])):
            findings.same(f"the memory {side} the {tensor}", part, torch.full_like(part, BEFORE))
    env.settle()
    release(iris)
    return findings.first


def _shapes(op, count, ranks):
    """Return the shapes of input and output; the larger one has about ``count`` elements."""
    times = max(rows * columns for rows, columns in op.shapes(1, 1, ranks))
    columns = COLUMNS // ranks if op.shapes(1, 1, ranks)[0][1] > 1 else COLUMNS
    return op.shapes(count // (times * columns), columns, ranks)


@functools.lru_cache(maxsize=1)  # one for all variants: cases of a size follow each other, on every rank alike
def _given_and_wanted(name, shape, dtype, rank, ranks, device):
    """Return this rank's input, on the CPU, and torch.distributed's result on the device; no caller changes them."""
    given = _values(shape[0] * shape[1], rank, dtype, device).view(shape).cpu()
    return given, described(name).reference(Inputs(given, members=ranks)).to(device)


def _values(count, rank, dtype, device):
    """Return elements that differ by place and rank; those of sums are small integers, exact in any order."""
    places = torch.arange(count, device=device)
    if dtype == MOVED:
        return ((places * 2654435761 + rank * 97) & 0x7FFFFFFF).to(dtype)
    return ((places * 31 + rank * 17) % 8 + 1).to(dtype)


def cases(ranks, op):
    op = described(op)
    simplest = op.variants[0].name
    listed = [op.case(variant=one.name) for one in op.variants] + [op.case(variant=simplest, gluon=True)]
    listed = listed if judged.extended() else [published(case) for case in listed]
    kernels = dict.fromkeys((case.variant, case.gluon) for case in listed)
    return [HostCase("large", (op.name, *kernel, *size)) for size in SIZES for kernel in kernels]


@requirement(
    "CCL-LARGE-001",
    cases=cases,
    ranks=2,
    device="gpu",
    because="the emulated device would take hours",
    op=COLLECTIVES,
)
def test_large(check, case):
    check(run, case)
