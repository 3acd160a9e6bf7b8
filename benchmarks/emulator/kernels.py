"""The benchmarks: what is launched, and how its result is checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from harness import emulator


@dataclass
class Benchmark:
    """``launch`` runs the kernel once; ``check`` raises when its result is wrong; ``memory`` are peers' heaps.
    ``reference`` is another way to compute the result, measured next to it."""

    title: str
    launch: Callable[[], object]
    check: Callable[[], None]
    memory: list[torch.Tensor] = field(default_factory=list)
    reference: Callable[[], object] | None = None


@gluon.jit
def put_kernel(heap_bases, source, target, n, to_rank, SIZE: gl.constexpr, WARPS: gl.constexpr):
    """target[i] of rank ``to_rank`` = source[i] of rank 0 for i < n; each lane moves SIZE neighbours."""
    BLOCK: gl.constexpr = 64 * WARPS * SIZE
    offsets = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=gl.BlockedLayout([SIZE], [64], [WARPS], [0]))
    mask = offsets < n
    # Bases are 16-byte aligned: the shift shows this to the compiler, so that wide accesses stay wide.
    size: gl.constexpr = source.dtype.element_ty.primitive_bitwidth // 8
    steps = ((gl.load(heap_bases + to_rank) - gl.load(heap_bases)) >> 4) * (16 // size)
    gl.store(target + offsets + steps, gl.load(source + offsets, mask=mask), mask=mask)


def _put(driver: emulator.EmulatedDriver, title: str, n: int, dtype: torch.dtype, size: int) -> Benchmark:
    heaps = _heaps(driver, 2, 2 * n + 64, dtype)
    bases = torch.tensor([heap.data_ptr() for heap in heaps])
    source, target = heaps[0][:n], heaps[0][n : 2 * n]
    source.copy_(torch.arange(n).to(dtype))
    groups = -(-n // (64 * 4 * size))

    def check() -> None:
        assert torch.equal(heaps[1][n : 2 * n], source), "the put moved the wrong data"

    return Benchmark(title, lambda: put_kernel[(groups,)](bases, source, target, n, 1, size, 4), check, heaps)


def put(driver: emulator.EmulatedDriver) -> Benchmark:
    return _put(driver, "a masked remote put of 262,144 float32 elements, 16 bytes a lane", 262_144, torch.float32, 4)


def small_put(driver: emulator.EmulatedDriver) -> Benchmark:
    return _put(driver, "launch latency: a masked remote put of 1,000 float16 elements", 1_000, torch.float16, 1)


@triton.jit
def all_gather_kernel(heap_bases, source, target, n, rank, WORLD: tl.constexpr, BLOCK: tl.constexpr):
    """target[rank * n + i] of every rank = source[i]: a load and WORLD stores a tile."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tile = tl.load(source + offsets, mask=mask)
    here = tl.load(heap_bases + rank)
    for peer in tl.static_range(WORLD):
        # Through an integer, as Iris does it: a pointer moved from heap to heap is not an offset of its argument.
        there = target.to(tl.int64) + (tl.load(heap_bases + peer) - here) + rank * n * 2
        there = tl.multiple_of(there.to(tl.pointer_type(tl.float16)), 8)
        tl.store(there + offsets, tile, mask=mask)


def all_gather(driver: emulator.EmulatedDriver) -> Benchmark:
    world, n, block = 8, 131_072, 2048
    heaps = _heaps(driver, world, (world + 1) * n, torch.float16)
    bases = torch.tensor([heap.data_ptr() for heap in heaps])
    heaps[0][:n] = torch.randn(n, generator=torch.Generator().manual_seed(0)).half()

    def launch() -> None:
        all_gather_kernel[(n // block,)](bases, heaps[0], heaps[0][n:], n, 0, world, block)

    def check() -> None:
        assert all(torch.equal(heap[n : 2 * n], heaps[0][:n]) for heap in heaps), "the all-gather moved the wrong data"

    return Benchmark("an all-gather tile: a load and 8 stores of 131,072 float16 elements", launch, check, heaps)


@triton.jit
def reduction_kernel(x, out, n, BLOCK: tl.constexpr):
    """out[row] = sum of x[row, :n]."""
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    tl.store(out + row, tl.sum(tl.load(x + row * n + columns, mask=columns < n, other=0.0)))


def reduction(driver: emulator.EmulatedDriver) -> Benchmark:
    # Small integers: every order of summation gives the same float32.
    x = torch.randint(-8, 8, (512, 1000), generator=torch.Generator().manual_seed(0)).float()
    out = torch.empty(512)

    def check() -> None:
        assert torch.equal(out, x.sum(1)), "the sums are wrong"

    return Benchmark("a sum over each of 512 rows of 1,000 float32 elements",
                     lambda: reduction_kernel[(512,)](x, out, 1000, 1024), check)  # fmt: skip


@triton.jit
def matmul_kernel(a, b, c, N, K, M_TILE: tl.constexpr, N_TILE: tl.constexpr, K_TILE: tl.constexpr):
    """c = a @ b, row-major; a tile a program, float32 accumulation."""
    rows = tl.program_id(0) * M_TILE + tl.arange(0, M_TILE)
    columns = tl.program_id(1) * N_TILE + tl.arange(0, N_TILE)
    depth = tl.arange(0, K_TILE)
    accumulator = tl.zeros((M_TILE, N_TILE), tl.float32)
    for k in range(0, K, K_TILE):
        left = tl.load(a + rows[:, None] * K + (k + depth)[None, :])
        right = tl.load(b + (k + depth)[:, None] * N + columns[None, :])
        accumulator = tl.dot(left, right, accumulator)
    tl.store(c + rows[:, None] * N + columns[None, :], accumulator.to(tl.float16))


def matmul(driver: emulator.EmulatedDriver) -> Benchmark:
    return _matmul(512)


def large_matmul(driver: emulator.EmulatedDriver) -> Benchmark:
    return _matmul(2048)


def _matmul(size: int) -> Benchmark:
    """Return a product of square matrices, compared with NumPy's product of the same numbers as float32."""
    tile = 64
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(size, size, generator=generator).half() for _ in range(2))
    c = torch.empty(size, size, dtype=torch.float16)
    left, right = (x.float().numpy() for x in (a, b))
    product = left @ right

    def check() -> None:
        torch.testing.assert_close(c.float(), torch.from_numpy(product), atol=0.1, rtol=0.01)

    grid = (size // tile, size // tile)
    return Benchmark(f"a {size}x{size}x{size} float16 matrix product, tiles of 64x64x32",
                     lambda: matmul_kernel[grid](a, b, c, size, size, tile, tile, 32), check,
                     reference=lambda: np.matmul(left, right, out=product))  # fmt: skip


@triton.jit
def attention_kernel(q, k, v, out, scale, LENGTH, ROWS: tl.constexpr, KEYS: tl.constexpr, HEAD: tl.constexpr):
    """out = softmax(q k^T scale) v of one head, ROWS queries a program, KEYS keys at a time."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inner, keys = tl.arange(0, HEAD), tl.arange(0, KEYS)
    query = tl.load(q + rows[:, None] * HEAD + inner[None, :])
    highest = tl.full((ROWS,), float("-inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    accumulator = tl.zeros((ROWS, HEAD), tl.float32)
    for first in range(0, LENGTH, KEYS):
        key = tl.load(k + (first + keys)[None, :] * HEAD + inner[:, None])
        score = tl.dot(query, key) * (scale * 1.44269504)
        new = tl.maximum(highest, tl.max(score, 1))
        weight = tl.exp2(score - new[:, None])
        fade = tl.exp2(highest - new)
        total = total * fade + tl.sum(weight, 1)
        value = tl.load(v + (first + keys)[:, None] * HEAD + inner[None, :])
        accumulator = tl.dot(weight.to(tl.float16), value, accumulator * fade[:, None])
        highest = new
    tl.store(out + rows[:, None] * HEAD + inner[None, :], (accumulator / total[:, None]).to(tl.float16))


def attention(driver: emulator.EmulatedDriver) -> Benchmark:
    length, head = 256, 64
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(length, head, generator=generator).half() for _ in range(3))
    out = torch.empty(length, head, dtype=torch.float16)

    def check() -> None:
        wanted = torch.softmax(q.float() @ k.float().T * head**-0.5, 1) @ v.float()
        torch.testing.assert_close(out.float(), wanted, atol=0.01, rtol=0.01)

    return Benchmark("attention forward, one head of 64, 256 queries and keys, tiles of 64x64",
                     lambda: attention_kernel[(length // 64,)](q, k, v, out, head**-0.5, length, 64, 64, head),
                     check)  # fmt: skip


@triton.jit
def spin_kernel(flags, data, TURNS: tl.constexpr):
    """Two work-groups take turns: each waits for the other's flag, adds to the data, and raises its own."""
    me = tl.program_id(0)
    for turn in range(TURNS):
        wanted = 2 * turn + me
        while tl.atomic_add(flags, 0, sem="acquire", scope="gpu") != wanted:
            pass
        tl.store(data, tl.load(data, volatile=True) * 2 + me)
        tl.debug_barrier()
        tl.atomic_xchg(flags, wanted + 1, sem="release", scope="gpu")


def spin(driver: emulator.EmulatedDriver) -> Benchmark:
    flags, data = torch.zeros(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int64)

    def launch() -> None:
        flags.zero_()
        data.zero_()
        spin_kernel[(2,)](flags, data, 16)

    def check() -> None:
        assert data.item() == int("01" * 16, 2), "the work-groups did not take turns"

    return Benchmark("a spin-wait pair: two work-groups hand a flag to each other 32 times", launch, check)


def _heaps(driver: emulator.EmulatedDriver, ranks: int, elements: int, dtype: torch.dtype) -> list[torch.Tensor]:
    heaps = [torch.zeros(elements, dtype=dtype) for _ in range(ranks)]
    for rank, heap in enumerate(heaps):
        driver.register_memory(heap.data_ptr(), heap.nbytes, f"heap of rank {rank}", peer=rank or None)
    return heaps


BENCHMARKS: dict[str, Callable[[emulator.EmulatedDriver], Benchmark]] = {
    "put": put,
    "small-put": small_put,
    "all-gather": all_gather,
    "reduction": reduction,
    "matmul": matmul,
    "attention": attention,
    "spin": spin,
}
SLOW: dict[str, Callable[[emulator.EmulatedDriver], Benchmark]] = {"large-matmul": large_matmul}
"""Measured only when named."""
