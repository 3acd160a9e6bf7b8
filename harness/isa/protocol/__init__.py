"""Waits of compiled kernels for each other, and announcements of data: spin loops, flags, and fences between them.

    program = read(listing)                                # amdgcn or PTX
    for spin in spins(program): print(spin.polls, spin.sleeps)
    unreleased(program, flags, "sys")                      # flags that earlier stores may overtake
    unacquired(program, polls, "sys")                      # loads that may be older than the flag
    unwaited(program)                                      # registers used before their load is complete

A *spin* is a loop in which every access to global memory decides whether the loop goes on. A *poll* is such an access.
A *flag* is a word by which a program announces to another one that something is complete. Both are found in the
instructions, so the code may be any library's.
"""

from harness.isa.protocol.atomics import Unordered, unordered
from harness.isa.protocol.missing import MISSING
from harness.isa.protocol.order import END, START, Overtaken, unacquired, unreleased
from harness.isa.protocol.program import Program, Scope, Step, covers
from harness.isa.protocol.reading import read
from harness.isa.protocol.spins import Spin, retries, spins
from harness.isa.protocol.waits import Unwaited, unwaited

__all__ = [
    "END",
    "MISSING",
    "START",
    "Overtaken",
    "Program",
    "Scope",
    "Spin",
    "Step",
    "Unordered",
    "Unwaited",
    "covers",
    "read",
    "retries",
    "spins",
    "unacquired",
    "unordered",
    "unreleased",
    "unwaited",
]
