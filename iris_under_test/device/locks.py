"""Locks in device memory: one int32 word each, 0 while it is free, of any device of the group.

    take(lock)
    ...                # what the lock guards, by all wavefronts (warps) of the program
    give_back(lock)

Who takes one must not wait for anything else before giving it back. Nobody is first in turn: whoever asks at the right
moment gets it. For Triton and Gluon kernels alike.
"""

import triton
import triton.language as tl

from .fences import POLL_LIMIT, observe, pause, poke, publish

__all__ = ["give_back", "take"]


@triton.jit
def take(lock):
    """Returns when ``lock`` was 0 and is now 1; what its last holder did is seen by the whole program then.

    No compare-and-swap: Triton 3.6 compiles every one for AMD GPUs at the scope of one device. And one exchange, at the
    head of the loop: around one before the loop and one at its end LLVM builds, where a program is a single wavefront,
    a loop of each lane's own in Triton 3.6's code, which the lanes without the atomic never leave.
    """
    polls = 0
    while tl.atomic_xchg(lock, 1, sem="relaxed", scope="sys") != 0:  # remote
        pause()
        polls += 1
        tl.device_assert(polls < POLL_LIMIT, "a lock has not been given back")
    observe()
    tl.debug_barrier()  # NVIDIA: what counts is the fence of the thread that has the atomic


@triton.jit
def give_back(lock):
    """Frees ``lock``: all that the program has read and written while it held it is done."""
    publish()
    poke(lock, 0)
