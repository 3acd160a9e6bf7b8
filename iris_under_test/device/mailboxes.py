"""Where two devices meet to exchange a message, without a host: who receives says where, who sends says when.

Each rank has a box per peer and tag, BOX_WORDS int64 words in memory that every rank maps:

    word 0      1 when the peer is ready to receive from this rank (a flag: its low half, int32)
    words 1..6  where, as the peer has it: address in its heap (bytes from the heap's start), rows, columns, elements
                from row to row and from column to column, kind of elements
    word 7      this rank's programs that have sent what they had to, while it is sending
    word 8      1 when the peer has sent (a flag)
    words 9..11 what: rows, columns, kind of elements

Whoever waits for a flag clears it, the sender before it tells the receiver; so between two messages all is as before
the first, and the next one with that peer and tag may follow at once.

All functions are for Triton and Gluon kernels alike. ``boxes``: pointer to int64, where each rank's boxes are mapped
here. ``kind``: an integer that stands for an element type; -1 for a side that takes no message after all.
"""

import triton
import triton.language as tl

from .fences import await_count, observe, poke, publish

__all__ = ["BOX_WORDS", "MOST_TAGS", "announce", "await_receiver", "await_sender", "last_to_send", "tell_receiver"]

MOST_TAGS = tl.constexpr(64)
"""Tags are 0 to MOST_TAGS - 1."""

BOX_WORDS = tl.constexpr(16)
_SENT = tl.constexpr(7)
_TOLD = tl.constexpr(8)


@triton.jit
def announce(boxes, rank, src, tag, place, rows, columns, step_m, step_n, kind):
    """Tells rank ``src`` where a message to ``rank`` goes, and that what lies there may be overwritten."""
    box = _box(boxes, src, rank, tag)
    tl.store(box + 1, place)  # remote
    tl.store(box + 2, rows)  # remote
    tl.store(box + 3, columns)  # remote
    tl.store(box + 4, step_m)  # remote
    tl.store(box + 5, step_n)  # remote
    tl.store(box + 6, kind)  # remote
    publish()
    poke(_flag(box, 0), 1)


@triton.jit
def await_receiver(boxes, rank, dst, tag):
    """What ``dst`` has announced, once it has: (place, rows, columns, step_m, step_n, kind), all int64."""
    box = _box(boxes, rank, dst, tag)
    await_count(_flag(box, 0), 1)
    return (
        tl.load(box + 1), tl.load(box + 2), tl.load(box + 3), tl.load(box + 4), tl.load(box + 5), tl.load(box + 6)
    )  # fmt: skip


@triton.jit
def last_to_send(boxes, rank, dst, tag):
    """Whether all other programs of the kernel have called this before; what they sent is visible to all, then."""
    publish()
    box = _box(boxes, rank, dst, tag)
    others = tl.atomic_add(_flag(box, _SENT), 1, sem="relaxed", scope="sys")
    observe()
    return others == tl.num_programs(0) - 1


@triton.jit
def tell_receiver(boxes, rank, dst, tag, rows, columns, kind):
    """Ends a message, and says what it was. For the program that was ``last_to_send``."""
    box = _box(boxes, rank, dst, tag)
    poke(_flag(box, _SENT), 0)
    poke(_flag(box, 0), 0)
    box = _box(boxes, dst, rank, tag)
    tl.store(box + 9, rows)  # remote
    tl.store(box + 10, columns)  # remote
    tl.store(box + 11, kind)  # remote
    publish()
    poke(_flag(box, _TOLD), 1)


@triton.jit
def await_sender(boxes, rank, src, tag):
    """What ``src`` has sent, once it is there: (rows, columns, kind), all int64."""
    box = _box(boxes, rank, src, tag)
    await_count(_flag(box, _TOLD), 1)
    told = (tl.load(box + 9), tl.load(box + 10), tl.load(box + 11))
    poke(_flag(box, _TOLD), 0)
    return told


@triton.jit
def _box(boxes, owner, peer, tag):
    return tl.load(boxes + owner).to(tl.pointer_type(tl.int64)) + (peer * MOST_TAGS + tag) * BOX_WORDS


@triton.jit
def _flag(box, word: tl.constexpr):
    return (box + word).to(tl.pointer_type(tl.int32), bitcast=True)
