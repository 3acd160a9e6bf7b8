"""In a debug build an access outside the heap, or to a rank outside the world, stops the kernel before it does harm.

The fault names the operation, kernel and source line, what was touched in bytes from the heap's start, the heap's
size, and the ranks. What stays inside goes on as ever, also where masked lanes point beyond the heap. A failed
assertion costs a GPU's process, so this needs the emulated device.

One kernel per form holds every operation, chosen when it runs: int32 elements, ``n`` of a block that begins at
``pointer``; atomic_cas, which has no mask, acts on the last of them alone. What copy reads begins at ``near``, and is
``from_rank``'s.
"""

import inspect
import re
from pathlib import Path

import torch
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from conformance.rma.test_load import Address
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.cases import HostCase
from harness.errors import KernelFault

HEAP, BLOCK = 1 << 16, 64

OPS = (
    "load", "store", "get", "put", "copy", "atomic_add", "atomic_sub", "atomic_xchg", "atomic_xor", "atomic_and",
    "atomic_or", "atomic_min", "atomic_max", "atomic_cas",
)  # fmt: skip


@gluon.jit(do_not_specialize=["op", "near", "pointer", "n", "from_rank", "to_rank"])
def each_by_gluon(
    IrisDeviceCtx: gl.constexpr, context_tensor, op, near, pointer, n, from_rank, to_rank, BLOCK: gl.constexpr
):
    ctx = IrisDeviceCtx.initialize(context_tensor)
    offsets = gl.arange(0, BLOCK, layout=gl.BlockedLayout([1], [64], [1], [0]))
    block, mask, ones = pointer + offsets, offsets < n, offsets * 0 + 1
    if op == 0:
        gl.store(near + offsets, ctx.load(block, to_rank, mask=mask), mask=mask)
    elif op == 1:
        ctx.store(block, ones, to_rank, mask=mask)
    elif op == 2:
        ctx.get(block, near + offsets, to_rank, mask=mask)
    elif op == 3:
        ctx.put(near + offsets, block, to_rank, mask=mask)
    elif op == 4:
        ctx.copy(near + offsets, block, from_rank, to_rank, mask=mask)
    elif op == 5:
        ctx.atomic_add(block, ones, to_rank, mask=mask)
    elif op == 6:
        ctx.atomic_sub(block, ones, to_rank, mask=mask)
    elif op == 7:
        ctx.atomic_xchg(block, ones, to_rank, mask=mask)
    elif op == 8:
        ctx.atomic_xor(block, ones, to_rank, mask=mask)
    elif op == 9:
        ctx.atomic_and(block, ones, to_rank, mask=mask)
    elif op == 10:
        ctx.atomic_or(block, ones, to_rank, mask=mask)
    elif op == 11:
        ctx.atomic_min(block, ones, to_rank, mask=mask)
    elif op == 12:
        ctx.atomic_max(block, ones, to_rank, mask=mask)
    else:
        ctx.atomic_cas(pointer + n - 1, 0, 1, to_rank)


@triton.jit(do_not_specialize=["op", "near", "pointer", "n", "from_rank", "to_rank"])
def each_by_context(
    DeviceContext: tl.constexpr, context_tensor, RANK: tl.constexpr, RANKS: tl.constexpr, op, near, pointer, n,
    from_rank, to_rank, BLOCK: tl.constexpr,
):  # fmt: skip
    ctx = DeviceContext.initialize(context_tensor, RANK, RANKS)
    offsets = tl.arange(0, BLOCK)
    block, mask, ones = pointer + offsets, offsets < n, offsets * 0 + 1
    if op == 0:
        tl.store(near + offsets, ctx.load(block, to_rank, mask=mask), mask=mask)
    elif op == 1:
        ctx.store(block, ones, to_rank, mask=mask)
    elif op == 2:
        ctx.get(block, near + offsets, to_rank, mask=mask)
    elif op == 3:
        ctx.put(near + offsets, block, to_rank, mask=mask)
    elif op == 4:
        ctx.copy(near + offsets, block, from_rank, to_rank, mask=mask)
    elif op == 5:
        ctx.atomic_add(block, ones, to_rank, mask=mask)
    elif op == 6:
        ctx.atomic_sub(block, ones, to_rank, mask=mask)
    elif op == 7:
        ctx.atomic_xchg(block, ones, to_rank, mask=mask)
    elif op == 8:
        ctx.atomic_xor(block, ones, to_rank, mask=mask)
    elif op == 9:
        ctx.atomic_and(block, ones, to_rank, mask=mask)
    elif op == 10:
        ctx.atomic_or(block, ones, to_rank, mask=mask)
    elif op == 11:
        ctx.atomic_min(block, ones, to_rank, mask=mask)
    elif op == 12:
        ctx.atomic_max(block, ones, to_rank, mask=mask)
    else:
        ctx.atomic_cas(pointer + n - 1, 0, 1, to_rank)


@triton.jit(do_not_specialize=["rank", "op", "near", "pointer", "n", "from_rank", "to_rank"])
def each_by_function(
    load: tl.constexpr, store: tl.constexpr, get: tl.constexpr, put: tl.constexpr, copy: tl.constexpr,
    atomic_add: tl.constexpr, atomic_sub: tl.constexpr, atomic_xchg: tl.constexpr, atomic_xor: tl.constexpr,
    atomic_and: tl.constexpr, atomic_or: tl.constexpr, atomic_min: tl.constexpr, atomic_max: tl.constexpr,
    atomic_cas: tl.constexpr, heap_bases, rank, op, near, pointer, n, from_rank, to_rank, BLOCK: tl.constexpr,
):  # fmt: skip
    offsets = tl.arange(0, BLOCK)
    block, mask, ones = pointer + offsets, offsets < n, offsets * 0 + 1
    if op == 0:
        tl.store(near + offsets, load(block, rank, to_rank, heap_bases, mask=mask), mask=mask)
    elif op == 1:
        store(block, ones, rank, to_rank, heap_bases, mask=mask)
    elif op == 2:
        get(block, near + offsets, rank, to_rank, heap_bases, mask=mask)
    elif op == 3:
        put(near + offsets, block, rank, to_rank, heap_bases, mask=mask)
    elif op == 4:
        copy(near + offsets, block, from_rank, to_rank, rank, heap_bases, mask)
    elif op == 5:
        atomic_add(block, ones, rank, to_rank, heap_bases, mask=mask)
    elif op == 6:
        atomic_sub(block, ones, rank, to_rank, heap_bases, mask=mask)
    elif op == 7:
        atomic_xchg(block, ones, rank, to_rank, heap_bases, mask=mask)
    elif op == 8:
        atomic_xor(block, ones, rank, to_rank, heap_bases, mask=mask)
    elif op == 9:
        atomic_and(block, ones, rank, to_rank, heap_bases, mask=mask)
    elif op == 10:
        atomic_or(block, ones, rank, to_rank, heap_bases, mask=mask)
    elif op == 11:
        atomic_min(block, ones, rank, to_rank, heap_bases, mask=mask)
    elif op == 12:
        atomic_max(block, ones, rank, to_rank, heap_bases, mask=mask)
    else:
        atomic_cas(pointer + n - 1, 0, 1, rank, to_rank, heap_bases)


KERNELS = {"gluon": each_by_gluon, "context": each_by_context, "function": each_by_function}


def run(env, case):
    """Rank 0 calls every operation with each of its faults, and then with what is right; the rest do nothing."""
    (form,) = case.arguments
    found = Findings(env.rank)
    iris = env.under_test.iris(heap_size=HEAP)
    heap = iris.zeros(HEAP // 4, dtype=torch.int32)
    env.settle()
    if env.rank == 0:
        for op in OPS:
            for arguments, wrong in _wrong(op, env.rank, env.world_size):
                _expect_fault(env, found, iris, form, op, arguments, wrong)
    env.settle()
    found.true("no heap was changed", not heap.any())
    env.settle()
    if env.rank == 0:
        for op in OPS:
            try:
                _launch(env, iris, form, op, start=HEAP - 12, n=3, to_rank=env.world_size - 1)
            except KernelFault as fault:
                found.note(f"{op} of the heap's last elements", str(fault), "no fault")
    env.settle()
    iris.close()
    return found.first


def _wrong(op, me, ranks):
    """Arguments of ``_launch`` and what the fault must then say.

    All kinds for put, for the others the two that are missed most easily: one element, and one rank, too many; for
    copy at either end.
    """
    last = ranks - 1
    starts = ((HEAP - 8, 3), (-4, 1), (HEAP, 1), (-(1 << 33), 2), (1 << 33, 2))
    for start, n in starts if op == "put" else starts[:1]:
        end = start + 4 * n
        first = end - 4 if op == "atomic_cas" else start
        yield {"start": start, "n": n, "to_rank": last}, _outside(first, end - 1, last)
        if op == "copy":
            yield {"source": start, "n": n, "to_rank": last}, _outside(first, end - 1, me)
    for rank in (ranks, -1, 1 << 20) if op == "put" else (ranks,):
        words = ("rank outside the world", f"target rank: {rank}", f"number of ranks: {ranks}")
        yield {"to_rank": rank}, words
        if op == "copy":
            yield {"from_rank": rank, "to_rank": last}, words


def _outside(first, last, rank):
    return (
        "pointer outside the heap",
        f"first byte of the heap that is touched: {first}",
        f"last byte of the heap that is touched: {last}",
        f"bytes in the heap: {HEAP}",
        f"target rank: {rank}",
    )


def _expect_fault(env, found, iris, form, op, arguments, wrong):
    what = f"{op} of {arguments} in the form {form}"
    try:
        _launch(env, iris, form, op, **arguments)
        found.note(what, "no fault", wrong[0])
    except KernelFault as fault:
        kernel = KERNELS[form].fn
        lines, first = inspect.getsourcelines(kernel)
        call = re.compile(rf"ctx\.{op}\(|(?<![.\w]){op}\(")
        (line,) = (first + i for i, text in enumerate(lines) if call.search(text))
        # Without the folder: Triton's cache may hold the code of another copy of this file.
        place = f"{Path(__file__).name}:{line}'"
        for word in (f"iris {op}: ", *wrong, f"by rank: {env.rank}", kernel.__name__, place):
            found.true(f"{word} in the fault of {what}: {fault}", word in str(fault))


def _launch(env, iris, form, op, *, to_rank, start=0, n=1, source=0, from_rank=None):
    """``start`` and, for copy, ``source``: bytes from the heap's start. ``from_rank`` None: the caller."""
    base = int(iris.get_heap_bases()[env.rank])
    first = {
        "gluon": lambda: (env.device_context, iris.get_device_context()),
        "context": lambda: (env.under_test.triton_context, iris.get_device_context(), env.rank, env.world_size),
        "function": lambda: (*map(env.under_test.function, OPS), iris.get_heap_bases(), env.rank),
    }[form]()
    local = torch.zeros(BLOCK, dtype=torch.int32, device=env.device.torch_device)
    # What copy reads must lie on the heap.
    near = Address(base + source) if op == "copy" else local
    from_rank = env.rank if from_rank is None else from_rank
    KERNELS[form][(1,)](
        *first, OPS.index(op), near, Address(base + start), n, from_rank, to_rank, BLOCK, num_warps=1, debug=True
    )
    env.device.synchronize()


def cases(ranks):
    return [HostCase("debug", (form,)) for form in KERNELS]


@requirement(
    "NEGATIVE-DEBUG-001", cases=cases, device="emulated", because="on a GPU a failed assertion ends the process"
)
def test_debug_build(check, case):
    check(run, case, deadline=60)
