"""What a program does around a flag that programs of other devices see.

    store(payload); publish(); poke(flag, 1)                          # the one side
    while peek(flag) != 1: pause()                                    # the other
    observe(); load(payload)

A program's wavefronts (warps) all take part in its payload, so all take part in this. ``poke`` is done by one of them
when all have published; ``peek`` and ``observe`` are done by each for itself. Triton's own release and acquire are done
by the wavefront that has the atomic, and nothing says that they hold for its siblings: see docs/memory-model.md. Nor do
they hold for the wavefront itself with Triton 3.6, which does not wait for the write-back of a release (AMD GPUs).

For Triton and Gluon kernels alike: all values are scalars.
"""

import triton
import triton.language as tl
from triton.language.target_info import is_hip

__all__ = ["observe", "pause", "peek", "poke", "publish"]


@triton.jit
def publish():
    """All that any wavefront of the program has read and written is done, and visible to every device.

    Each wavefront waits until its own stores have reached memory, then all meet. AMD: an s_barrier waits for no store,
    and a write-back covers the own wavefront's (LLVM, memory model of gfx942). NVIDIA: the fence is each thread's own.
    """
    if is_hip():
        tl.inline_asm_elementwise(
            "buffer_wbl2 sc0 sc1\ns_waitcnt vmcnt(0) lgkmcnt(0)\nv_mov_b32 $0, 0",
            "=v,~{memory}", [], tl.int32, is_pure=False, pack=1,
        )  # fmt: skip
    else:
        tl.inline_asm_elementwise(
            "fence.acq_rel.sys; mov.u32 $0, 0;", "=r,~{memory}", [], tl.int32, is_pure=False, pack=1
        )
    tl.debug_barrier()


@triton.jit
def poke(word, value):
    """Writes ``value`` into ``word``, which may be another device's. Relaxed: ``publish`` comes before."""
    tl.atomic_xchg(word, value, sem="relaxed", scope="sys")  # remote


@triton.jit
def peek(word):
    """The value of an int32 ``word`` as memory has it now, whatever a cache says. Relaxed: ``observe`` comes behind."""
    if is_hip():
        # Not tl.load(volatile=True): Triton 3.6 makes a plain load of it, which a cache may answer for ever.
        seen = tl.inline_asm_elementwise(
            "global_load_dword $0, $1, off sc0 sc1\ns_waitcnt vmcnt(0)",
            "=v,v,~{memory}", [word.to(tl.int64)], tl.int32, is_pure=False, pack=1,
        )  # fmt: skip
    else:
        seen = tl.load(word, volatile=True)
    return seen


@triton.jit
def observe():
    """What was published before the flag that this wavefront has seen is what its loads find from now on."""
    if is_hip():
        tl.inline_asm_elementwise(
            "buffer_inv sc0 sc1\nv_mov_b32 $0, 0", "=v,~{memory}", [], tl.int32, is_pure=False, pack=1
        )
    else:
        tl.inline_asm_elementwise(
            "fence.acq_rel.sys; mov.u32 $0, 0;", "=r,~{memory}", [], tl.int32, is_pure=False, pack=1
        )


@triton.jit
def pause():
    """64 clocks without a poll: the link and the wavefronts beside this one have better things to do. AMD only."""
    if is_hip():
        tl.inline_asm_elementwise("s_sleep 1\nv_mov_b32 $0, 0", "=v", [], tl.int32, is_pure=False, pack=1)
