"""The record of a wavefront for translated code: one block of memory with its registers and its place.

Byte offsets from its start, which is aligned to 64 bytes. Vector registers follow at ``VECTORS`` as in
``wavefront.state``, pair after pair: 64 lanes of 2 dwords. So the parts of a record are the arrays of a ``Wavefronts``
of one wavefront, without a copy.
"""

from __future__ import annotations

# uint32[128] scalar registers; EXEC is at its index there.
SCALARS = 0
EXEC_BYTES = 4 * 126
# uint8, and then int64 fields.
SCC = 512
CONTEXT, SHARE, NUMBER, POSITION, STATE, LOOPS, TURN, PRIVATE = range(520, 584, 8)
# In mode ``weak``, addresses: the model's state, what native functions need of the launch, the flight and the queue of
# the wavefront, or 0, its code and work-group; and whether it waits. See ``native.interleaved``.
MODEL, LAUNCH, FLIGHT, QUEUE, CODE, GROUP, BLOCKED = range(584, 640, 8)
# In mode ``race`` ``native.race_state`` has the launch, and the thread is:
THREAD = QUEUE
# Scratch space of native functions: bool[64], uint64[64], bool[64].
MASK, ADDRESSES, TAKES = 640, 704, 1216
SET_UP = MASK
"""Bytes that are set up at entry, before the vector registers."""
VECTORS = 1280
PAIR_BYTES = 512

# States of a wavefront: can run, waits at s_barrier, has ended, needs the interpreter for its next instruction.
RUNNING, WAITING, ENDED, STOPPED = range(4)

# Fields of the context, int64 each: addresses of the table of allocations and their number, addresses of the counters
# of access sites (executions; local and peer lanes), bytes of the data share and of a lane's private segment.
STARTS, ENDS, PEERS, ALLOCATIONS, EXECUTIONS, LANES, SHARE_BYTES, PRIVATE_BYTES = range(8)
# Addresses of the counters of segments: wavefronts, and lanes.
SEGMENT_WAVES, SEGMENT_LANES = 8, 9
# Address of the state of mode ``check``: see ``native.checked``.
CHECKED = 10
CONTEXT_FIELDS = 11


def private_offset(pairs: int) -> int:
    """Return the offset of the private segments of 64 lanes; code that reads past the last of ``pairs`` pairs of vector
    registers stays before them."""
    return VECTORS + pairs * PAIR_BYTES + 64


def vector_offset(register: int) -> int:
    """Return the offset of the first lane of a vector register; the next lane is 8 bytes further."""
    return VECTORS + (register >> 1) * PAIR_BYTES + (register & 1) * 4


# Of the parameters of an access, after those of its function: the allocation that it accessed last, and the address of
# the general function.
HINT, GENERAL = 20, 21
