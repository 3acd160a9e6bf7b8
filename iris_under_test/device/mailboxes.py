"""Mailboxes in which two devices exchange a message without a host: the receiver announces the place, the sender
reports completion.

Each rank has a box per peer and tag, BOX_WORDS int64 words in memory that every rank maps:

    word 0      1 when the peer is ready to receive from this rank (a flag: its low half, int32)
    words 1..6  the place, as the peer announced it: address in its heap (bytes from the heap's start), rows, columns,
                elements from row to row and from column to column, kind of elements
    word 7      while this rank sends: how many of its programs have sent their part
    word 8      1 when the peer has sent (a flag)
    words 9..11 the message: rows, columns, kind of elements

The side that waits for a flag clears it, and the sender does so before it notifies the receiver. So between two
messages the box is in its initial state, and the next message with that peer and tag may follow at once.

All functions are for Triton and Gluon kernels alike. ``boxes``: pointer to int64, where each rank's boxes are mapped in
this process. ``kind``: an integer that identifies an element type; -1 for a side that refuses the message.
"""

import triton
import triton.language as tl

from .fences import await_count, observe, poke, publish

__all__ = ["BOX_WORDS", "MAX_TAGS", "announce", "await_receiver", "await_sender", "is_last_sender", "notify_receiver"]

MAX_TAGS = tl.constexpr(64)
"""Number of tags: they are 0 to MAX_TAGS - 1."""

BOX_WORDS = tl.constexpr(16)
_SENT = tl.constexpr(7)
_DELIVERED = tl.constexpr(8)


@triton.jit
def announce(boxes, rank, src, tag, place, rows, columns, step_m, step_n, kind):
    """Announce to rank ``src`` where a message to ``rank`` goes, and that this memory may be overwritten."""
    box = _box(boxes, src, rank, tag)
    tl.store(box + 1, place)
    tl.store(box + 2, rows)
    tl.store(box + 3, columns)
    tl.store(box + 4, step_m)
    tl.store(box + 5, step_n)
    tl.store(box + 6, kind)
    publish()
    poke(_flag(box, 0), 1)


@triton.jit
def await_receiver(boxes, rank, dst, tag):
    """Wait for the announcement of ``dst``; return (place, rows, columns, step_m, step_n, kind), all int64."""
    box = _box(boxes, rank, dst, tag)
    await_count(_flag(box, 0), 1, "the receiver has not announced where its message goes")
    return (
        tl.load(box + 1), tl.load(box + 2), tl.load(box + 3), tl.load(box + 4), tl.load(box + 5), tl.load(box + 6)
    )  # fmt: skip


@triton.jit
def is_last_sender(boxes, rank, dst, tag):
    """Return whether all other programs of the kernel have called this before; if so, everything that they sent is
    visible.
    """
    publish()
    box = _box(boxes, rank, dst, tag)
    others = tl.atomic_add(_flag(box, _SENT), 1, sem="relaxed", scope="sys")
    observe()
    return others == tl.num_programs(0) - 1


@triton.jit
def notify_receiver(boxes, rank, dst, tag, rows, columns, kind):
    """Complete a message and describe it to the receiver. Only the program for which ``is_last_sender`` is true calls
    this.
    """
    box = _box(boxes, rank, dst, tag)
    poke(_flag(box, _SENT), 0)
    poke(_flag(box, 0), 0)
    box = _box(boxes, dst, rank, tag)
    tl.store(box + 9, rows)
    tl.store(box + 10, columns)
    tl.store(box + 11, kind)
    publish()
    poke(_flag(box, _DELIVERED), 1)


@triton.jit
def await_sender(boxes, rank, src, tag):
    """Wait until the message of ``src`` is complete; return its (rows, columns, kind), all int64."""
    box = _box(boxes, rank, src, tag)
    await_count(_flag(box, _DELIVERED), 1, "the sender has not sent its message")
    message = (tl.load(box + 9), tl.load(box + 10), tl.load(box + 11))
    poke(_flag(box, _DELIVERED), 0)
    return message


@triton.jit
def _box(boxes, owner, peer, tag):
    return tl.load(boxes + owner).to(tl.pointer_type(tl.int64)) + (peer * MAX_TAGS + tag) * BOX_WORDS


@triton.jit
def _flag(box, word: tl.constexpr):
    return (box + word).to(tl.pointer_type(tl.int32), bitcast=True)
