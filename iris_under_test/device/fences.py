"""What a program does around a flag that programs of other devices see.

    store(payload); publish(); poke(flag, 1)     # the one side
    await_count(flag, 1); load(payload)          # the other

A program's wavefronts (warps) all take part in its payload, so all take part in this. ``poke`` is done by one of them
when all have published. Where ``await_count`` does not fit, ``peek`` and ``observe`` are done by each for itself.
Triton's own release and acquire are done by the wavefront that has the atomic, and nothing says that they hold for its
siblings: see docs/memory-model.md. Nor do they hold for the wavefront itself with Triton 3.6, which does not wait for
the write-back of a release (AMD GPUs).

For Triton and Gluon kernels alike: all values are scalars.
"""

import triton
import triton.language as tl
from triton.language.target_info import is_hip

__all__ = ["POLL_LIMIT", "await_count", "observe", "pause", "peek", "poke", "publish"]

POLL_LIMIT = tl.constexpr(10**9)
"""How often a flag is looked at before a debug build stops the kernel."""


@triton.jit
def publish():
    """All that any wavefront of the program has read and written is done, and visible to whoever sees the ``poke`` that
    follows.

    AMD: each wavefront waits until its own stores have reached memory, then all meet: an s_barrier waits for no store,
    and a write-back covers the own wavefront's (LLVM, memory model of gfx942). NVIDIA: all meet, then the first warp,
    which pokes, fences: that is cumulative over the barrier, and fences of all warps would wait for each other.
    """
    if is_hip():
        tl.inline_asm_elementwise(
            "buffer_wbl2 sc0 sc1\ns_waitcnt vmcnt(0) lgkmcnt(0)\nv_mov_b32 $0, 0",
            "=v,~{memory}", [], tl.int32, is_pure=False, pack=1,
        )  # fmt: skip
        tl.debug_barrier()
    else:
        tl.debug_barrier()
        tl.inline_asm_elementwise(
            """{
            .reg .pred first; .reg .u32 lane;
            mov.u32 $0, 0;
            mov.u32 lane, %tid.x;
            setp.lt.u32 first, lane, 32;
            @first fence.acq_rel.sys;
            }""",
            "=&r,~{memory}", [], tl.int32, is_pure=False, pack=1,
        )  # fmt: skip


@triton.jit
def poke(word, value):
    """Writes ``value`` into ``word``, which may be another device's. Relaxed: ``publish`` comes before."""
    tl.atomic_xchg(word, value, sem="relaxed", scope="sys")  # remote


@triton.jit
def await_count(word, count):
    """Returns when the int32 ``word`` is at least ``count``, or less than 2^31 beyond it if counts wrap. What was
    published before is visible to all wavefronts then, and all have met: the word may be changed."""
    if is_hip():
        polls = 0
        while peek(word) - count < 0:
            pause()
            polls += 1
            tl.device_assert(polls < POLL_LIMIT, "what another device should have told has not come")
        observe()
    else:
        # One thread polls and fences, the others wait for it.
        tl.inline_asm_elementwise(
            """{
            .reg .pred other, early; .reg .u32 lane, seen;
            mov.u32 $0, 0;
            mov.u32 lane, %tid.x;
            setp.ne.u32 other, lane, 0;
            @other bra done;
            again:
            ld.relaxed.sys.global.u32 seen, [$1];
            sub.u32 seen, seen, $2;
            setp.lt.s32 early, seen, 0;
            @early bra again;
            fence.acq_rel.sys;
            done:
            }""",
            "=&r,l,r,~{memory}", [word.to(tl.int64), count], tl.int32, is_pure=False, pack=1,
        )  # fmt: skip
    tl.debug_barrier()


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
