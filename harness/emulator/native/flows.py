"""Flows of values in mode ``trace``: from the access that wrote a byte to the first one of another wavefront that reads
it. See ``watch.trace``.

A store is only noted, since most stored bytes are not read in the same launch. When an access may touch the pages of
noted stores, these are entered in the *shadow*: for each byte the access that wrote it last. The shadow is a hash table
of granules of 16 bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types

from harness.emulator import compilation
from harness.emulator.native import traced
from harness.emulator.native.raw import bit_count, get64, put64, words32, words64

_helper = njit(nogil=True)

# The state, int64 each: noted stores, lanes of those that are listed, and flows found: of each the address, the
# number of rows, and how many there is room for; the granules that the noted stores may have; the address of the bits
# that are set for pages of noted stores; addresses of the shadow's keys int64[n] (0: free, otherwise the granule + 1)
# and of its bytes int32[n, 16] (the number of the access + 1, or 0), how many granules it has, and n.
(NOTED, LISTS, PAIRS) = (0, 24, 48)
(NOTED_GRANULES, PAGES, KEYS, WRITERS, GRANULES, CAPACITY) = range(72, 120, 8)
STATE_BYTES = 120
PAGE_BITS, PAGE_WORDS = 14, 1 << 12
_PAGES_MASK = 64 * PAGE_WORDS - 1

# A noted store: number of the access, form, lanes, first address, step, bytes of a lane, and the place of the lanes.
NOTED_FIELDS = 7
# Room that an access may need, of each kind.
MOST_NOTED, MOST_PAIRS, MOST_GRANULES = 64, 1024, 128
READ = 1 << 62
"""Added to the bytes of an access, in its row: another wavefront has read what it wrote."""


@_helper
def _is_noted(state, page):
    word = get64(get64(state + PAGES) + 8 * ((page & _PAGES_MASK) >> 6))
    return (word >> (page & 63)) & 1


@_helper
def _note_page(state, page):
    place = get64(state + PAGES) + 8 * ((page & _PAGES_MASK) >> 6)
    put64(place, get64(place) | np.int64(1) << (page & 63))


@_helper
def _forget_pages(state, address, size):
    """Clear the bits of the pages of bytes, and of others."""
    for page in range(address >> PAGE_BITS, (address + size - 1 >> PAGE_BITS) + 1):
        put64(get64(state + PAGES) + 8 * ((page & _PAGES_MASK) >> 6), 0)


@_helper
def _lane(words, lane, before):
    """Return the address of a lane, of ``words`` as in ``traced``; ``before``: accessing lanes before it."""
    if words[traced.FORM] == traced.LISTED:
        return words[traced.STEP + lane]
    return words[traced.FIRST] + words[traced.STEP] * before


@_helper
def _touches_noted(state, words, size):
    """Return whether an access may touch a noted store."""
    first, last = words[traced.LOWEST] >> PAGE_BITS, (words[traced.HIGHEST] + size - 1) >> PAGE_BITS
    if last - first <= 1:
        return _is_noted(state, first) or _is_noted(state, last)
    before = 0
    for lane in range(64):
        if (words[traced.TAKES] >> lane) & 1:
            address = _lane(words, lane, before)
            before += 1
            if _is_noted(state, address >> PAGE_BITS) or _is_noted(state, (address + size - 1) >> PAGE_BITS):
                return True
    return False


@_helper
def has_room(state, words, size, is_store):
    """Return whether there is room for all that an access may need."""
    if get64(state + NOTED + 8) + MOST_NOTED > get64(state + NOTED + 16):
        return False
    if get64(state + LISTS + 8) + MOST_NOTED > get64(state + LISTS + 16):
        return False
    if is_store:
        return True
    if get64(state + PAIRS + 8) + MOST_PAIRS > get64(state + PAIRS + 16):
        return False
    more = MOST_GRANULES + get64(state + NOTED_GRANULES)
    return 2 * (get64(state + GRANULES) + more) <= get64(state + CAPACITY)


# -- the shadow --------------------------------------------------------------------------------------------------------


@_helper
def _find(state, granule):
    """Return the place of a granule in the table, or that where it belongs."""
    mask = get64(state + CAPACITY) - 1
    keys = get64(state + KEYS)
    at = (granule * 0x9E3779B97F4A7C1 >> 20) & mask
    while True:
        key = get64(keys + 8 * at)
        if key == 0 or key == granule + 1:
            return at
        at = (at + 1) & mask


@_helper
def _write(state, address, size, writer):
    """Enter the writer of bytes; ``writer``: number of the access + 1."""
    at, end = address, address + size
    while at < end:
        granule = at >> 4
        place = _find(state, granule)
        key = get64(state + KEYS) + 8 * place
        writers = words32(get64(state + WRITERS) + 64 * place)
        if get64(key) == 0:
            put64(key, granule + 1)
            put64(state + GRANULES, get64(state + GRANULES) + 1)
            for i in range(16):
                writers[i] = 0
        through = min(end, (granule + 1) << 4)
        for i in range(at & 15, through - (granule << 4)):
            writers[i] = writer
        at = through


@_helper
def _enter_noted(state):
    """Enter the noted stores in the shadow."""
    for i in range(get64(state + NOTED + 8)):
        row = words64(get64(state + NOTED) + 8 * NOTED_FIELDS * i)
        if row[1] == traced.PROGRESSION and row[4] == row[5]:
            _write(state, row[3], row[5] * bit_count(row[2]), row[0] + 1)
            _forget_pages(state, row[3], row[5] * bit_count(row[2]))
            continue
        before = 0
        for lane in range(64):
            if (row[2] >> lane) & 1:
                address = row[3] + row[4] * before
                if row[1] == traced.LISTED:
                    address = get64(get64(state + LISTS) + 8 * (64 * row[6] + lane))
                before += 1
                _write(state, address, row[5], row[0] + 1)
                _forget_pages(state, address, row[5])
    put64(state + NOTED + 8, 0)
    put64(state + LISTS + 8, 0)
    put64(state + NOTED_GRANULES, 0)


@_helper
def _read(state, rows, fields, number, address, low, high):
    """Record flows to access ``number`` from the writers of bytes from ``address`` on that are in [low, high)."""
    at, end = max(address, low), high
    while at < end:
        granule = at >> 4
        through = min(end, (granule + 1) << 4)
        place = _find(state, granule)
        if get64(get64(state + KEYS) + 8 * place) != 0:
            writers = words32(get64(state + WRITERS) + 64 * place)
            for i in range(at & 15, through - (granule << 4)):
                if writers[i]:
                    _flow(state, rows, fields, np.int64(writers[i]) - 1, number)
        at = through


@_helper
def _flow(state, rows, fields, writer, number):
    source = rows + 8 * fields * writer
    bytes_ = get64(source + 24)
    if bytes_ & READ or get64(source + 8) == get64(rows + 8 * fields * number + 8):
        return
    put64(source + 24, bytes_ | READ)
    pairs = get64(state + PAIRS + 8)
    put64(get64(state + PAIRS) + 16 * pairs, writer)
    put64(get64(state + PAIRS) + 16 * pairs + 8, number)
    put64(state + PAIRS + 8, pairs + 1)


@_helper
def _read_all(state, rows, fields, number, words, size, takes):
    """Record the flows to an access, for its lanes ``takes``.

    Their order is that of the bytes: by address if the lanes are neighbours, otherwise by page (16 KiB), then by lane.
    """
    before, count, first, last, neighbours = 0, bit_count(takes), words[traced.FIRST], np.int64(0), True
    if words[traced.FORM] == traced.PROGRESSION and (count == 1 or words[traced.STEP] == size):
        _read(state, rows, fields, number, first, first, first + size * count)
        return
    count = 0
    lowest_page, last_page = np.int64(0x7FFFFFFFFFFFFFFF), np.int64(0)
    for lane in range(64):
        if not (words[traced.TAKES] >> lane) & 1:
            continue
        address = _lane(words, lane, before)
        before += 1
        if not (takes >> lane) & 1:
            continue
        if count == 0:
            first = address
        elif address != last + size:
            neighbours = False
        last = address
        count += 1
        lowest_page = min(lowest_page, address >> PAGE_BITS)
        last_page = max(last_page, (address + size - 1) >> PAGE_BITS)
    if neighbours:
        _read(state, rows, fields, number, first, first, last + size)
        return
    page = lowest_page
    while page <= last_page:
        begin, end = page << PAGE_BITS, (page + 1) << PAGE_BITS
        following, before = last_page + 1, 0
        for lane in range(64):
            if not (words[traced.TAKES] >> lane) & 1:
                continue
            address = _lane(words, lane, before)
            before += 1
            if not (takes >> lane) & 1:
                continue
            if address < end and address + size > begin:
                _read(state, rows, fields, number, address, begin, min(end, address + size))
            if address >= end:
                following = min(following, address >> PAGE_BITS)
            elif address + size > end:
                following = min(following, page + 1)
        page = following


# -- accesses ----------------------------------------------------------------------------------------------------------


@_helper
def follow(state, rows, fields, number, words, size, reads, takes):
    """Record the flows that end at access ``number``, and remember the bytes that it writes.

    ``rows``: address of the accesses, ``fields`` int64 each: the second is the wavefront, the fourth has the flag
    ``READ``. ``words`` as in ``traced``; ``takes``: the lanes that belong to the access; ``reads``: whether they read.
    """
    writes = words[traced.WRITES]
    if not reads:
        _note(state, number, words, size, writes)
        return
    if get64(state + NOTED + 8) and _touches_noted(state, words, size):
        _enter_noted(state)
    if get64(state + GRANULES):
        _read_all(state, rows, fields, number, words, size, takes)
    before = 0
    if writes == words[traced.TAKES] and words[traced.FORM] == traced.PROGRESSION and words[traced.STEP] == size:
        _write(state, words[traced.FIRST], size * bit_count(writes), number + 1)
    elif writes:
        for lane in range(64):
            if (words[traced.TAKES] >> lane) & 1:
                address = _lane(words, lane, before)
                before += 1
                if (writes >> lane) & 1:
                    _write(state, address, size, number + 1)


@_helper
def _note(state, number, words, size, writes):
    noted = get64(state + NOTED + 8)
    row = words64(get64(state + NOTED) + 8 * NOTED_FIELDS * noted)
    put64(state + NOTED + 8, noted + 1)
    row[0], row[1], row[2] = number, words[traced.FORM], writes
    row[3], row[4], row[5], row[6] = words[traced.FIRST], words[traced.STEP], size, 0
    first, last = words[traced.LOWEST] >> PAGE_BITS, (words[traced.HIGHEST] + size - 1) >> PAGE_BITS
    listed = words[traced.FORM] == traced.LISTED
    if listed:
        lists = get64(state + LISTS + 8)
        row[6] = lists
        put64(state + LISTS + 8, lists + 1)
        for lane in range(64):
            put64(get64(state + LISTS) + 8 * (64 * lists + lane), words[traced.STEP + lane])
    if last - first <= 1:
        _note_page(state, first)
        _note_page(state, last)
    else:
        before = 0
        for lane in range(64):
            if (writes >> lane) & 1:
                address = _lane(words, lane, before)
                before += 1
                _note_page(state, address >> PAGE_BITS)
                _note_page(state, (address + size - 1) >> PAGE_BITS)
    count = bit_count(writes)
    neighbours = not listed and words[traced.STEP] == size
    more = (size * count >> 4) + 2 if neighbours else 2 * count
    put64(state + NOTED_GRANULES, get64(state + NOTED_GRANULES) + more)


def _rehash(state, keys, writers, old):
    """Enter the granules of an earlier table of ``old`` places in an empty one. ``keys``, ``writers``: addresses."""
    for i in range(old):
        key = get64(keys + 8 * i)
        if key:
            place = _find(state, key - 1)
            put64(get64(state + KEYS) + 8 * place, key)
            before = words32(writers + 64 * i)
            after = words32(get64(state + WRITERS) + 64 * place)
            for k in range(16):
                after[k] = before[k]
    return 0


rehash: Any = njit(cache=True)(_rehash)
_I = types.int64
_SIGNATURES: dict[Any, tuple[Any, ...]] = {rehash: (_I, _I, _I, _I)}


def prepare() -> None:
    """Compile the function that Python calls, or load it from the cache."""
    compilation.compile_now(_SIGNATURES)
