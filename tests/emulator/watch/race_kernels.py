"""Kernels for modes ``race`` and ``trace``, correct and with planted bugs: a constexpr selects the bug.

Flags are polled by adding 0, since Triton 3.6's compare-and-swap ignores the scope that it is passed; each release has
a barrier before it, since only later versions insert one there.
"""

import triton
import triton.language as tl


@triton.jit
def put(source, inbox, flag, BLOCK: tl.constexpr, SEM: tl.constexpr, SCOPE: tl.constexpr, PLAIN: tl.constexpr):
    """Store a block to another rank or work-group and raise its flag."""
    pid = tl.program_id(0)
    offsets = pid * BLOCK + tl.arange(0, BLOCK)
    tl.store(inbox + offsets, tl.load(source + offsets))
    tl.debug_barrier()
    if PLAIN:
        tl.store(flag + pid, 1)
    else:
        tl.atomic_xchg(flag + pid, 1, sem=SEM, scope=SCOPE)


@triton.jit
def get(inbox, flag, out, BLOCK: tl.constexpr, SEM: tl.constexpr, SCOPE: tl.constexpr):
    """Wait for the flag and copy the block."""
    pid = tl.program_id(0)
    offsets = pid * BLOCK + tl.arange(0, BLOCK)
    while tl.atomic_add(flag + pid, 0, sem=SEM, scope=SCOPE) != 1:
        pass
    tl.store(out + offsets, tl.load(inbox + offsets))


@triton.jit
def count_under_lock(lock, counter, BLOCK: tl.constexpr, SEM: tl.constexpr, SCOPE: tl.constexpr, EARLY: tl.constexpr):
    """Each work-group adds 1 to a block of counters, under one lock."""
    offsets = tl.arange(0, BLOCK)
    while tl.atomic_cas(lock, 0, 1, sem="acquire", scope=SCOPE) != 0:
        pass
    if EARLY:
        tl.atomic_xchg(lock, 0, sem=SEM, scope=SCOPE)
    tl.store(counter + offsets, tl.load(counter + offsets) + 1)
    tl.debug_barrier()
    if not EARLY:
        tl.atomic_xchg(lock, 0, sem=SEM, scope=SCOPE)


@triton.jit
def sum_by_last(values, partial, ticket, out, BLOCK: tl.constexpr, SEM: tl.constexpr):
    """A work-group sums its block; the last one to finish sums the sums."""
    pid, groups = tl.program_id(0), tl.num_programs(0)
    tl.store(partial + pid, tl.sum(tl.load(values + pid * BLOCK + tl.arange(0, BLOCK))))
    tl.debug_barrier()
    if tl.atomic_add(ticket, 1, sem=SEM, scope="gpu") == groups - 1:
        each = tl.arange(0, 16)
        tl.store(out, tl.sum(tl.load(partial + each, mask=each < groups, other=0)))
        tl.store(ticket, 0)


@triton.jit
def ring_step(mine, next_inbox, next_flag, inbox, flag, out, rank, RANKS: tl.constexpr, BLOCK: tl.constexpr):
    """All-gather: pass the rank's own block on to the next rank, then each block received from the previous one."""
    offsets = tl.arange(0, BLOCK)
    block = tl.load(mine + offsets)
    tl.store(out + rank * BLOCK + offsets, block)
    for step in range(RANKS - 1):
        tl.store(next_inbox + step * BLOCK + offsets, block)
        tl.debug_barrier()
        tl.atomic_xchg(next_flag + step, 1, sem="release", scope="sys")
        while tl.atomic_add(flag + step, 0, sem="acquire", scope="sys") != 1:
            pass
        block = tl.load(inbox + step * BLOCK + offsets)
        origin = (rank + RANKS - 1 - step) % RANKS
        tl.store(out + origin * BLOCK + offsets, block)


@triton.jit
def blocks(out, n, BLOCK: tl.constexpr, OVERLAP: tl.constexpr):
    """A work-group writes its block, and OVERLAP elements of its neighbour's."""
    offsets = tl.arange(0, 2 * BLOCK)
    at = tl.program_id(0) * BLOCK + offsets
    tl.store(out + at, at, mask=(offsets < BLOCK + OVERLAP) & (at < n))


@triton.jit
def same_element(out):
    tl.store(out, tl.program_id(0))


@triton.jit
def stream(source, buffers, flag, ack, ROUNDS: tl.constexpr, BLOCK: tl.constexpr, WAITS: tl.constexpr):
    """Send blocks through two buffers in turn, each with its own flag.

    Before a buffer is reused, its reader has acknowledged it.
    """
    offsets = tl.arange(0, BLOCK)
    for i in range(ROUNDS):
        if WAITS:
            while tl.atomic_add(ack, 0, sem="acquire", scope="sys") < i - 1:
                pass
        tl.store(buffers + i % 2 * BLOCK + offsets, tl.load(source + i * BLOCK + offsets))
        tl.debug_barrier()
        tl.atomic_xchg(flag + i, 1, sem="release", scope="sys")


@triton.jit
def drain(buffers, flag, ack, out, ROUNDS: tl.constexpr, BLOCK: tl.constexpr):
    """Receive the blocks of ``stream``."""
    offsets = tl.arange(0, BLOCK)
    for i in range(ROUNDS):
        while tl.atomic_add(flag + i, 0, sem="acquire", scope="sys") != 1:
            pass
        tl.store(out + i * BLOCK + offsets, tl.load(buffers + i % 2 * BLOCK + offsets))
        tl.debug_barrier()
        tl.atomic_xchg(ack, i + 1, sem="release", scope="sys")


@triton.jit
def largest(out, BLOCK: tl.constexpr):
    """LLVM expands a maximum at system scope to a compare-and-swap loop whose first guess is a plain load."""
    tl.atomic_max(out + tl.arange(0, BLOCK), tl.program_id(0), scope="sys")


@triton.jit
def peek(out, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.atomic_max(out + offsets, tl.load(out + offsets) + 1, scope="sys")


@triton.jit
def count_up(out):
    """Work-group i stores out[0] + 1 to out[i]. The load is an s_load, because the kernel stores nothing before it."""
    before = tl.load(out)
    tl.store(out + tl.program_id(0), before + 1)


@triton.jit
def add_to_every_second(out, first, value, BLOCK: tl.constexpr):
    """For elements of 2 bytes, LLVM expands the addition to a compare-and-swap of the 4 bytes around each."""
    at = first + 2 * tl.arange(0, BLOCK)
    tl.atomic_add(out + at, tl.full((BLOCK,), value, tl.float32).to(out.dtype.element_ty), scope="sys")


@triton.jit
def store_every_second(out, first, BLOCK: tl.constexpr):
    tl.store(out + first + 2 * tl.arange(0, BLOCK), 2.0)


@triton.jit
def swap_lower_halves(out, old, mask, BLOCK: tl.constexpr):
    """Swap elements of 4 bytes, once, if they are as expected."""
    at = tl.arange(0, BLOCK)
    expected = tl.load(old + at)
    tl.atomic_cas(out + at, expected, (expected & mask) | at, scope="sys")
