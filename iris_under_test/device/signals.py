"""Barriers between the programs (work-groups) of one kernel on several devices, without a host.

Each member of a group has a row of int32 words per program, one word per member: its *pad*. A program enters a turn by
writing the turn's number into its member's word of that program's row at every member; it leaves when every word of its
own row has that turn. So program p of each member waits for program p of the others, and for nobody else. Only the own
row is polled, so that waiting crosses no link.

    turn = first_turn(pads, member, SIZE, program)
    signal(pads, member, SIZE, program, turn)     # what I did before may be seen
    wait(pads, member, SIZE, program, turn)       # I see what all did before
    ...
    signal(pads, member, SIZE, program, turn + 1)
    wait(pads, member, SIZE, program, turn + 1)

The next kernel goes on where this one ended: the turns live on the devices, so a graph of such kernels can be replayed.
All members must launch the same number of programs, at most ``MOST_PROGRAMS``, and take the same number of turns in
each; the kernels of one group follow one another on each rank. No program need be resident together with another one of
its own kernel: of the unfinished programs the lowest is running on every member, or done there. A group has at most
``MOST_MEMBERS``.

Turns may wrap: of two numbers the later one is that which is less than 2^31 ahead. No member is ever more than one turn
ahead of another.

All values are scalars, so the functions serve Triton and Gluon kernels alike. ``pads``: pointer to int64, SIZE
addresses, of each member's first row as mapped here, with the own rows directly behind them. ``member``: the caller's
place among the members.

Example: SIZE 2, both words of program 0 are 6 on both: both write 7 into both rows, and leave when both words of their
own row are at least 7.
"""

import triton
import triton.language as tl
from triton.language.target_info import is_hip

from .fences import POLL_LIMIT, observe, pause, poke, publish

__all__ = ["MOST_MEMBERS", "MOST_PROGRAMS", "POLL_LIMIT", "behind", "first_turn", "signal", "wait"]

MOST_PROGRAMS = tl.constexpr(1024)
"""Programs of a kernel that signals; row MOST_PROGRAMS of a pad is ``Iris.device_barrier``'s."""
MOST_MEMBERS = tl.constexpr(32)
"""Members of a group: one warp polls for all of them, lane i for member i."""


@triton.jit
def behind(member, step, SIZE: tl.constexpr):
    """The member that is ``step`` places behind ``member``, round the group; neither is negative.

    Example: of 4 members, 2 places behind member 3 is member 1.
    """
    # Unsigned: a remainder that may be negative takes five instructions, and this is asked for each peer.
    return ((member + step).to(tl.uint32) % SIZE).to(tl.int32)


@triton.jit
def first_turn(pads, member, SIZE: tl.constexpr, program):
    """The turn after the last one that this program's row has seen. Once per kernel, before any ``signal``."""
    return tl.load(_own_row(pads, SIZE, program) + member) + 1


@triton.jit
def signal(pads, member, SIZE: tl.constexpr, program, turn):
    """Tells every member that this program has reached ``turn``. All that any wavefront of the program, or an earlier
    kernel in its stream, did before is visible to who has waited for the turn."""
    if is_hip():
        # Addresses first: AMD GPUs count loads and stores together, so a load behind a store would wait for its peer.
        first = _anew(member)
        own = (program * SIZE + member).to(tl.int64) * 4
        words = ()
        for step in tl.static_range(SIZE):
            words += ((tl.load(pads + behind(first, step, SIZE)) + own).to(tl.pointer_type(tl.int32)),)
        publish()
        for step in tl.static_range(SIZE):
            poke(words[step], turn)  # remote
    else:
        # Lane i of the first warp writes to member i, behind a fence of that warp's alone: it is cumulative over the
        # barrier of the block, and one for each warp would be waited for one after the other. The address first, while
        # the other warps are still at it.
        word = tl.inline_asm_elementwise(
            """{
            .reg .pred beyond; .reg .u32 lane;
            mov.u64 $0, 0;
            mov.u32 lane, %tid.x;
            setp.ge.u32 beyond, lane, $3;
            @beyond bra done;
            mad.wide.u32 $0, lane, 8, $1;
            ld.global.u64 $0, [$0];
            add.u64 $0, $0, $2;
            done:
            }""",
            "=&l,l,l,r",
            [pads.to(tl.int64), (program * SIZE + member).to(tl.int64) * 4, tl.cast(SIZE, tl.int32)],
            tl.int64,
            is_pure=False,
            pack=1,
        )
        tl.debug_barrier()
        tl.inline_asm_elementwise(
            """{
            .reg .pred beyond; .reg .u32 lane;
            mov.u32 $0, 0;
            mov.u32 lane, %tid.x;
            setp.ge.u32 beyond, lane, $3;
            @beyond bra done;
            fence.acq_rel.sys;
            st.relaxed.sys.global.u32 [$1], $2;
            done:
            }""",
            "=&r,l,r,r,~{memory}",
            [word, turn, tl.cast(SIZE, tl.int32)],
            tl.int32,
            is_pure=False,
            pack=1,
        )


@triton.jit
def wait(pads, member, SIZE: tl.constexpr, program, turn):
    """Returns when every member's same program has signalled ``turn``; what they did before is visible then."""
    row = _own_row(pads, SIZE, program)
    if is_hip():
        late, polls = _someone_is_late(row, SIZE, turn), 0
        while late != 0:
            pause()
            polls += 1
            tl.device_assert(polls < POLL_LIMIT, "a member of the group has not arrived")
            late = _someone_is_late(row, SIZE, turn)
        observe()
    else:
        # Lane i of the first warp waits for member i; the others wait for that warp.
        tl.inline_asm_elementwise(
            """{
            .reg .pred beyond, late; .reg .u32 lane, seen; .reg .u64 word;
            mov.u32 $0, 0;
            mov.u32 lane, %tid.x;
            setp.ge.u32 beyond, lane, $3;
            @beyond bra done;
            mad.wide.u32 word, lane, 4, $1;
            again:
            ld.acquire.sys.global.u32 seen, [word];
            sub.u32 seen, seen, $2;
            setp.lt.s32 late, seen, 0;
            @late bra again;
            done:
            }""",
            "=&r,l,r,r,~{memory}",
            [row.to(tl.int64), turn, tl.cast(SIZE, tl.int32)],
            tl.int32,
            is_pure=False,
            pack=1,
        )
        tl.debug_barrier()


@triton.jit
def _own_row(pads, SIZE: tl.constexpr, program):
    """The own words lie directly behind the table, so that finding them takes no load."""
    return (pads + SIZE).to(tl.pointer_type(tl.int32), bitcast=True) + program * SIZE


@triton.jit
def _anew(value):
    """``value``, of which the compiler knows nothing: so that what is computed from it is not kept from one signal to
    the next, in registers that the kernel between them needs. AMD."""
    return tl.inline_asm_elementwise("", "=s,0", [value], tl.int32, is_pure=False, pack=1)


@triton.jit
def _someone_is_late(row, SIZE: tl.constexpr, turn):
    """1 if a word of the row has not that turn yet, else 0, as memory has them now. AMD: lane i of each wavefront looks
    at word i, so that all words cost one round trip to memory; lanes beyond the last word look at that.

    The s_nop: an address that a v_readfirstlane has put into SGPRs may be used by a load 5 wait states later (LLVM,
    GCNHazardRecognizer), and within inline assembly nobody else sees to it.
    """
    _, late = tl.inline_asm_elementwise(
        """s_nop 4
        v_mbcnt_lo_u32_b32 $0, -1, 0
        v_mbcnt_hi_u32_b32 $0, -1, $0
        v_min_u32 $0, $3, $0
        v_lshlrev_b32 $0, 2, $0
        global_load_dword $0, $0, $2 sc0 sc1
        s_waitcnt vmcnt(0)
        v_sub_u32 $0, $0, $4
        v_cmp_gt_i32 vcc, 0, $0
        s_cmp_lg_u64 vcc, 0
        s_cselect_b32 $1, 1, 0""",
        "=&v,=s,s,s,s,~{vcc},~{scc},~{memory}",
        [row.to(tl.int64), tl.cast(SIZE - 1, tl.int32), turn],
        (tl.int32, tl.int32),
        is_pure=False,
        pack=1,
    )
    return late
