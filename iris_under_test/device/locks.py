"""Locks in device memory: one int32 word each, 0 if free, shared by the devices of a group.

    acquire(lock)
    ...                # accesses that the lock protects, by all wavefronts (warps) of the program
    release(lock)

A program that holds a lock must not wait for anything else before it releases it. Locks are not fair: any waiting
program may get a free lock first. For Triton and Gluon kernels alike.
"""

import triton
import triton.language as tl

from .bounds import bound
from .fences import observe, pause, poke, publish

__all__ = ["acquire", "release"]


@triton.jit
def acquire(lock):
    """Wait until ``lock`` is 0 and set it to 1; the whole program then sees the accesses of the last holder.

    No compare-and-swap: Triton 3.6 compiles every one for AMD GPUs at the scope of one device. And only one exchange,
    at the head of the loop: with one before the loop and one at its end, and a program of a single wavefront, LLVM
    builds from Triton 3.6's code a loop per lane, which the lanes without the atomic never leave.
    """
    polls = 0
    while tl.atomic_xchg(lock, 1, sem="relaxed", scope="sys") != 0:
        pause()
        polls += 1
        bound(polls, "a lock has not been released")
    observe()
    tl.debug_barrier()  # NVIDIA: what counts is the fence of the thread that has the atomic


@triton.jit
def release(lock):
    """Release ``lock``, after all reads and writes that the program made while it held the lock have completed."""
    publish()
    poke(lock, 0)
