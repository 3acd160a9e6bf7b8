"""State of the memory model of mode ``weak``: its structures, its memory, and the decisions that it takes.

All data are structures in memory, at addresses passed as int64; their fields are byte offsets. ``state`` is the address
of the ``STATE_BYTES`` of one model, which ``watch.model`` sets up. Masks of a line's bytes are two int64.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from harness.emulator.native.raw import call, get64, put64
from harness.emulator.native.words import peek32

LINE = 128
NEVER = 1 << 62
WAVE, WORKGROUP, AGENT, SYSTEM = range(4)
"""Scopes."""
MOST_STORES = 128
"""Stores of a line, beyond which the oldest that reached the system are dropped."""

# The state. Clock; number of stores, promotions and loads that did not see the newest value; whether other processes,
# or the host between launches, may change memory, so that every access checks for such changes; number of acquires that
# made the copies of allocations outdated.
(NOW, CHANGES, OUTSIDE, EPOCH) = range(0, 32, 8)
# Free memory, from NEXT to END; pages by address, their number; lines by age; the unit of changes from outside.
(NEXT, END, HASH, BUCKETS, PAGES, FIRST_LINE, LAST_LINE, ELSEWHERE) = range(32, 96, 8)
# Stores that have not reached the system, and spans of them, in the order in which they landed, and the number of
# stores; see ``DIRTY_TABLE``.
(FIRST_DIRTY, LAST_DIRTY, DIRTY) = range(96, 120, 8)
# Addresses: of int64[2], position in ``words`` and decisions, or 0; of the words and their number; 1 for ``Lazy``.
(PLACE, WORDS, WORD_COUNT, LAZY) = range(120, 152, 8)
# Addresses of Python functions int64(int64, int64): a decision, or for 0 possibilities more random words, memory, a
# load's data, a value that NumPy computes.
(PICK, MORE, DELIVER, FOLD) = range(152, 184, 8)
# Events: address of int64[EVENTS, EVENT_FIELDS], and their number so far.
(LOG, LOGGED) = range(184, 200, 8)
# For ``native.flights``: whether fences cover siblings, operations so far, operations that are not performed yet as a
# list of addresses, its length and capacity, how often memory moves, whether caches evict.
(COVERS, ISSUED, MOVING, MOVES, MOVES_CAPACITY, DRIFT, EVICTS) = range(200, 256, 8)
# The last page.
LAST_PAGE = 256
# Addresses of the function that performs operations, which calls itself, of that which performs calls (``flights``),
# and of a Python function that performs an access to LDS or a scalar load.
(ACT, ENTER, LOCAL) = range(264, 288, 8)
# For ``native.queues``: queues that are not empty as a sorted list of addresses, its length and capacity, and queues so
# far.
(QUEUED, QUEUES_USED, QUEUES_CAPACITY, QUEUES) = range(288, 320, 8)
# Whether a Python function has raised an exception; a call and its arguments, see ``ask``.
(FAILED, REQUEST) = range(320, 336, 8)
# The stores that have not reached the system as a list of addresses in no particular order, and its capacity; those of
# a span as ``lines.tagged``.
(DIRTY_TABLE, DIRTY_CAPACITY) = range(368, 384, 8)
# Structures that are free again, by their size, see ``_class_of``; a line as a load sees it; scratch memory.
FREE = 384
SEEN_LINE = FREE + 8 * 176
SNAPSHOT, NEW_DATA = SEEN_LINE + LINE, SEEN_LINE + 2 * LINE
# Of an access that ``native.issuing`` cuts: the lines of its segments and the segments, int64 each, and its parts.
MOST_SEGMENTS = 128
SEGMENT_LINES = NEW_DATA + LINE
SEGMENTS, NEW_PARTS = SEGMENT_LINES + 8 * MOST_SEGMENTS, SEGMENT_LINES + 16 * MOST_SEGMENTS
STATE_BYTES = NEW_PARTS + 32 * MOST_SEGMENTS

# What the service ``MORE`` is for, 4 to 6 being those of ``race_state``.
MEMORY, TABLE, MOVING_TABLE, QUEUED_TABLE = range(4)
MORE_DIRTY = 7
# Decisions. The last three are those of the scheduler.
AGE, COMPLETES, MOVES_NOW, WHAT_MOVES, WHICH_LINE, HOW_OFTEN, SWITCHES, WHICH_WAVEFRONT = range(8)

EVENTS, EVENT_FIELDS = 4000, 5
# Events; their fields are the time, what happened, the line, and the origin: launch << 32 | wavefront, instruction.
(READS_OLD, LANDS, EVICTED, INVALIDATED, WRITTEN_BACK, EXCHANGES) = range(6)
"""WRITTEN_BACK and EXCHANGES with the number of stores, or the scope, << 8; LANDS with that of other lines after it."""

# A page: its address, which is that of its first line; the next page of the same bucket, and the one before; for each
# line 0 if it is as in memory, the line, or 1 more than the span that has it.
PAGE_LINES = 32
(PAGE_ADDRESS, NEXT_OF_BUCKET, PAGE_BEFORE, ENTRIES) = range(0, 32, 8)
PAGE_BYTES = ENTRIES + 8 * PAGE_LINES

# A line: bytes [address, address + size) of one allocation; its stores, oldest first; times of the compute units' last
# fetches; the next line by age; how many parts of operations on it have not been performed, and
# how many of them write. ``BASE``: the bytes before its first store; ``CONTENT``: with
# all stores that have reached the system, as memory is unless another process or the host changed it.
(ADDRESS, SIZE, FIRST, LAST, STORES, FETCHES, NEXT_LINE, PENDING, PENDING_WRITES) = range(0, 72, 8)
BASE, CONTENT, LINE_BYTES = 72, 200, 328

# A store of the bytes in a mask, and the times when it landed and reached its agent and the system.
(NEXT_STORE, PREVIOUS, OF_LINE, UNIT, LANDED, AT_AGENT, AT_SYSTEM, LOW, HIGH) = range(0, 72, 8)
(NEXT_DIRTY, PREVIOUS_DIRTY, IS_DIRTY, ORIGIN, INSTRUCTION, DIRTY_INDEX) = range(72, 120, 8)
DATA, STORE_BYTES = 120, 248

# A span: stores of the same wavefront to all bytes of successive lines, which no other access concerns so far. Fields
# of a store from OF_LINE, which is 0, to INSTRUCTION, with the time when the first line landed, the others landed one
# after the other. Its address and its lines; the operation in flight that makes it, or 0; the start of the allocation;
# the lines that it still has once it has landed, as a mask; for each line the time when it reached its agent, and the
# place in ``DIRTY_TABLE``.
(SPAN_AT, SPAN_LINES, SPAN_OPERATION, SPAN_START, SPAN_HELD) = (0, 8, 56, 64, 112)
MOST_SPAN_LINES = 8
SPAN_AT_AGENT = 120
SPAN_INDICES = SPAN_AT_AGENT + 8 * MOST_SPAN_LINES
SPAN_DATA = SPAN_INDICES + 8 * MOST_SPAN_LINES + 8

# A compute unit, which has one vector L1: its agent, its XCD within the agent, the times of its last invalidates by the
# scope of the stores that they made visible, its flights.
(OF_AGENT, XCD, FLOORS, FIRST_FLIGHT, LAST_FLIGHT) = (0, 8, 16, 48, 56)
UNIT_BYTES = 64

# The last fetch of a line by a compute unit.
(BY_UNIT, AT, NEXT_FETCH) = range(0, 24, 8)
FETCH_BYTES = 32

# A copy of an allocation: its address (0: none), its epoch, start and bytes of the allocation.
(IMAGE, IMAGE_EPOCH, IMAGE_START, IMAGE_SIZE) = range(0, 32, 8)
IMAGE_FIELDS = 4

# Called by compiled functions only.
helper: Any = njit(no_cpython_wrapper=True, no_cfunc_wrapper=True)  # type: ignore[call-overload]


@helper
def add(address, amount):
    put64(address, get64(address) + amount)


@helper
def tick(state):
    now = get64(state + NOW) + 1
    put64(state + NOW, now)
    return now


@helper
def log(state, event, address, origin, instruction):
    number = get64(state + LOGGED)
    put64(state + LOGGED, number + 1)
    at = get64(state + LOG) + 8 * EVENT_FIELDS * (number % EVENTS)
    put64(at, get64(state + NOW))
    put64(at + 8, event)
    put64(at + 16, address)
    put64(at + 24, origin)
    put64(at + 32, instruction)


@helper
def ask(state, task, a, b, d, e):
    """Perform a call, see ``flights``."""
    put64(state + REQUEST, task)
    put64(state + REQUEST + 8, a)
    put64(state + REQUEST + 16, b)
    put64(state + REQUEST + 24, d)
    put64(state + REQUEST + 32, e)
    return call(get64(state + ENTER), state, state + REQUEST)


# -- memory and decisions ----------------------------------------------------------------------------------------------


@helper
def _class_of(size):
    """Return the number of the free list for structures of a size, and the size of those that are on it."""
    if size <= 4096:
        return (size + 31) >> 5, (size + 31) & ~31
    power = 13
    while 1 << power < size:
        power += 1
    return 116 + power, 1 << power


@helper
def allocate(state, size):
    """Return the address of a structure, whose content is undefined."""
    number, size = _class_of(size)
    place = get64(state + FREE + 8 * number)
    if place:
        put64(state + FREE + 8 * number, get64(place))
        return place
    if get64(state + NEXT) + size > get64(state + END):
        call(get64(state + MORE), MEMORY, size)
    place = get64(state + NEXT)
    put64(state + NEXT, place + size)
    return place


@helper
def release(state, place, size):
    """Make the memory of a structure of ``size`` bytes available again."""
    number, _ = _class_of(size)
    put64(place, get64(state + FREE + 8 * number))
    put64(state + FREE + 8 * number, place)


@helper
def _draw(state, place, n):
    """Return a number below n as ``choices.Seeded`` does."""
    bits, words, at = 0, get64(state + WORDS), get64(place)
    while n >> bits:
        bits += 1
    while True:
        number = np.int64(peek32(np.uint64(words + 4 * at))) >> (32 - bits)
        at += 1
        if number < n:
            put64(place, at)
            put64(place + 8, get64(place + 8) + 1)
            return number


@helper
def pick(state, n, decision):
    """Decide between n possibilities; ``choices.Choices`` in Python decides unless it has provided random words."""
    place = get64(state + PLACE)
    # A decision takes one or two words, and a hundred with a probability of 2**-100.
    if place == 0:
        return call(get64(state + PICK), n, decision)
    if get64(place) + 128 > get64(state + WORD_COUNT):
        call(get64(state + PICK), 0, 0)
    choice = _draw(state, place, n)
    if decision == AGE and get64(state + LAZY) and _draw(state, place, 4):
        return n - 1
    return choice


@helper
def moves_now(state):
    """Decide whether memory moves by itself at this instruction."""
    drift = get64(state + DRIFT)
    return drift != 0 and pick(state, drift, MOVES_NOW) != 0
