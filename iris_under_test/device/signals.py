"""Barriers between the programs (work-groups) of one kernel on several devices, without a host.

Each member of a group has a row of int32 words per program, one word per member: its *pad*. A program enters a turn by
writing the turn's number into its member's word of that program's row at every member; it leaves when every word of its
own row has that turn. So program p of each member waits only for program p of the others. A program polls only its own
row, so waiting causes no traffic on the links.

    turn = first_turn(pads, member, SIZE, program)
    signal(pads, member, SIZE, program, turn)     # my earlier accesses may be seen
    wait(pads, SIZE, program, turn)               # I see the earlier accesses of all members
    ...
    signal(pads, member, SIZE, program, turn + 1)
    wait(pads, SIZE, program, turn + 1)

The next kernel continues with the next turn: turns are stored on the devices, so a graph of such kernels can be
replayed. All members must launch the same number of programs, at most ``MAX_PROGRAMS``, and take the same number of
turns in each; the kernels of one group follow one another on each rank. Two programs of one kernel need not be resident
at the same time: of the unfinished programs, the one with the lowest number is running on every member, or has finished
there. A group has at most ``MAX_MEMBERS`` members.

Turns may wrap: of two numbers, the later one is less than 2^31 ahead of the other. No member is ever more than one turn
ahead of another.

All values are scalars, so the functions serve Triton and Gluon kernels alike. ``pads``: pointer to int64, the SIZE
addresses of each member's first row as mapped in this process, followed in memory by this member's own rows.
``member``: the caller's place among the members.

Example: SIZE 2, both words of program 0 are 6 on both members: both write 7 into both rows, and leave when both words
of their own row are at least 7.
"""

import triton
import triton.language as tl

from .targets import intrinsics

__all__ = ["MAX_MEMBERS", "MAX_PROGRAMS", "behind", "first_turn", "signal", "wait"]

MAX_PROGRAMS = tl.constexpr(1024)
"""Largest number of programs in a kernel that signals; row MAX_PROGRAMS of a pad belongs to ``Iris.device_barrier``."""
MAX_MEMBERS = tl.constexpr(32)
"""Largest number of members of a group: one warp polls for all of them, lane i for member i."""


@triton.jit
def behind(member, step, SIZE: tl.constexpr):
    """Return the member that is ``step`` places after ``member``, round the group; neither argument may be negative.

    Example: of 4 members, 2 places after member 3 is member 1.
    """
    # Unsigned: a remainder that may be negative takes five instructions, and this is computed for each peer.
    return ((member + step).to(tl.uint32) % SIZE).to(tl.int32)


@triton.jit
def first_turn(pads, member, SIZE: tl.constexpr, program):
    """Return the turn after the last one in this program's row. Call it once per kernel, before any ``signal``."""
    return tl.load(_own_row(pads, SIZE, program) + member) + 1


@triton.jit
def signal(pads, member, SIZE: tl.constexpr, program, turn):
    """Signal to every member that this program has reached ``turn``.

    All earlier accesses of any wavefront of the program, and of earlier kernels in its stream, are visible to a program
    that has waited for the turn.
    """
    intrinsics().signal_turn(pads, member, SIZE, program, turn)


@triton.jit
def wait(pads, SIZE: tl.constexpr, program, turn):
    """Wait until the same program of every member has signalled ``turn``; their earlier accesses are then visible."""
    intrinsics().await_turn(_own_row(pads, SIZE, program), SIZE, turn, "a member of the group has not arrived")


@triton.jit
def _own_row(pads, SIZE: tl.constexpr, program):
    """Return the program's row. This member's rows lie directly after the table, so that finding them takes no load."""
    return (pads + SIZE).to(tl.pointer_type(tl.int32), bitcast=True) + program * SIZE
