"""Words of 4 bytes that travel beside the number of an *epoch*, so that data and the news of it are one store of 8.

Memory takes an aligned store of 8 bytes as a whole (PTX: relaxed accesses of 64 bits are single-copy atomic; LLVM's
memory model of gfx942: 64 bits are the widest atomic), so whoever finds the epoch's number has its data. No fence, no
second trip over the link; twice the bytes. Nothing else is ordered by it.

A group's members have *slots* for this, ``slot_bytes`` each, beside the heap and zero at first: EPOCH_WORDS int32, the
last epoch of each program, then two sets of one slot per member, slot_words(size) int64 each, which are used in turn.

For Triton and Gluon kernels alike: a block's layout is its caller's.
"""

import triton
import triton.language as tl
from triton.language.target_info import is_hip

__all__ = [
    "EPOCH_WORDS",
    "MOST_GIVERS",
    "await_words",
    "give_words",
    "next_epoch",
    "slot_bytes",
    "slot_words",
    "word_address",
]

EPOCH_WORDS = tl.constexpr(256)
"""Programs of a kernel that gives words, at most."""
_SET_WORDS = 1 << 18
MOST_GIVERS = tl.constexpr(8)
"""Members of such a group at most: each lane waits for a word of all of them at once."""


@triton.constexpr_function
def slot_words(size):
    """Words that each of ``size`` members can give another one in an epoch. All that one is given is 1 MiB of data."""
    return _SET_WORDS // size


def slot_bytes(size: int) -> int:
    """Bytes of the slots of each of ``size`` members."""
    return EPOCH_WORDS.value * 4 + 2 * size * slot_words(size) * 8


@triton.jit
def next_epoch(epoch):
    """The epoch behind ``epoch``, whose words go into the other set: the next number, but never 0, which words have
    that nobody has written yet. Numbers come again after 2^32 epochs; a word that was written in one of them, and in no
    other one since, would be taken for new."""
    return tl.where(epoch == -1, 2, epoch + 1)


@triton.jit
def word_address(slots, epoch, giver, word, SIZE: tl.constexpr):
    """Where ``giver`` writes word number ``word`` (a block, too) of its slot; ``slots``: where the receiver's begin.
    All int64."""
    place = ((epoch & 1) * SIZE + giver).to(tl.int64) * slot_words(SIZE) + word
    return slots + EPOCH_WORDS * 4 + place * 8


@triton.jit
def give_words(addresses, data, epoch):
    """Writes int32 ``data`` and the epoch's number to each address.

    Example: 1.5 in epoch 7 becomes 0x00000007_3fc00000.
    """
    words = (epoch.to(tl.int64) << 32) | data.to(tl.uint32, bitcast=True).to(tl.int64)
    tl.inline_asm_elementwise(
        "global_store_dwordx2 $1, $2, off sc0 sc1\nv_mov_b32 $0, 0"
        if is_hip()
        else "st.relaxed.sys.global.b64 [$1], $2; mov.u32 $0, 0;",
        "=v,v,v,~{memory}" if is_hip() else "=r,l,l,~{memory}",
        [addresses, words],
        tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def await_words(addresses, epoch):
    """A tuple of int32 blocks, one for each block in the tuple ``addresses``: what lies there, once the epoch's number
    is beside it everywhere. All of a lane's words are asked for at once, and cost one trip to memory."""
    COUNT: tl.constexpr = len(addresses)
    addresses += (epoch.to(tl.uint32, bitcast=True).to(tl.int64),)
    found = tl.inline_asm_elementwise(
        _awaiting(COUNT, is_hip()),
        _operands(COUNT, is_hip()),
        addresses,
        _outputs(COUNT),
        is_pure=False,
        pack=1,
    )
    data = ()
    for index in tl.static_range(COUNT):
        data += (found[index].to(tl.int32),)
    return data


@triton.constexpr_function
def _awaiting(count, hip):
    """Assembly: loads ``count`` words into $0 and so on, again until the upper half of each is the last operand."""
    words = [(f"${index}", f"${count + 1 + index}") for index in range(count)]
    upper, epoch = f"${count}", f"${2 * count + 1}"
    if hip:
        load = [f"global_load_dwordx2 {word}, {address}, off sc0 sc1" for word, address in words]
        check = [
            f"v_lshrrev_b64 {upper}, 32, {word}\nv_cmp_ne_u64 vcc, {upper}, {epoch}\ns_cbranch_vccnz 1b"
            for word, _ in words
        ]
        return "\n".join(["s_branch 2f", "1:", "s_sleep 1", "2:", *load, "s_waitcnt vmcnt(0)", *check])
    load = [f"ld.relaxed.sys.global.b64 {word}, [{address}];" for word, address in words]
    check = [f"shr.u64 {upper}, {word}, 32; setp.ne.u64 late, {upper}, {epoch}; @late bra again;" for word, _ in words]
    return "\n".join(["{", ".reg .pred late;", "again:", *load, *check, "}"])


@triton.constexpr_function
def _outputs(count):
    """Their types: the words, and a register for the assembly."""
    return (tl.int64,) * (count + 1)


@triton.constexpr_function
def _operands(count, hip):
    """The constraints that go with ``_awaiting``: outputs, addresses, epoch, and what is overwritten beside."""
    kind = "v" if hip else "l"
    return ",".join([f"=&{kind}"] * (count + 1) + [kind] * (count + 1) + ["~{vcc}"] * hip + ["~{memory}"])
