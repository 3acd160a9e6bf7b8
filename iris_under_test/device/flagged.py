"""Words of 4 bytes of data next to the number of an *epoch*, so that one store of 8 bytes carries data and flag.

Memory takes an aligned store of 8 bytes as a whole (PTX: relaxed accesses of 64 bits are single-copy atomic; LLVM's
memory model of gfx942: 64 bits are the widest atomic). So a reader that sees the epoch's number also has its data. This
needs no fence and no second trip over the link, but twice the bytes. It orders no other access.

The members of a group have *slots* for these words, ``slot_bytes`` each, outside the heap and zero at first:
EPOCH_WORDS int32, the last epoch of each program, then two sets of one slot per member, slot_words(size) int64 each,
which are used alternately.

For Triton and Gluon kernels alike: the caller chooses the layout of blocks.
"""

import triton
import triton.language as tl

from .targets import intrinsics

__all__ = [
    "EPOCH_WORDS",
    "MAX_SENDERS",
    "await_words",
    "next_epoch",
    "send_words",
    "slot_bytes",
    "slot_words",
    "word_address",
]

EPOCH_WORDS = tl.constexpr(256)
"""Largest number of programs in a kernel that sends words."""
_SET_WORDS = 1 << 18
MAX_SENDERS = tl.constexpr(8)
"""Largest number of members: each lane waits for one word of every member at once."""


@triton.constexpr_function
def slot_words(size):
    """Return how many words each of ``size`` members can send to another one in an epoch. One member receives at most 1
    MiB of data.
    """
    return _SET_WORDS // size


def slot_bytes(size: int) -> int:
    """Return the size in bytes of the slots of each of ``size`` members."""
    return EPOCH_WORDS.value * 4 + 2 * size * slot_words(size) * 8


@triton.jit
def next_epoch(epoch):
    """Return the epoch after ``epoch``, whose words go into the other set.

    Epochs count up but skip 0, the value of words that were never written. Numbers repeat after 2^32 epochs: a word
    that was written in one of them, and not since, would then be taken for new.
    """
    return tl.where(epoch == -1, 2, epoch + 1)


@triton.jit
def word_address(slots, epoch, sender, word, SIZE: tl.constexpr):
    """Return the address (int64) at which ``sender`` writes word number ``word`` (int64, scalar or block) of its slot.

    ``slots``: int64, the start of the receiver's slots.
    """
    place = ((epoch & 1) * SIZE + sender).to(tl.int64) * slot_words(SIZE) + word
    return slots + EPOCH_WORDS * 4 + place * 8


@triton.jit
def send_words(addresses, data, epoch):
    """Write int32 ``data`` and the epoch's number to each address.

    Example: 1.5 in epoch 7 becomes 0x00000007_3fc00000.
    """
    words = (epoch.to(tl.int64) << 32) | data.to(tl.uint32, bitcast=True).to(tl.int64)
    intrinsics().send_words(addresses, words)


@triton.jit
def await_words(addresses, epoch):
    """Wait until the epoch's number is at all addresses; return the int32 data next to it, one block per block of
    ``addresses``.

    ``addresses``: a tuple of blocks. A lane loads all its words at once, which costs one round trip to memory.
    """
    COUNT: tl.constexpr = len(addresses)
    expected = epoch.to(tl.uint32, bitcast=True).to(tl.int64)
    words = intrinsics().await_words(addresses, expected, "a member's words have not arrived")
    data = ()
    for index in tl.static_range(COUNT):
        data += (words[index].to(tl.int32),)
    return data
