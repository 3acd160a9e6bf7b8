"""Accesses of mode ``weak`` to successive bytes, of which no line is kept until something else concerns them.

Of most lines a kernel only loads what was there before, or only one wavefront stores to them. A load of successive
bytes is *whole* until it is performed: where there are no lines then, it reads memory. A store to whole lines makes a
*span* (``weak_state``): one structure with the data of all its lines. Whatever else concerns such a line *splits* the
access or the span: it gets the lines, stores and parts that it would have had from the beginning. So the adversary's
choices, their numbers and their effects are the same; only stores that nothing looks at are cheaper.

Neither is used where other processes can change memory, since each line then has to be compared with memory.
"""

from __future__ import annotations

from harness.emulator.native import lines
from harness.emulator.native import weak_state as ws
from harness.emulator.native.flight_state import (
    DATA_AT,
    DONE,
    FIRST,
    LOAD,
    NEXT_OPERATION,
    OF_FLIGHT,
    OF_INSTRUCTION,
    OF_KIND,
    OF_SPAN,
    OF_UNIT,
    PART_BYTES,
    PART_DONE,
    PART_FIRST,
    PART_LINE,
    PART_PAST,
    PARTS,
    PARTS_AT,
    RANGE_AT,
    RANGE_BYTES,
    RANGE_END,
    RANGE_START,
    SEGMENTS_AT,
    WAVEFRONT,
    WHOLE,
    WHOLE_LOADS,
)
from harness.emulator.native.raw import bit_count, copy, get64, put64
from harness.emulator.native.weak_state import add, allocate, helper, log, release


@helper
def find_line(state, address, start, end, image):
    """Return the line that holds ``address``, of the allocation [start, end); ``image``: the copy of the allocation."""
    low = address - (address - start) % ws.LINE
    entry = lines.entry_of(state, low, start)
    line = get64(entry)
    if line & 1:
        split_span(state, line - 1)
        return get64(entry)
    if line == 0:
        line = lines.new_line(state, low, end, image)
        put64(entry, line)
    return line


@helper
def lines_of(address, size, start):
    """Return how many lines the bytes of an allocation that begins at ``start`` are in."""
    return ((address - start + size - 1) >> 7) - ((address - start) >> 7) + 1


@helper
def are_untouched(state, address, size, start):
    """Return whether all bytes are as in memory, and no access is going to change them."""
    low, end = address - (address - start) % ws.LINE, address + size
    while low < end:
        page = lines.page_of(state, low, start)
        past = low - (low - start) % (ws.LINE * ws.PAGE_LINES) + ws.LINE * ws.PAGE_LINES
        if page:
            while low < end and low < past:
                if get64(page + ws.ENTRIES + 8 * ((low - get64(page + ws.PAGE_ADDRESS)) >> 7)):
                    return False
                low += ws.LINE
        low = past
    return True


@helper
def split_load(state, operation):
    """Give a whole load its parts, and the earlier ones of the wavefront that concern the same lines."""
    address, start = get64(operation + RANGE_AT), get64(operation + RANGE_START)
    low, past = address - (address - start) % ws.LINE, address + get64(operation + RANGE_BYTES)
    other = get64(get64(operation + OF_FLIGHT) + FIRST)
    while other != operation:
        if is_whole_load(other, low, past):
            _split_load(state, other)
        other = get64(other + NEXT_OPERATION)
    _split_load(state, operation)


@helper
def is_whole_load(operation, low, past):
    """Return whether an operation is a whole load in flight that concerns lines in [low, past)."""
    if get64(operation + WHOLE) == 0 or get64(operation + OF_KIND) != LOAD or get64(operation + DONE):
        return False
    address, start = get64(operation + RANGE_AT), get64(operation + RANGE_START)
    return address - (address - start) % ws.LINE < past and low < address + get64(operation + RANGE_BYTES)


@helper
def _split_load(state, operation):
    address, size = get64(operation + RANGE_AT), get64(operation + RANGE_BYTES)
    start, end = get64(operation + RANGE_START), get64(operation + RANGE_END)
    left = get64(operation + WHOLE)
    put64(operation + WHOLE, 0)
    add(get64(operation + OF_FLIGHT) + WHOLE_LOADS, -1)
    byte, i = 0, 0
    while byte < size:
        offset = (address + byte - start) & ws.LINE - 1
        length = min(size - byte, ws.LINE - offset)
        if left >> i & 1:
            line = find_line(state, address + byte, start, end, 0)
            _set_part(operation, i, line, byte << 16 | length << 8 | offset)
            add(line + ws.PENDING, 1)
        else:
            _set_performed(operation, i)
        byte += length
        i += 1


@helper
def split_loads(state, flight, low, past, limit):
    """Give the whole loads of a flight that concern lines in [low, past), and more than ``limit`` of them,
    their parts."""
    if get64(flight + WHOLE_LOADS) == 0:
        return
    operation = get64(flight + FIRST)
    while operation:
        if is_whole_load(operation, low, past) and get64(operation + PARTS) > limit:
            _split_load(state, operation)
        operation = get64(operation + NEXT_OPERATION)


@helper
def _set_part(operation, i, line, segment):
    part = get64(operation + PARTS_AT) + PART_BYTES * i
    put64(part + PART_LINE, line)
    put64(part + PART_FIRST, i)
    put64(part + PART_PAST, i + 1)
    put64(part + PART_DONE, 0)
    put64(get64(operation + SEGMENTS_AT) + 8 * i, segment)


@helper
def _set_performed(operation, i):
    part = get64(operation + PARTS_AT) + PART_BYTES * i
    put64(part + PART_LINE, 0)
    put64(part + PART_DONE, 1)


@helper
def bytes_of(operation, i):
    """Return the first of the bytes of a whole access that are in its line ``i``, and how many they are."""
    first = (get64(operation + RANGE_AT) - get64(operation + RANGE_START)) & ws.LINE - 1
    byte = max(0, ws.LINE * i - first)
    return byte, min(get64(operation + RANGE_BYTES), ws.LINE * (i + 1) - first) - byte


@helper
def read_line(state, operation, i):
    """Read the bytes of a whole load that are in its line ``i`` from memory; return False if a line is to be read."""
    byte, size = bytes_of(operation, i)
    address = get64(operation + RANGE_AT) + byte
    if not are_untouched(state, address, size, get64(operation + RANGE_START)):
        return False
    copy(get64(operation + DATA_AT) + byte, address, size)
    put64(operation + WHOLE, get64(operation + WHOLE) & ~(1 << i))
    return True


@helper
def peel(state, operation, i):
    """Take line ``i`` from the span of a store in flight; return it, and the address of the data for it."""
    span = get64(operation + OF_SPAN)
    low, start = get64(span + ws.SPAN_AT) + ws.LINE * i, get64(span + ws.SPAN_START)
    line = lines.new_line(state, low, low + ws.LINE, 0)
    put64(lines.entry_of(state, low, start), line)
    put64(operation + WHOLE, get64(operation + WHOLE) & ~(1 << i))
    return line, span + ws.SPAN_DATA + ws.LINE * i


@helper
def new_span(state, operation):
    """Make the span of a whole store; its data are the operation's."""
    address, start, n = get64(operation + RANGE_AT), get64(operation + RANGE_START), get64(operation + PARTS)
    span = allocate(state, ws.SPAN_DATA + ws.LINE * n)
    flight = get64(operation + OF_FLIGHT)
    put64(span + ws.SPAN_AT, address)
    put64(span + ws.SPAN_LINES, n)
    put64(span + ws.SPAN_OPERATION, operation)
    put64(span + ws.SPAN_START, start)
    put64(span + ws.OF_LINE, 0)
    put64(span + ws.UNIT, get64(flight + OF_UNIT))
    put64(span + ws.IS_DIRTY, 0)
    put64(span + ws.ORIGIN, get64(flight + WAVEFRONT))
    put64(span + ws.INSTRUCTION, get64(operation + OF_INSTRUCTION))
    put64(operation + OF_SPAN, span)
    put64(operation + DATA_AT, span + ws.SPAN_DATA)
    for i in range(n):
        put64(lines.entry_of(state, address + ws.LINE * i, start), span + 1)
    return span


@helper
def land(state, operation):
    """Let the stores of a span land, one line after the other."""
    span, held, landed = get64(operation + OF_SPAN), get64(operation + WHOLE), get64(state + ws.NOW) + 1
    n = bit_count(held)
    put64(operation + WHOLE, 0)
    put64(operation + OF_SPAN, 0)
    put64(span + ws.SPAN_OPERATION, 0)
    put64(span + ws.SPAN_HELD, held)
    put64(span + ws.LANDED, landed)
    put64(state + ws.NOW, landed)
    log(state, ws.LANDS | (n - 1) << 8, get64(span + ws.SPAN_AT), get64(span + ws.ORIGIN), get64(span + ws.INSTRUCTION))
    put64(state + ws.NOW, landed + n - 1)
    add(state + ws.CHANGES, n)
    lines.set_span_dirty(state, span)


@helper
def split_span(state, span):
    """Give the lines of a span to the operation that is going to store to them, or a store each if it has."""
    operation, address, start = get64(span + ws.SPAN_OPERATION), get64(span + ws.SPAN_AT), get64(span + ws.SPAN_START)
    first, last, landed = 0, 0, get64(span + ws.LANDED)
    held = get64(span + ws.SPAN_HELD)
    if operation:
        held = get64(operation + WHOLE)
        put64(operation + WHOLE, 0)
    for i in range(get64(span + ws.SPAN_LINES)):
        if held >> i & 1 == 0:
            if operation:
                _set_performed(operation, i)
            continue
        low = address + ws.LINE * i
        line = lines.new_line(state, low, low + ws.LINE, 0)
        put64(lines.entry_of(state, low, start), line)
        if operation:
            _set_part(operation, i, line, (ws.LINE * i) << 16 | ws.LINE << 8)
            put64(line + ws.PENDING, 1)
            put64(line + ws.PENDING_WRITES, 1)
            continue
        store = lines.new_store(
            state, get64(span + ws.UNIT), line, -1, -1, span + ws.SPAN_DATA + ws.LINE * i, landed,
            get64(span + ws.SPAN_AT_AGENT + 8 * i), ws.NEVER, get64(span + ws.ORIGIN), get64(span + ws.INSTRUCTION),
        )  # fmt: skip
        landed += 1
        index = get64(span + ws.SPAN_INDICES + 8 * i)
        put64(store + ws.IS_DIRTY, 1)
        put64(store + ws.DIRTY_INDEX, index)
        put64(get64(state + ws.DIRTY_TABLE) + 8 * index, store)
        put64(store + ws.PREVIOUS_DIRTY, last)
        if last:
            put64(last + ws.NEXT_DIRTY, store)
        else:
            first = store
        last = store
    if not operation:
        lines.replace_dirty(state, span, first, last)
        free_span(state, span)


@helper
def free_span(state, span):
    release(state, span, ws.SPAN_DATA + ws.LINE * get64(span + ws.SPAN_LINES))
