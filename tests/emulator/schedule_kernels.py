"""Kernels whose wavefronts wait for each other: in the work-group, in the grid, and across processes."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def locked_increments(lock, counter, ROUNDS: gl.constexpr):
    """Each work-group takes the lock ROUNDS times and increments the counter.

    Example: 3 work-groups, ROUNDS 2: the counter ends at 6 and the lock at 0.
    """
    for _ in range(ROUNDS):
        while gl.atomic_cas(lock, 0, 1, sem="acquire", scope="gpu") != 0:
            pass
        gl.store(counter, gl.load(counter, volatile=True) + 1)
        gl.atomic_xchg(lock, 0, sem="release", scope="gpu")


@gluon.jit
def produce_consume(data, flags, out, BLOCK: gl.constexpr, WARPS: gl.constexpr, PRODUCERS_FIRST: gl.constexpr):
    """Half of the work-groups write a block and raise its flag; the others wait for the flag and double the block.

    Example: BLOCK 2, 4 work-groups: data [0, 1, 1000, 1001], out [0, 2, 2000, 2002].
    """
    half = gl.num_programs(0) // 2
    pid = gl.program_id(0)
    block = pid % half
    offsets = block * BLOCK + gl.arange(0, BLOCK, layout=gl.BlockedLayout([1], [64], [WARPS], [0]))
    if (pid < half) == PRODUCERS_FIRST:
        gl.store(data + offsets, block * 1000 + offsets - block * BLOCK)
        gl.atomic_xchg(flags + block, 1, sem="release", scope="sys")
    else:
        while gl.atomic_cas(flags + block, 1, 0, sem="acquire", scope="sys") == 0:
            pass
        gl.store(out + offsets, gl.load(data + offsets) * 2)


@gluon.jit
def ping_pong(word, ME: gl.constexpr, ROUNDS: gl.constexpr):
    """Count ``word`` up from 0: two callers (ME 0 and 1) take turns, ROUNDS times each."""
    for i in range(ROUNDS):
        mine = 2 * i + ME
        while gl.atomic_cas(word, mine, mine, sem="acquire", scope="sys") != mine:
            pass
        gl.atomic_xchg(word, mine + 1, sem="release", scope="sys")
