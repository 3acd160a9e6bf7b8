"""Atomics as kernels use them: counters, maxima, spin locks, compare-and-swap loops, the last program finishes."""

from itertools import pairwise

import torch
import triton
import triton.language as tl

from tests.corpus.case import case


@triton.jit
def accumulate(x, slots, OP: tl.constexpr, n, SLOTS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    at = slots + i % SLOTS
    if OP == "add":
        tl.atomic_add(at, v, mask=i < n)
    elif OP == "max":
        tl.atomic_max(at, v, mask=i < n)
    elif OP == "min":
        tl.atomic_min(at, v, mask=i < n)
    elif OP == "and":
        tl.atomic_and(at, v, mask=i < n)
    elif OP == "or":
        tl.atomic_or(at, v, mask=i < n)
    else:
        tl.atomic_xor(at, v, mask=i < n)


_FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


@case(
    *({"op": "add", "dtype": t} for t in (*_FLOATS, torch.int32, torch.int64)),
    *(
        {"op": op, "dtype": t}
        for op in ("max", "min")
        for t in (torch.float32, torch.float64, torch.int32, torch.int64)
    ),
    *({"op": op, "dtype": torch.uint32} for op in ("max", "min")),
    *({"op": op, "dtype": torch.int32} for op in ("and", "or", "xor")),
)
def atomic_slots(draw, op, dtype):
    n, slots = 500, 7
    low = 0 if dtype == torch.uint32 else -8
    x = draw.integers(low, 9, n)
    start = draw.integers(max(low, -2), 3, slots)
    out = start.to(dtype, copy=True)
    accumulate[(4,)](x.to(dtype), out, OP=op, n=n, SLOTS=slots, BLOCK=128)
    wanted = start.clone()
    combine = {"add": torch.add, "max": torch.maximum, "min": torch.minimum, "and": torch.bitwise_and,
               "or": torch.bitwise_or, "xor": torch.bitwise_xor}[op]  # fmt: skip
    # Each block numbers its elements from a multiple of the block, and a slot is i % slots.
    for i in range(n):
        wanted[i % slots] = combine(wanted[i % slots], x[i])
    return out.to(torch.float64), wanted.double()


@triton.jit
def last_one_sums(x, parts, counter, out, n, BLOCK: tl.constexpr, PROGRAMS: tl.constexpr):
    """Every program stores a partial sum; the program that increments the counter last adds them up."""
    pid = tl.program_id(0)
    i = pid * BLOCK + tl.arange(0, BLOCK)
    tl.store(parts + pid, tl.sum(tl.load(x + i, mask=i < n, other=0), axis=0))
    tl.debug_barrier()
    if tl.atomic_add(counter, 1, sem="acq_rel") == tl.num_programs(0) - 1:
        j = tl.arange(0, PROGRAMS)
        tl.store(out, tl.sum(tl.load(parts + j, mask=j < tl.num_programs(0), other=0, cache_modifier=".cv"), axis=0))


@case()
def split_reduction(draw):
    x = draw.integers(-999, 999, 1000)
    parts, counter, out = (torch.zeros(size, dtype=torch.int32) for size in (8, 1, 1))
    last_one_sums[(8,)](x, parts, counter, out, 1000, BLOCK=128, PROGRAMS=8)
    return out, x.sum().int().view(1)


@triton.jit
def locked_append(lock, count, log):
    """A critical section behind a spin lock."""
    while tl.atomic_cas(lock, 0, 1, sem="acquire") != 0:
        pass
    n = tl.load(count, volatile=True)
    tl.store(log + n, tl.program_id(0))
    tl.store(count, n + 1)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0, sem="release")


@case({"warps": 1}, {"warps": 4})
def spin_lock(draw, warps):
    lock, count, log = (torch.zeros(size, dtype=torch.int32) for size in (1, 1, 20))
    locked_append[(20,)](lock, count, log, num_warps=warps)
    return [(log.sort().values, torch.arange(20, dtype=torch.int32)), (count, torch.tensor([20], dtype=torch.int32))]


@triton.jit
def product_by_cas(x, out, n):
    """A float atomic that the hardware lacks, as a compare-and-swap loop on its bits."""
    i = tl.program_id(0)
    factor = tl.load(x + i)
    old = tl.load(out, volatile=True)
    seen = tl.atomic_cas(out, old, (old.to(tl.float32, bitcast=True) * factor).to(tl.int32, bitcast=True))
    while seen != old:
        old = seen
        seen = tl.atomic_cas(out, old, (old.to(tl.float32, bitcast=True) * factor).to(tl.int32, bitcast=True))


@case()
def compare_and_swap_loop(draw):
    x = 2.0 ** draw.integers(-2, 3, 24).float()
    out = torch.ones(1)
    product_by_cas[(24,)](x, out.view(torch.int32), 24)
    return out, x.double().prod().view(1)


@triton.jit
def chained_scan(x, out, flags, carry, n, BLOCK: tl.constexpr):
    """A scan over a whole grid: each program waits for the sum of those before it."""
    pid = tl.program_id(0)
    i = pid * BLOCK + tl.arange(0, BLOCK)
    v = tl.cumsum(tl.load(x + i, mask=i < n, other=0), axis=0)
    before = tl.zeros((), tl.int32)
    if pid > 0:
        while tl.atomic_add(flags + pid - 1, 0, sem="acquire") == 0:
            pass
        before = tl.load(carry + pid - 1, volatile=True)
    total = before + tl.sum(tl.load(x + i, mask=i < n, other=0), axis=0)
    tl.store(carry + pid, total)
    tl.debug_barrier()
    tl.atomic_xchg(flags + pid, 1, sem="release")
    tl.store(out + i, v + before, mask=i < n)


@case()
def scan_across_programs(draw):
    x = draw.integers(-99, 99, 1000)
    out, flags, carry = torch.empty_like(x), torch.zeros(8, dtype=torch.int32), torch.zeros(8, dtype=torch.int32)
    chained_scan[(8,)](x, out, flags, carry, 1000, BLOCK=128)
    return out, x.cumsum(0).int()


@triton.jit
def segment_sum(x, segment, out, n, BLOCK: tl.constexpr):
    """Sums by segment number: in order, unsorted, with empty segments."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out + tl.load(segment + i, mask=i < n, other=0), tl.load(x + i, mask=i < n), mask=i < n)


@case()
def segmented_reduction(draw):
    x, segment = draw.integers(-9, 10, 700).float(), draw.integers(0, 30, 700)
    out = torch.zeros(32)
    segment_sum[(6,)](x, segment, out, 700, BLOCK=128)
    return out, torch.zeros(32).index_add_(0, segment, x)


@triton.jit
def segment_bounds_sum(x, bounds, out, BLOCK: tl.constexpr):
    """Sums between row pointers, as in compressed sparse rows: loops of different length."""
    row = tl.program_id(0)
    end = tl.load(bounds + row + 1)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(tl.load(bounds + row), end, BLOCK):
        j = start + tl.arange(0, BLOCK)
        total += tl.load(x + j, mask=j < end, other=0.0)
    tl.store(out + row, tl.sum(total, axis=0))


@case()
def segmented_reduction_by_bounds(draw):
    x = draw.integers(-9, 10, 600).float()
    bounds = torch.tensor([0, 0, 1, 130, 131, 400, 600], dtype=torch.int32)
    out = torch.empty(6)
    segment_bounds_sum[(6,)](x, bounds, out, BLOCK=64, num_warps=1)
    return out, torch.stack([x[a:b].sum() for a, b in pairwise(bounds)])
