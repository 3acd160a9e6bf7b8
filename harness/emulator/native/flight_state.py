"""Structures of the accesses in flight in mode ``weak``; ``flights`` has the terms.

Their fields are byte offsets, as those of ``weak_state``.
"""

from __future__ import annotations

LOAD, STORE, ATOMIC, WRITE_BACK, INVALIDATE = range(5)
"""Kinds of operations."""

# A flight, by which also the wavefront is known: its compute unit, record, operations, the
# next flight of the unit, launch << 32 | wavefront, how many loads in flight have no parts yet.
(OF_UNIT, RECORD, FIRST, LAST, COUNT, NEXT_FLIGHT, WAVEFRONT, WHOLE_LOADS) = range(0, 64, 8)
FLIGHT_BYTES = 64

# An operation: its number, flight, access, kind, scope, instruction, accessing lanes as a mask; whether it has been
# performed, parts that have not, parts, the next operation of the flight; addresses of the segments, the parts, the
# data, the places in the data share or a compare-and-swap's values; bytes; its place among those that are not
# performed; bytes from one lane's data to the next one's, 0 if all load the same.
(NUMBER, OF_FLIGHT, ACCESS, OF_KIND, OF_SCOPE, OF_INSTRUCTION, LANES, DONE, LEFT, PARTS) = range(0, 80, 8)
(NEXT_OPERATION, SEGMENTS_AT, PARTS_AT, DATA_AT, OTHER_AT, BYTES, MOVING_INDEX, STRIDE) = range(80, 144, 8)
# Of an access to successive bytes, see ``spans``: if it has no parts yet, the lines that have not been performed, as a
# mask; the first byte and how many, start and end of the allocation, and the span of a store, or 0.
(WHOLE, RANGE_AT, RANGE_BYTES, RANGE_START, RANGE_END, OF_SPAN) = range(144, 192, 8)
OPERATION_BYTES = 192

# A part: its line, first segment and the one after its last, whether it has been performed.
(PART_LINE, PART_FIRST, PART_PAST, PART_DONE) = range(0, 32, 8)
PART_BYTES = 32
