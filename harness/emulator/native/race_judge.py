"""Judges recorded events of mode ``race`` by ``race_shadow``, for ``watch.race_clean``.

Events are int64 words. A wavefront stands for itself by the number of its thread. An access is followed by its *parts*,
each a number of bytes in succession: their address, and how many they are.
"""

from __future__ import annotations

from typing import Any

from numba import njit, types

from harness.emulator import compilation
from harness.emulator.native import race_order as order
from harness.emulator.native import race_shadow as shadow
from harness.emulator.native import race_state as st
from harness.emulator.native import record
from harness.emulator.native.raw import clear, copy, get64, put64
from harness.emulator.native.weak_state import add, allocate, helper, release

# CREATE: the launch's address, the first of its wavefronts, and how many. BARRIER, END, WRITE_BACK, INVALIDATE, WAIT:
# the thread, for BARRIER the first one of the work-group, and a number. All have three words after the event.
# ACCESS and SCALAR: the thread; kind, scope, bytes and site; the number of parts; and whether another ACCESS of the
# same instruction follows. Their parts come after these.
CREATE, BARRIER, END, WRITE_BACK, INVALIDATE, WAIT, ACCESS, SCALAR = range(8)
WORDS, ACCESS_WORDS = 4, 8


@helper
def _thread(rs, number):
    return get64(get64(rs + st.THREADS) + 8 * number)


@helper
def _create(launch, wave):
    """Make the thread of a wavefront."""
    rs = get64(launch + st.RS)
    thread, number = allocate(get64(rs + st.MODEL), st.THREAD_BYTES), get64(launch + st.FIRST_THREAD) + wave
    clear(thread, st.THREAD_BYTES)
    put64(thread + st.OF_LAUNCH, launch)
    put64(thread + st.GROUP, wave // get64(launch + st.PER_GROUP))
    put64(thread + st.THREAD_NUMBER, number)
    copy(thread + st.KNOWN, launch + st.BEFORE, order.ORDER_BYTES)
    copy(thread + st.SHARED, launch + st.BEFORE, order.ORDER_BYTES)
    put64(get64(rs + st.THREADS) + 8 * number, thread)


@helper
def _meet(rs, first):
    """s_barrier of a work-group, whose first thread has a number."""
    launch = get64(_thread(rs, first) + st.OF_LAUNCH)
    size = get64(launch + st.PER_GROUP)
    waves, count = allocate(get64(rs + st.MODEL), 8 * size), 0
    for i in range(size):
        place = get64(rs + st.THREADS) + 8 * (first + i)
        if get64(place):
            # ``meet`` finds the thread of a wavefront in its record.
            put64(waves + 8 * count, place - record.THREAD)
            count += 1
    order.meet(rs, waves, count)
    release(get64(rs + st.MODEL), waves, 8 * size)


@helper
def _judge(rs, at):
    """Return -1 if the access at ``at`` may be a race; otherwise the released values that it reads."""
    thread, parts = _thread(rs, get64(at + 8)), get64(at + 48)
    event = shadow.event_of(rs, thread, get64(at + 16), get64(at + 24), get64(at + 32), get64(at + 40))
    for i in range(parts):
        part = at + 8 * ACCESS_WORDS + 16 * i
        if shadow.may_conflict(rs, get64(part), get64(part + 8), event):
            release(get64(rs + st.MODEL), event, shadow.JUDGED_BYTES)
            return -1
    for i in range(parts):
        part = at + 8 * ACCESS_WORDS + 16 * i
        shadow.note(rs, get64(part), get64(part + 8), event)
    taken = get64(event + shadow.TAKEN)
    release(get64(rs + st.MODEL), event, shadow.JUDGED_BYTES)
    return taken


@helper
def _linked(one, other):
    """Return a list of released values with those of another one."""
    if one == 0:
        return other
    last = one
    while get64(last + order.NEXT_TAKEN):
        last = get64(last + order.NEXT_TAKEN)
    put64(last + order.NEXT_TAKEN, other)
    return one


def _executed(rs, at, end):
    """Execute the events in [at, end); return False at an access that may be a race."""
    taken = 0
    while at < end:
        event = get64(at)
        if event in (ACCESS, SCALAR):
            thread, read = _thread(rs, get64(at + 8)), 0
            if get64(at + 48):
                read = _judge(rs, at)
                if read < 0:
                    return False
            if event == SCALAR:
                add(thread + st.REACHED, 1)
            else:
                taken = _linked(taken, read)
                if not get64(at + 56):
                    order.access(rs, thread, taken)
                    taken = 0
            at += 8 * ACCESS_WORDS + 16 * get64(at + 48)
            continue
        if event == CREATE:
            for wave in range(get64(at + 16), get64(at + 16) + get64(at + 24)):
                _create(get64(at + 8), wave)
        elif event == BARRIER:
            _meet(rs, get64(at + 8))
        elif event == END:
            order.end(rs, _thread(rs, get64(at + 8)))
        elif event == WRITE_BACK:
            order.write_back(rs, _thread(rs, get64(at + 8)), get64(at + 16))
        elif event == INVALIDATE:
            order.invalidate(rs, _thread(rs, get64(at + 8)), get64(at + 16))
        else:
            order.wait(rs, _thread(rs, get64(at + 8)), get64(at + 16))
        at += 8 * WORDS
    return True


def _learned(rs, known, given):
    """Add an order to another one, at their addresses."""
    order.join(rs, known, given)


def _begun(rs, number, known):
    """Let the thread of a host know an order, at its address, and no other."""
    copy(_thread(rs, number) + st.KNOWN, known, order.ORDER_BYTES)


def _having(rs, known, number):
    """Add all that a thread has done so far to an order, at its address."""
    done = get64(_thread(rs, number) + st.REACHED)
    for level in range(0, order.ORDER_BYTES, 8):
        put64(known + level, order.having(rs, get64(known + level), number, done))


executed: Any = njit(cache=True)(_executed)
learned: Any = njit(cache=True)(_learned)
begun: Any = njit(cache=True)(_begun)
having: Any = njit(cache=True)(_having)
_I = types.int64
_SIGNATURES: dict[Any, tuple[Any, ...]] = {
    executed: (_I, _I, _I),
    learned: (_I, _I, _I),
    begun: (_I, _I, _I),
    having: (_I, _I, _I),
}


def prepare() -> None:
    """Compile the functions above, or load them from the cache."""
    compilation.compile_now(_SIGNATURES)
