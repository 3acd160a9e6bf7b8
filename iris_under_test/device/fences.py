"""Operations around a flag that programs of other devices see.

    store(payload); publish(); poke(flag, 1)     # the sending side
    await_count(flag, 1); load(payload)          # the receiving side

All wavefronts (warps) of a program access its payload, so all of them call these functions. ``publish`` is a barrier of
the program's wavefronts; after it one of them does the ``poke``. Where ``await_count`` does not fit, each wavefront
calls ``peek`` and ``observe`` for itself.

Triton's own release and acquire are executed by the wavefront that has the atomic, and nothing guarantees that they
hold for the program's other wavefronts: see docs/memory-model.md. With Triton 3.6 they do not even hold for that
wavefront on AMD GPUs, because a release does not wait for its write-back.

For Triton and Gluon kernels alike: all values are scalars.
"""

import triton
import triton.language as tl

from .targets import intrinsics

__all__ = ["await_count", "observe", "pause", "peek", "poke", "publish"]

_A_COUNT = tl.constexpr("a count of another device")  # Triton 3.6 makes no constant of a default that is text


@triton.jit
def publish():
    """Release fence and barrier: complete all reads and writes that any wavefront of the program has made so far.

    They are visible to every reader that sees the ``poke`` that follows.
    """
    intrinsics().publish()


@triton.jit
def poke(word, value):
    """Write ``value`` into ``word``, which may be another device's. Relaxed: call ``publish`` before it."""
    tl.atomic_xchg(word, value, sem="relaxed", scope="sys")


@triton.jit
def await_count(word, count, awaited: tl.constexpr = _A_COUNT):
    """Wait until the int32 ``word`` is at least ``count`` (or less than 2^31 beyond it, if counts wrap).

    After the wait, all wavefronts see everything that was published before, and all have passed a barrier, so the word
    may be changed. ``awaited``: the event waited for, as text for the message of a debug build, in which waits are
    bounded.
    """
    intrinsics().await_count(word, count, awaited)
    tl.debug_barrier()


@triton.jit
def peek(word):
    """Return the value of an int32 ``word`` in memory, whatever a cache holds. Relaxed: call ``observe`` after it."""
    return intrinsics().peek(word)


@triton.jit
def observe():
    """Acquire fence: later loads see everything that was published before the flag that this wavefront just read."""
    intrinsics().observe()


@triton.jit
def pause():
    """Sleep briefly between polls, to leave the link and the compute unit to others. AMD GPUs only; elsewhere it does
    nothing.
    """
    intrinsics().pause()
