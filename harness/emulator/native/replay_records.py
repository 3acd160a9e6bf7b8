"""Records of ``native.replay``: rows of accesses, spans and samples, counts of heat, and operations that are
outstanding.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from harness.emulator.native import flows, traced
from harness.emulator.native import replay_state as at
from harness.emulator.native.raw import bit_count, get64, put64, words32, words64

_helper = njit(nogil=True)


@_helper
def has_room(s, records, rows):
    return s[records + 1] + rows <= s[records + 2]


@_helper
def _row(s, records, fields):
    """Return a new row of a kind of records."""
    row = words64(s[records] + 8 * fields * s[records + 1])
    s[records + 1] += 1
    return row


@_helper
def span(s, wave, kind, instruction, start, end):
    if s[at.SPANS + 1] + s[at.EARLIER_SPANS] >= s[at.LIMIT]:
        s[at.LOST_SPANS] += 1
        return
    row = _row(s, at.SPANS, at.SPAN_FIELDS)
    row[0], row[1], row[2], row[3] = start, end, wave, kind | instruction << 8


@_helper
def sample(s):
    """Record the totals, in place of the last ones if there are too many."""
    if s[at.SAMPLES + 1] + s[at.EARLIER_SAMPLES] < s[at.LIMIT]:
        row = _row(s, at.SAMPLES, at.SAMPLE_FIELDS)
    elif s[at.SAMPLES + 1]:
        row = words64(s[at.SAMPLES] + 8 * at.SAMPLE_FIELDS * (s[at.SAMPLES + 1] - 1))
    else:
        s[at.REPLACES] = 1
        row = words64(s[at.ADDRESS] + 8 * at.REPLACING)
    totals = words64(s[at.TOTALS])
    row[0], row[1], row[2], row[3] = s[at.NOW], totals[0], totals[1], totals[2]


@_helper
def begin_operation(s, wave, event):
    """Change the outstanding operations of a wavefront.

    Returns the place of its state and the event in the tables, or - 1 - place if the next state is unknown.
    """
    states = at.table(s, at.QUEUED)
    place = states[wave] * s[at.TRANSITIONS] + event
    following = words32(s[at.FOLLOWING])[place]
    if following < 0:
        return -1 - place
    states[wave] = following
    return place


@_helper
def _allocation(s, number):
    place = s[at.ALLOCATIONS] + 8 * at.ALLOCATION_FIELDS * number
    return words64(place)


@_helper
def _count(table, words, kind, size, takes):
    """Add the bytes of an access to the counts of an allocation, those of the lanes ``takes``."""
    start, width, buckets = table[at.START], table[at.WIDTH], table[at.BUCKETS]
    counts = words64(table[at.COUNTS] + 8 * buckets * kind)
    last_bucket = buckets - 1  # an access may begin after the end, in the same dword
    if words[traced.FORM] == traced.PROGRESSION:
        count = bit_count(takes)
        lowest = words[traced.LOWEST] - start
        first, last = lowest // width, (words[traced.HIGHEST] - start) // width
        if first == last:
            counts[min(first, last_bucket)] += size * count
            return
        step = abs(words[traced.STEP])
        before = 0
        for bucket in range(first, last + 1):
            through = min(count, ((bucket + 1) * width - lowest + step - 1) // step)
            counts[min(bucket, last_bucket)] += size * (through - before)
            before = through
        return
    bucket, begin, end = np.int64(0), np.int64(0), np.int64(0)
    for lane in range(64):
        address = words[traced.STEP + lane]
        if (takes >> lane) & 1:
            inner = address - start
            if inner < begin or inner >= end:
                bucket = inner // width
                begin, end = bucket * width, (bucket + 1) * width
            counts[min(bucket, last_bucket)] += size


@_helper
def _log(s, time, wave, event, number, words, takes, first):
    """Record the access of the lanes ``takes`` to allocation ``number``, the first of them at ``first``."""
    table, size, lanes = _allocation(s, number), event[at.SIZE], bit_count(takes)
    _count(table, words, event[at.HEAT], size, takes)
    totals = words64(s[at.TOTALS])
    totals[table[at.IS_PEER]] += lanes * size
    if s[at.ACCESSES + 1] + s[at.EARLIER_ACCESSES] >= s[at.LIMIT]:
        s[at.LOST_ACCESSES] += 1
        return
    access = s[at.ACCESSES + 1]
    row = _row(s, at.ACCESSES, at.ACCESS_FIELDS)
    row[0], row[1], row[2], row[3], row[4] = time, wave, event[at.SITE] | number << 32, lanes * size, first
    flows.follow(s[at.FLOWS], s[at.ACCESSES], at.ACCESS_FIELDS, access, words, size, event[at.READS], takes)


@_helper
def _owner(s, address):
    """Return the allocation that an address belongs to, as ``traced.owner``."""
    number = s[at.ALLOCATIONS_COUNT] - 1
    while number >= 0 and not (
        _allocation(s, number)[at.START] <= address and address < _allocation(s, number)[at.END_AT]
    ):
        number -= 1
    return number


@_helper
def _piece(s, words, number):
    """Return the lanes that access an allocation, as bits, and the address of the first one. ``words``: ``LISTED``."""
    takes, first = np.int64(0), np.int64(0)
    for lane in range(64):
        address = words[traced.STEP + lane]
        if (words[traced.TAKES] >> lane) & 1 and _owner(s, address) == number:
            if takes == 0:
                first = address
            takes |= np.int64(1) << lane
    return takes, first


@_helper
def _listed(s, words):
    """Return the words of an access with the addresses of its lanes, in the state."""
    listed = words64(s[at.ADDRESS] + 8 * at.LISTED)
    for i in range(traced.STEP):
        listed[i] = words[i]
    listed[traced.FORM] = traced.LISTED
    before = 0
    for lane in range(64):
        listed[traced.STEP + lane] = flows._lane(words, lane, before)
        before += (words[traced.TAKES] >> lane) & 1
    return listed


@_helper
def access(s, part, time, wave, event):
    """Record an access of a wavefront to global memory; return why that cannot be."""
    queue = at.queue(s, part, wave)
    place = queue + traced.WORDS_AT + 8 * get64(queue + traced.TAKEN)
    words = words64(place)
    somebody = words[traced.FORM] != traced.NOBODY
    one, other = words[traced.LOW_ALLOCATION], words[traced.HIGH_ALLOCATION]
    alone = one == other and one >= 0
    far = False
    if somebody:
        if not has_room(s, at.ACCESSES, 64) or not flows.has_room(
            s[at.FLOWS], words, event[at.SIZE], event[at.READS] == 0
        ):
            return at.NEEDS_ROOM
        if not alone:
            words = _listed(s, words)
        for number in range(one if alone else 0, one + 1 if alone else s[at.ALLOCATIONS_COUNT]):
            if alone or _piece(s, words, number)[0] != 0:
                table = _allocation(s, number)
                far |= table[at.IS_FAR] != 0
                if table[at.COUNTS] == 0:
                    s[at.ARGUMENT] = number
                    return at.NEEDS_HEAT
    unknown = begin_operation(s, wave, event[at.BEGINS] + far)
    if unknown < 0:
        s[at.ARGUMENT] = -1 - unknown
        return at.NEEDS_STATE
    if somebody and alone:
        _log(s, time, wave, event, one, words, words[traced.TAKES], words[traced.FIRST])
    elif somebody:
        for number in range(s[at.ALLOCATIONS_COUNT]):
            takes, first = _piece(s, words, number)
            if takes:
                _log(s, time, wave, event, number, words, takes, first)
    put64(queue + traced.TAKEN, get64(queue + traced.TAKEN) + get64(place + 8 * traced.LENGTH))
    return at.GO_ON
