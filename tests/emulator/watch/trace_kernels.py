"""Programs that mode ``trace`` interprets and executes natively. Each launches kernels, and returns their results."""

import torch
import triton
import triton.language as tl

from tests.emulator import memory_kernels, schedule_kernels
from tests.emulator.watch import race_kernels

BLOCK = 256


@triton.jit
def scatter(table, source, n, PEERS: tl.constexpr, BLOCK: tl.constexpr):
    """Element i goes to heap i % PEERS; only the first n elements are moved."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    heaps = tl.load(table + at % PEERS).to(tl.pointer_type(tl.float32))
    tl.store(heaps + at, tl.load(source + at, mask=at < n), mask=at < n)


@triton.jit
def shuffled(source, out, n, BLOCK: tl.constexpr):
    """Element i goes to place 7 * i % n, so that the lanes of a store are not neighbours."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at * 7 % n, tl.load(source + at, mask=at < n), mask=at < n)


@triton.jit
def turn_around(data, BLOCK: tl.constexpr):
    """Each work-group writes its block, and reads what its other wavefronts have written."""
    at, first = tl.arange(0, BLOCK), tl.program_id(0) * BLOCK
    tl.store(data + first + at, at)
    tl.debug_barrier()
    mirrored = tl.load(data + first + BLOCK - 1 - at)
    tl.debug_barrier()
    tl.store(data + first + at, mirrored + 1)


@triton.jit
def long_loop(source, out, n, TURNS: tl.constexpr, BLOCK: tl.constexpr):
    """Each program sums TURNS blocks: more events than a queue has room for. Wavefronts leave the loop one by one."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    sums = tl.zeros((BLOCK,), tl.float32)
    for turn in range(tl.program_id(0) % 3, TURNS):
        sums += tl.load(source + (at + turn * 64) % n)
    tl.store(out + at, sums)


def puts(driver, launches=1):
    memory = torch.zeros(16 * BLOCK)
    heaps = memory.split(4 * BLOCK)
    for peer, heap in enumerate(heaps[:3]):
        driver.register_memory(heap.data_ptr(), heap.nbytes, f"heap {peer}", peer)
    table, source = torch.tensor([heap.data_ptr() for heap in heaps[:3]]), heaps[3].copy_(torch.arange(4.0 * BLOCK))
    for _ in range(launches):
        scatter[(4,)](table, source, 3 * BLOCK + 77, 3, BLOCK)
    for heap in heaps[:3]:
        driver.unregister_memory(heap.data_ptr())
    return memory.tolist()


def shuffles(driver, launches=1):
    source, out = torch.arange(1000.0), torch.zeros(1000)
    for _ in range(launches):
        shuffled[(4,)](source, out, 1000, BLOCK)
    return out.tolist()


def turns(driver, launches=1):
    data = torch.zeros(2048, dtype=torch.int32)
    for _ in range(launches):
        turn_around[(8,)](data, BLOCK, num_warps=2)
    return data.tolist()


def loops(driver, launches=1):
    source, out = torch.arange(1000.0) % 13, torch.zeros(6 * 64)
    for _ in range(launches):
        long_loop[(6,)](source, out, 1000, 300, 64, num_warps=1)
    return out.tolist()


def locks(driver, launches=1):
    lock, counter = torch.zeros(1, dtype=torch.int32), torch.zeros(128, dtype=torch.int32)
    for _ in range(launches):
        race_kernels.count_under_lock[(5,)](lock, counter, 128, "release", "gpu", False, num_warps=2)
    return counter.tolist()


def produces(driver, launches=1):
    data, out, flags = (torch.zeros(n, dtype=torch.int32) for n in (512, 512, 4))
    for _ in range(launches):
        schedule_kernels.produce_consume[(8,)](data, flags, out, 128, 2, False, num_warps=2)
    return data.tolist(), out.tolist()


def multiplies(driver, launches=1):
    """Matrix products by LDS, with barriers and bank conflicts."""
    a, b = torch.arange(64 * 64).view(64, 64).half() % 5, torch.arange(64 * 64).view(64, 64).half() % 7
    c = torch.empty(64, 64)
    for _ in range(launches):
        memory_kernels.pipelined[(1,)](a, b, c, 64, 64, 64, 64, num_warps=4)
    return c.tolist()


def sums(driver, launches=1):
    """The last work-group sums what the others have stored: atomics, and values that pass between wavefronts."""
    values, out = torch.arange(6 * 128, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    partial, ticket = torch.zeros(6, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    for _ in range(launches):
        ticket.zero_()
        race_kernels.sum_by_last[(6,)](values, partial, ticket, out, 128, "acq_rel", num_warps=2)
    return out.item()


KERNELS = (puts, shuffles, turns, loops, locks, produces, multiplies, sums)
