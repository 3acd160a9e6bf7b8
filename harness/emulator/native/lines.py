"""Lines of mode ``weak``, and the stores that each of them has; ``caches`` decides which of them a load sees."""

from __future__ import annotations

import numpy as np

from harness.emulator.native.raw import call, clear, copy, get8, get64, put64
from harness.emulator.native.weak_state import (
    ADDRESS,
    AT_AGENT,
    AT_SYSTEM,
    BASE,
    BUCKETS,
    CONTENT,
    DATA,
    DIRTY,
    DIRTY_CAPACITY,
    DIRTY_INDEX,
    DIRTY_TABLE,
    ELSEWHERE,
    EPOCH,
    FETCHES,
    FIRST,
    FIRST_DIRTY,
    FIRST_LINE,
    HASH,
    HIGH,
    IMAGE,
    IMAGE_EPOCH,
    IMAGE_SIZE,
    IMAGE_START,
    INSTRUCTION,
    IS_DIRTY,
    LANDED,
    LAST,
    LAST_DIRTY,
    LAST_LINE,
    LINE,
    LINE_BYTES,
    LINES,
    LOW,
    MORE,
    MORE_DIRTY,
    MOST_STORES,
    NEVER,
    NEXT_DIRTY,
    NEXT_LINE,
    NEXT_OF_BUCKET,
    NEXT_STORE,
    OF_LINE,
    ORIGIN,
    OUTSIDE,
    PENDING,
    PENDING_WRITES,
    PREVIOUS,
    PREVIOUS_DIRTY,
    SIZE,
    SNAPSHOT,
    STORE_BYTES,
    STORES,
    TABLE,
    UNIT,
    add,
    allocate,
    helper,
    release,
    tick,
)  # fmt: skip
from harness.emulator.native.words import peek16, peek32, peek64, poke8, poke16, poke32, poke64


@helper
def find_line(state, address, start, end, image):
    """Return the line that holds ``address``, of the allocation [start, end); ``image``: the copy of the allocation.

    Lines are counted from the allocation's start, so that a run does not depend on its address.
    """
    low = address - (address - start) % LINE
    bucket = get64(state + HASH) + 8 * ((low >> 7) & (get64(state + BUCKETS) - 1))
    line = get64(bucket)
    while line:
        if get64(line + ADDRESS) == low:
            return line
        line = get64(line + NEXT_OF_BUCKET)
    line = allocate(state, LINE_BYTES)
    size = min(low + LINE, end) - low
    put64(line + ADDRESS, low)
    put64(line + SIZE, size)
    for field in (FIRST, LAST, STORES, FETCHES, NEXT_LINE, PENDING, PENDING_WRITES):
        put64(line + field, 0)
    source = low
    if image and get64(image + IMAGE):
        # Copied again if an acquire came after the copy. A loop that polls never uses it.
        if get64(image + IMAGE_EPOCH) != get64(state + EPOCH):
            copy(get64(image + IMAGE), get64(image + IMAGE_START), get64(image + IMAGE_SIZE))
            put64(image + IMAGE_EPOCH, get64(state + EPOCH))
        source = get64(image + IMAGE) + low - get64(image + IMAGE_START)
    clear(line + BASE, 2 * LINE)
    copy(line + BASE, source, size)
    copy(line + CONTENT, line + BASE, size)
    put64(line + NEXT_OF_BUCKET, get64(bucket))
    put64(bucket, line)
    last = get64(state + LAST_LINE)
    if last:
        put64(last + NEXT_LINE, line)
    else:
        put64(state + FIRST_LINE, line)
    put64(state + LAST_LINE, line)
    add(state + LINES, 1)
    if get64(state + LINES) > 2 * get64(state + BUCKETS):
        call(get64(state + MORE), TABLE, get64(state + BUCKETS))
        _rehash(state)
    return line


@helper
def _rehash(state):
    """Enter all lines in a new table, which is empty."""
    line = get64(state + FIRST_LINE)
    while line:
        bucket = get64(state + HASH) + 8 * ((get64(line + ADDRESS) >> 7) & (get64(state + BUCKETS) - 1))
        put64(line + NEXT_OF_BUCKET, get64(bucket))
        put64(bucket, line)
        line = get64(line + NEXT_LINE)


@helper
def _eight(mask_low, mask_high, i):
    """Return the bits of a mask for bytes 8i to 8i + 7 of a line."""
    return ((mask_low if i < 8 else mask_high) >> (8 * (i & 7))) & 0xFF


@helper
def write(target, source, low, high):
    """Copy the bytes of a mask from line to line, eight or four at once where possible."""
    if low == -1 and high == -1:
        copy(target, source, LINE)
        return
    for i in range(16):
        bits = _eight(low, high, i)
        if bits == 0:
            continue
        to, of = np.uint64(target + 8 * i), np.uint64(source + 8 * i)
        if bits == 0xFF:
            poke64(to, peek64(of))
            continue
        for half in range(2):
            some = bits >> 4 * half & 0xF
            if some == 0xF:
                poke32(to + np.uint64(4 * half), peek32(of + np.uint64(4 * half)))
                continue
            for pair in range(2):
                two, at = some >> 2 * pair & 3, np.uint64(4 * half + 2 * pair)
                if two == 3:
                    poke16(to + at, peek16(of + at))
                elif two:
                    at += np.uint64(two - 1)
                    poke8(to + at, np.uint8(get8(np.int64(of + at))))


@helper
def notice(state, line):
    """Record a change of memory by another process or the host as a store that has reached the system."""
    if get64(state + OUTSIDE):
        enter(state, line)


@helper
def enter(state, line):
    size, address, snapshot, content = get64(line + SIZE), get64(line + ADDRESS), state + SNAPSHOT, line + CONTENT
    if size == LINE:
        different = np.int64(0)
        for i in range(16):
            different |= get64(address + 8 * i) ^ get64(content + 8 * i)
        if different == 0:
            return
    copy(snapshot, address, size)  # once, since another process may change it at any time
    same = True
    for i in range(size >> 3):
        same &= get64(snapshot + 8 * i) == get64(content + 8 * i)
    for i in range(size & ~7, size):
        same &= get8(snapshot + i) == get8(content + i)
    if same:
        return
    low, high = 0, 0
    for i in range(size):
        changed = np.int64(get8(snapshot + i) != get8(content + i))
        if i < 64:
            low |= changed << i
        else:
            high |= changed << (i - 64)
    now = tick(state)
    new_store(state, get64(state + ELSEWHERE), line, low, high, snapshot, now, now, now, 0, 0)
    copy(content, snapshot, size)


@helper
def new_store(state, unit, line, low, high, data, landed, agent, system, origin, instruction):
    """Append a store to a line's; return it."""
    store = allocate(state, STORE_BYTES)
    last = get64(line + LAST)
    put64(store + NEXT_STORE, 0)
    put64(store + PREVIOUS, last)
    put64(store + OF_LINE, line)
    put64(store + UNIT, unit)
    put64(store + LANDED, landed)
    put64(store + AT_AGENT, agent)
    put64(store + AT_SYSTEM, system)
    put64(store + LOW, low)
    put64(store + HIGH, high)
    put64(store + IS_DIRTY, 0)
    put64(store + ORIGIN, origin)
    put64(store + INSTRUCTION, instruction)
    copy(store + DATA, data, LINE)
    if last:
        put64(last + NEXT_STORE, store)
    else:
        put64(line + FIRST, store)
    put64(line + LAST, store)
    add(line + STORES, 1)
    return store


@helper
def set_dirty(state, store):
    last = get64(state + LAST_DIRTY)
    put64(store + IS_DIRTY, 1)
    put64(store + NEXT_DIRTY, 0)
    put64(store + PREVIOUS_DIRTY, last)
    if last:
        put64(last + NEXT_DIRTY, store)
    else:
        put64(state + FIRST_DIRTY, store)
    put64(state + LAST_DIRTY, store)
    count = get64(state + DIRTY)
    if count == get64(state + DIRTY_CAPACITY):
        call(get64(state + MORE), MORE_DIRTY, count)
    put64(get64(state + DIRTY_TABLE) + 8 * count, store)
    put64(store + DIRTY_INDEX, count)
    put64(state + DIRTY, count + 1)


@helper
def set_clean(state, store):
    before, after = get64(store + PREVIOUS_DIRTY), get64(store + NEXT_DIRTY)
    put64(store + IS_DIRTY, 0)
    if before:
        put64(before + NEXT_DIRTY, after)
    else:
        put64(state + FIRST_DIRTY, after)
    if after:
        put64(after + PREVIOUS_DIRTY, before)
    else:
        put64(state + LAST_DIRTY, before)
    # The last one of the table takes its place.
    count, index, table = get64(state + DIRTY) - 1, get64(store + DIRTY_INDEX), get64(state + DIRTY_TABLE)
    last = get64(table + 8 * count)
    put64(table + 8 * index, last)
    put64(last + DIRTY_INDEX, index)
    put64(state + DIRTY, count)


@helper
def prune(state, line):
    """Drop old history: the oldest stores that reached the system become the base."""
    while get64(line + STORES) > MOST_STORES:
        old = store = get64(line + FIRST)
        while store:
            if get64(store + AT_SYSTEM) < get64(old + AT_SYSTEM):
                old = store
            store = get64(store + NEXT_STORE)
        if get64(old + AT_SYSTEM) == NEVER:
            return
        write(line + BASE, old + DATA, get64(old + LOW), get64(old + HIGH))
        before, after = get64(old + PREVIOUS), get64(old + NEXT_STORE)
        if before:
            put64(before + NEXT_STORE, after)
        else:
            put64(line + FIRST, after)
        if after:
            put64(after + PREVIOUS, before)
        else:
            put64(line + LAST, before)
        add(line + STORES, -1)
        release(state, old, STORE_BYTES)
