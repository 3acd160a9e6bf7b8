"""The state of ``native.replay``: where each number is, and the numbers that stand for something."""

from __future__ import annotations

from numba import njit

from harness.emulator.native import traced
from harness.emulator.native.raw import words64

_helper = njit(nogil=True)

# The state, int64 each. Of the launch: addresses of the tables of blocks and of events, of the kinds of operations
# uint8[n] (1: an event) and of the control of ``native.execute``; of the slots of work-groups int64[groups] (-1: not
# begun, -2: ended), their number, wavefronts of each; addresses of int64[wavefronts]: the wavefront that follows in a
# part, when the span began, when it arrived at an s_barrier or -1, at which one, the state of its outstanding
# operations, and whether it takes the branch.
(BLOCKS, EVENTS, KINDS, CONTROL, SLOT_OF, GROUPS, PER_GROUP, NEXT_WAVE, SINCE, ARRIVED, ARRIVED_AT, QUEUED, TAKEN) = (
    range(13)
)
# Addresses of int32[states, kinds of events]: the next state of outstanding operations, -1 if it is unknown, and the
# kind of operation that is waited for, or -1; their width; the address of int64[waits, 10], counts of stalls.
(FOLLOWING, WAITED_FOR, TRANSITIONS, STALLS) = range(13, 17)
# Parts and chunks: addresses of their tables, and the number of fields of a chunk; address of int64[parts], those
# that are ready, and their number; addresses and numbers of free parts and chunks; most wavefronts of a chunk.
(
    PARTS,
    CHUNKS,
    CHUNK_FIELDS,
    READY,
    READY_COUNT,
    FREE_PARTS,
    FREE_PARTS_COUNT,
    FREE_CHUNKS,
    FREE_CHUNKS_COUNT,
    CHUNK_WAVES,
) = range(17, 27)
# Next work-group to start, work-groups of a chunk, chunks that have started, the number of the last part made; resident
# wavefronts, and how many may be; the round; wavefronts that have ended; whether choices decide; whether patience is
# exhausted.
(NEXT_GROUP, PER_CHUNK, STARTED, SERIAL, RESIDENT, MOST_RESIDENT, ROUND, ENDED, CHOOSES, IMPATIENT) = range(27, 37)
# Where it is: the part that runs or -1, or is chosen to run, or -1; the event, or -1 before the block, the wavefront,
# or -1 before the event, and its place in the part; the sum of the event; the time at which the block began; virtual
# time; the argument of the reason to return; addresses of free slots and their number; the serial number of the part
# that ran last.
(CURRENT, CHOSEN, EVENT, WAVE, ROW, SUM, BEGAN, NOW, ARGUMENT, FREE_SLOTS, FREE_SLOTS_COUNT, LATEST) = range(37, 49)
# Records: for each kind the address of the rows, their number, and how many there is room for; then the most of each
# kind that are kept, the rows of earlier launches, those left out: accesses and spans; whether a sample replaces the
# last one of earlier launches, and that sample.
(ACCESSES, SPANS, SAMPLES) = (49, 52, 55)
(LIMIT, EARLIER_ACCESSES, EARLIER_SPANS, EARLIER_SAMPLES, LOST_ACCESSES, LOST_SPANS, REPLACES, REPLACING) = range(
    58, 66
)
# Address of the rank's totals int64[3], see ``Sample``; address and number of the allocations, see below; address of
# the state of ``flows``; rounds after which the caller has to act; the address of the state.
(TOTALS, ALLOCATIONS, ALLOCATIONS_COUNT, FLOWS, ROUNDS_LEFT, ADDRESS) = range(70, 76)
# Words of an access, with the addresses of all lanes.
LISTED = 76
STATE_FIELDS = LISTED + traced.STEP + 64

# A part: its serial number; turn, loops, block, chunk; number of wavefronts, the first and the last one; the next part
# at the barrier.
(PART, TURN, LOOPS, BLOCK, CHUNK, COUNT, HEAD, TAIL, NEXT_PART) = range(9)
PART_FIELDS = 9
# A chunk: its number, first work-group, work-groups, wavefronts that have not ended, the first and last part at the
# barrier or -1; the address of its wavefronts' queues, and where that of wavefront 0 would be; and then for each
# work-group wavefronts that have not ended, and those that have arrived, or -1 if they do not all wait.
(INDEX, FIRST_GROUP, GROUP_COUNT, LIVE, FIRST_WAITING, LAST_WAITING, MEMORY, ORIGIN, IN_GROUP) = range(9)

# A block: the first event and their number, instructions, how it ends, the block that is jumped to, whether the jump
# closes a loop that polls, the instruction that ends it.
(FIRST_EVENT, EVENT_COUNT, TICKS, END, TARGET, POLLS, LAST) = range(7)
BLOCK_FIELDS = 7
# Ends of a block, as in ``program.decode``.
FALL, JUMP, BRANCH, ENDS, BARRIER, SLEEP = range(6)
# An event: its kind, and the instruction's place in the block; whether an operation appends it to the queue; the
# place of the access itself in the code, or -1; whether its order matters; the kind of operation that begins, or the
# wait, among those of ``FOLLOWING``; then what the kind needs.
(KIND, OFFSET, IS_QUEUED, EXECUTED, ORDERED, BEGINS, SITE, SIZE, HEAT, READS) = range(10)
EVENT_FIELDS = 10
# Kinds of events. An access has in ``SITE`` its number and in ``HEAT`` the kind of heat, and begins ``BEGINS``, or the
# next one if it reaches a peer. A wait has in ``SITE`` its number and in ``SIZE`` the index of its instruction.
ACCESS, SHARE, ISSUE, WAIT = range(4)

# An allocation: its bounds; whether another rank owns it, in records, and for waits; the bytes of a bucket, the
# address of the counts int64[3, n] or 0 if there are none yet, and n.
(START, END_AT, IS_PEER, IS_FAR, WIDTH, COUNTS, BUCKETS) = range(7)
ALLOCATION_FIELDS = 7

# Rows: of an access its time, its wavefront, site | allocation << 32, bytes, and address; of a span its start, end,
# wavefront and kind | instruction << 8; of a sample its time, and the totals.
ACCESS_FIELDS, SPAN_FIELDS, SAMPLE_FIELDS = 5, 4, 4
WAITING, TO_BARRIER, AT_BARRIER, TO_END = range(4)

# Why ``run`` returned. NEEDS_PYTHON: wavefront ``ARGUMENT`` needs the interpreter. CHOOSE: put the part that runs next
# into ``CHOSEN``. NEEDS_SLOT, NEEDS_CHUNK, NEEDS_ROOM: make more of them. NEEDS_HEAT: counts of an allocation.
# NEEDS_STATE: fill ``FOLLOWING`` at ``ARGUMENT``. BROKEN: the code and the events do not fit together.
(FINISHED, NEEDS_PYTHON, PAUSE, ROUND_ENDED, CHOOSE, NEEDS_SLOT, NEEDS_CHUNK, NEEDS_ROOM, NEEDS_HEAT, NEEDS_STATE,
 BROKEN) = range(11)  # fmt: skip
GO_ON = -1
"""``run`` need not return: what the functions here return otherwise."""


@_helper
def table(s, field):
    """Return the int64[] whose address is in a field of the state."""
    return words64(s[field])


@_helper
def part(s, number):
    return words64(s[PARTS] + 8 * PART_FIELDS * number)


@_helper
def chunk(s, number):
    fields = s[CHUNK_FIELDS]
    return words64(s[CHUNKS] + 8 * fields * number)


@_helper
def queue(s, part, wave):
    """Return the address of a wavefront's queue."""
    return chunk(s, part[CHUNK])[ORIGIN] + traced.QUEUE_BYTES * wave
