"""LDS accesses and scalar loads in flight in mode ``weak``: coherent, performed in order, at any time until a wait.

Such an access runs on a copy of its wavefront's record, made when it is issued. When it has run, what it has written is
copied to the wavefront, see ``native.local``. Addresses are int64, ``state`` that of ``native.weak_state``.
"""

from __future__ import annotations

from harness.emulator.native import record
from harness.emulator.native import weak_state as ws
from harness.emulator.native.local import _give, _take
from harness.emulator.native.raw import call, get64, move, put64
from harness.emulator.native.weak_state import add, allocate, helper, release

# A queue: its place among the queues, the wavefront's record, its launch as in the record, its accesses, and their
# number.
(ORDER, RECORD, OF_LAUNCH, FIRST, LAST, COUNT) = range(0, 48, 8)
QUEUE_BYTES = 48

# An access: the next one, its description or 0, what Python knows it by or the record's copy, bytes of the structure.
(NEXT, DESCRIPTION, TOKEN, BYTES) = range(0, 32, 8)
ACCESS_BYTES = 32

# A description: the function of ``native.steps``, the pairs of vector registers that it uses, the vector and scalar
# registers that it writes, each as an address and a number; bytes of a record; the function's parameters.
(FUNCTION, PAIRS, PAIRS_COUNT, VECTORS, VECTORS_COUNT, SCALARS, SCALARS_COUNT, RECORD_BYTES, PARAMETERS) = range(
    0, 72, 8
)
DESCRIPTION_FIELDS = (PARAMETERS >> 3) + 24

_take, _give = helper(_take), helper(_give)


@helper
def of(state, wave):
    """Return the queue of a wavefront."""
    queue = get64(wave + record.QUEUE)
    if queue == 0:
        queue = allocate(state, QUEUE_BYTES)
        put64(queue + ORDER, get64(state + ws.QUEUES))
        add(state + ws.QUEUES, 1)
        put64(queue + RECORD, wave)
        put64(queue + OF_LAUNCH, get64(wave + record.LAUNCH))
        put64(queue + FIRST, 0)
        put64(queue + COUNT, 0)
        put64(wave + record.QUEUE, queue)
    return queue


@helper
def append(state, wave, description, token):
    """Issue an access. ``description`` 0: Python performs it, and knows it by ``token``."""
    queue = of(state, wave)
    if get64(queue + COUNT) == 0:
        _enlist(state, queue)
    size, copied = ACCESS_BYTES, 0
    if description:
        size += 64 + get64(description + RECORD_BYTES)
    access = allocate(state, size)
    if description:
        copied = (access + ACCESS_BYTES + 63) & ~63
        _take(copied, wave, get64(description + PAIRS), get64(description + PAIRS_COUNT))
    put64(access + NEXT, 0)
    put64(access + DESCRIPTION, description)
    put64(access + TOKEN, copied if description else token)
    put64(access + BYTES, size)
    if get64(queue + COUNT):
        put64(get64(queue + LAST) + NEXT, access)
    else:
        put64(queue + FIRST, access)
    put64(queue + LAST, access)
    add(queue + COUNT, 1)


@helper
def settle(state, wave, left):
    """Perform a wavefront's oldest accesses until ``left`` are in flight."""
    queue = of(state, wave)
    while get64(queue + COUNT) > left:
        perform(state, queue)


@helper
def perform(state, queue):
    """Perform the oldest access of a queue."""
    access, wave = get64(queue + FIRST), get64(queue + RECORD)
    description, token = get64(access + DESCRIPTION), get64(access + TOKEN)
    put64(queue + FIRST, get64(access + NEXT))
    add(queue + COUNT, -1)
    if get64(queue + COUNT) == 0:
        _delist(state, queue)
    if description == 0:
        call(get64(state + ws.LOCAL), token, 0)
    else:
        if call(get64(description + FUNCTION), token, description + PARAMETERS) != 0:
            call(get64(state + ws.LOCAL), token, description)  # a fault, which Python raises
        _give(
            wave, token, get64(description + VECTORS), get64(description + VECTORS_COUNT),
            get64(description + SCALARS), get64(description + SCALARS_COUNT),
        )  # fmt: skip
    release(state, access, get64(access + BYTES))


@helper
def nth(state, number):
    """Return one of the queues that are not empty."""
    return get64(get64(state + ws.QUEUED) + 8 * number)


@helper
def drop(state, launch):
    """Forget the accesses of a launch."""
    queued, count, kept = get64(state + ws.QUEUED), get64(state + ws.QUEUES_USED), 0
    for i in range(count):
        queue = get64(queued + 8 * i)
        if get64(queue + OF_LAUNCH) != launch:
            put64(queued + 8 * kept, queue)
            kept += 1
    put64(state + ws.QUEUES_USED, kept)


@helper
def _place(state, queue):
    """Return the index of a queue, or for it, among those that are not empty."""
    order, queued, low, high = get64(queue + ORDER), get64(state + ws.QUEUED), 0, get64(state + ws.QUEUES_USED)
    while low < high:
        middle = (low + high) >> 1
        if get64(get64(queued + 8 * middle) + ORDER) < order:
            low = middle + 1
        else:
            high = middle
    return low


@helper
def _enlist(state, queue):
    count = get64(state + ws.QUEUES_USED)
    if count == get64(state + ws.QUEUES_CAPACITY):
        call(get64(state + ws.MORE), ws.QUEUED_TABLE, count)
    at = get64(state + ws.QUEUED) + 8 * _place(state, queue)
    end = get64(state + ws.QUEUED) + 8 * count
    move(at + 8, at, end - at)
    put64(at, queue)
    put64(state + ws.QUEUES_USED, count + 1)


@helper
def _delist(state, queue):
    count = get64(state + ws.QUEUES_USED) - 1
    at = get64(state + ws.QUEUED) + 8 * _place(state, queue)
    end = get64(state + ws.QUEUED) + 8 * count
    move(at, at + 8, end - at)
    put64(state + ws.QUEUES_USED, count)
