"""State of mode ``race`` for native functions: launches, wavefronts, and the log of what they do.

All data are structures in memory, at addresses passed as int64; their fields are byte offsets. ``rs`` is the address of
the ``STATE_BYTES`` of one run, which ``watch.race_log`` sets up. Structures are allocated as in ``weak_state``, whose
``state`` the run has too.

Native code judges an access by ``race_shadow``, which is never wrong when it finds no conflict. Otherwise Python
executes the access, after it has judged all earlier events. They are in the log, in the order in which they happened.
"""

from __future__ import annotations

from harness.emulator.native import record
from harness.emulator.native import weak_state as ws
from harness.emulator.native.raw import call, clear, copy, get64, put64
from harness.emulator.native.weak_state import allocate, helper

# The state: that of ``weak_state``; the log, from its next word to its end, int64 each; the table of pages, its number
# of entries less 1; cells: the number of the first one of this run, the next one, the address of the first one, and the
# number after the last that fits; whether all accesses are recorded only, and not judged; the address of a table of the
# threads by their numbers, 0 for one that has done nothing; that of a table of pairs of accesses, a load and a store,
# which Python has reported as those of copies, and their number.
(MODEL, LOG_AT, LOG_END, PAGES, PAGES_MASK, FIRST_CELL, NEXT_CELL, CELLS, CELLS_END, RECORDS, THREADS) = range(0, 88, 8)
COPIES, COPIES_COUNT = 88, 96
STATE_BYTES = 104

# Requests to the service ``weak_state.MORE``, besides memory. LOG: the log is full. PAGE: a page has no shadow yet; the
# argument is its number. CELL: no memory is left for another cell.
LOG, PAGE, CELL = 4, 5, 6

# A launch: addresses of its table of allocations and their number, the state, its key, rank, wavefronts of a
# work-group; whether Python executes its accesses, all or those at system scope; address and
# bytes of the kernel's arguments; the number of its first thread, and its wavefronts; orders, five clocks each (see
# ``race_order``): what its wavefronts know from the beginning, and what the rank's next launch will know.
(STARTS, ENDS, ALLOCATIONS, RS, KEY, RANK, PER_GROUP) = range(0, 56, 8)
(BY_PYTHON, SYSTEM_BY_PYTHON, ARGUMENTS, ARGUMENTS_BYTES, FIRST_THREAD, WAVES) = range(56, 104, 8)
BEFORE, AFTER = 104, 144
LAUNCH_FIELDS = 23

# A wavefront: its launch, its work-group, its number; operations in flight, the first, the last and how many; its last
# access that is issued, complete, written back to the agent and to the system; orders: as ``View`` in
# ``watch.race_order``.
(OF_LAUNCH, GROUP, THREAD_NUMBER, FLIGHT_FIRST, FLIGHT_LAST, FLIGHT_COUNT, REACHED) = range(0, 56, 8)
KNOWN, SHARED, SEEN_AGENT, SEEN_SYSTEM = 80, 120, 160, 200
THREAD_BYTES = 240

# Events in the log; the first word is the event, in its upper 32 bits the launch's number. ACCESS is followed by the
# wavefront with the number of pieces in its upper 32 bits, the address of its description, its lanes as a mask, those
# that swap, and the pieces: see ``race_steps``.
(CREATE, BARRIER, END, FINISH, START, WAIT, WRITE_BACK, INVALIDATE, ACCESS, SCALAR) = range(10)
MOST_WORDS = 5 + 65
"""Words of the longest event."""

WAVE, WORKGROUP, AGENT, SYSTEM = range(4)
"""Scopes, and distances of two wavefronts."""


@helper
def thread_of(wave):
    """Return the thread of a wavefront."""
    thread = get64(wave + record.THREAD)
    if thread == 0:
        launch = get64(wave + record.LAUNCH)
        thread = allocate(get64(wave + record.MODEL), THREAD_BYTES)
        clear(thread, THREAD_BYTES)
        put64(thread + OF_LAUNCH, launch)
        put64(thread + GROUP, get64(wave + record.NUMBER) // get64(launch + PER_GROUP))
        number = get64(launch + FIRST_THREAD) + get64(wave + record.NUMBER)
        put64(thread + THREAD_NUMBER, number)
        copy(thread + KNOWN, launch + BEFORE, 40)
        copy(thread + SHARED, launch + BEFORE, 40)
        put64(get64(get64(launch + RS) + THREADS) + 8 * number, thread)
        put64(wave + record.THREAD, thread)
    return thread


@helper
def distance(a, b):
    """Return how far two threads are from each other."""
    one, other = get64(a + OF_LAUNCH), get64(b + OF_LAUNCH)
    if one == other and get64(a + GROUP) == get64(b + GROUP):
        return WORKGROUP
    return AGENT if get64(one + RANK) == get64(other + RANK) else SYSTEM


@helper
def room(rs):
    """Return the address of the next word of the log, which has room for another event."""
    if get64(rs + LOG_AT) + 8 * MOST_WORDS > get64(rs + LOG_END):
        call(get64(get64(rs + MODEL) + ws.MORE), LOG, 0)
    return get64(rs + LOG_AT)


@helper
def log(rs, event, launch, a, b):
    """Append an event with two words."""
    at = room(rs)
    put64(at, event | get64(launch + KEY) << 32)
    put64(at + 8, a)
    put64(at + 16, b)
    put64(rs + LOG_AT, at + 24)
