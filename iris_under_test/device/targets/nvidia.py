"""Device functions in PTX, for NVIDIA's GPUs. See ``targets``."""

import triton
import triton.language as tl

from iris_under_test.device.bounds import IRIS_DEBUG, POLL_LIMIT, bound, compiled_with_debug

__all__ = [
    "await_count",
    "await_turn",
    "await_words",
    "first_lane",
    "get_cu_id",
    "get_xcc_id",
    "observe",
    "pause",
    "peek",
    "publish",
    "read_realtime",
    "send_words",
    "signal_turn",
    "used",
]  # fmt: skip


@triton.jit
def publish():
    """Synchronise all warps, then fence in the first warp, which does the ``poke``.

    That fence is cumulative over the barrier; fences of all warps would wait for each other.
    """
    tl.debug_barrier()
    tl.inline_asm_elementwise(
        """{
        .reg .pred first; .reg .u32 lane;
        mov.u32 $0, 0;
        mov.u32 lane, %tid.x;
        setp.lt.u32 first, lane, 32;
        @first fence.acq_rel.sys;
        }""",
        "=&r,~{memory}", [], tl.int32, is_pure=False, pack=1,
    )  # fmt: skip


@triton.jit
def await_count(word, count, awaited: tl.constexpr):
    """Poll and fence in one thread; the others wait for it at the caller's barrier."""
    polls = tl.inline_asm_elementwise(
        _awaiting_count(IRIS_DEBUG or compiled_with_debug()),
        "=&r,l,r,~{memory}", [word.to(tl.int64), count], tl.int32, is_pure=False, pack=1,
    )  # fmt: skip
    bound(polls, awaited)


@triton.constexpr_function
def _awaiting_count(bounded):
    return f"""{{
        .reg .pred other, late; .reg .u32 lane, seen;
        mov.u32 $0, 0;
        mov.u32 lane, %tid.x;
        setp.ne.u32 other, lane, 0;
        @other bra done;
        again:
        ld.relaxed.sys.global.u32 seen, [$1];
        sub.u32 seen, seen, $2;
        setp.lt.s32 late, seen, 0;
        {_again("$0", bounded)}
        fence.acq_rel.sys;
        done:
        }}"""


@triton.constexpr_function
def _again(polls, bounded):
    """Return PTX that jumps back to ``again`` if ``late`` is true; in a debug build only until ``polls``, 0 at first,
    is POLL_LIMIT.
    """
    if not bounded:
        return "@late bra again;"
    return f"""@!late bra over;
        add.u32 {polls}, {polls}, 1;
        setp.lt.u32 late, {polls}, {POLL_LIMIT.value};
        @late bra again;
        over:"""


@triton.jit
def peek(word):
    """A volatile load is relaxed at system scope."""
    return tl.load(word, volatile=True)


@triton.jit
def observe():
    """Fence in each thread."""
    tl.inline_asm_elementwise("fence.acq_rel.sys; mov.u32 $0, 0;", "=r,~{memory}", [], tl.int32, is_pure=False, pack=1)


@triton.jit
def pause():
    """Do nothing."""


@triton.jit
def signal_turn(pads, member, SIZE: tl.constexpr, program, turn):
    """Write to member i from lane i of the first warp, after a fence of that warp alone.

    That fence is cumulative over the barrier of the block; fences of several warps would wait for one another. The
    address is loaded first, while the other warps still work.
    """
    word = tl.inline_asm_elementwise(
        """{
        .reg .pred beyond; .reg .u32 lane;
        mov.u64 $0, 0;
        mov.u32 lane, %tid.x;
        setp.ge.u32 beyond, lane, $3;
        @beyond bra done;
        mad.wide.u32 $0, lane, 8, $1;
        ld.global.u64 $0, [$0];
        add.u64 $0, $0, $2;
        done:
        }""",
        "=&l,l,l,r",
        [pads.to(tl.int64), (program * SIZE + member).to(tl.int64) * 4, tl.cast(SIZE, tl.int32)],
        tl.int64,
        is_pure=False,
        pack=1,
    )
    tl.debug_barrier()
    tl.inline_asm_elementwise(
        """{
        .reg .pred beyond; .reg .u32 lane;
        mov.u32 $0, 0;
        mov.u32 lane, %tid.x;
        setp.ge.u32 beyond, lane, $3;
        @beyond bra done;
        fence.acq_rel.sys;
        st.relaxed.sys.global.u32 [$1], $2;
        done:
        }""",
        "=&r,l,r,r,~{memory}",
        [word, turn, tl.cast(SIZE, tl.int32)],
        tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def await_turn(row, SIZE: tl.constexpr, turn, awaited: tl.constexpr):
    """Wait in lane i of the first warp for member i; the other warps wait for that warp."""
    polls = tl.inline_asm_elementwise(
        _awaiting_turn(IRIS_DEBUG or compiled_with_debug()),
        "=&r,l,r,r,~{memory}",
        [row.to(tl.int64), turn, tl.cast(SIZE, tl.int32)],
        tl.int32,
        is_pure=False,
        pack=1,
    )
    bound(polls, awaited)
    tl.debug_barrier()


@triton.constexpr_function
def _awaiting_turn(bounded):
    return f"""{{
        .reg .pred beyond, late; .reg .u32 lane, seen; .reg .u64 word;
        mov.u32 $0, 0;
        mov.u32 lane, %tid.x;
        setp.ge.u32 beyond, lane, $3;
        @beyond bra done;
        mad.wide.u32 word, lane, 4, $1;
        again:
        ld.acquire.sys.global.u32 seen, [word];
        sub.u32 seen, seen, $2;
        setp.lt.s32 late, seen, 0;
        {_again("$0", bounded)}
        done:
        }}"""


@triton.jit
def send_words(addresses, words):
    """Store each word at once: in PTX, relaxed accesses of 64 bits are single-copy atomic."""
    tl.inline_asm_elementwise(
        "st.relaxed.sys.global.b64 [$1], $2; mov.u32 $0, 0;",
        "=r,l,l,~{memory}", [addresses, words], tl.int32, is_pure=False, pack=1,
    )  # fmt: skip


@triton.jit
def await_words(addresses, epoch, awaited: tl.constexpr):
    """Poll in each lane until it has its own words."""
    COUNT: tl.constexpr = len(addresses)
    addresses += (epoch,)
    BOUNDED: tl.constexpr = IRIS_DEBUG or compiled_with_debug()
    words = tl.inline_asm_elementwise(
        _awaiting_words(COUNT, BOUNDED), _operands(COUNT, BOUNDED), addresses, _outputs(COUNT, BOUNDED),
        is_pure=False, pack=1,
    )  # fmt: skip
    if BOUNDED:
        bound(words[COUNT + 1], awaited)
    return words


@triton.constexpr_function
def _awaiting_words(count, bounded):
    """Return PTX that loads ``count`` words into $0 and following until the upper half of each equals the last operand.

    A debug build also stops after POLL_LIMIT polls. After the words comes a register for the comparison, then, in a
    debug build, the number of polls.
    """
    outputs = count + 1 + bounded
    words = [(f"${index}", f"${outputs + index}") for index in range(count)]
    upper, polls, epoch = f"${count}", f"${count + 1}", f"${outputs + count}"
    load = [f"ld.relaxed.sys.global.b64 {word}, [{address}];" for word, address in words]
    late = "@late bra more;" if bounded else _again(polls, bounded)
    check = [f"shr.u64 {upper}, {word}, 32; setp.ne.u64 late, {upper}, {epoch}; {late}" for word, _ in words]
    start = [f"mov.u32 {polls}, 0;"] if bounded else []
    # At "more", ``late`` is false if all words have arrived.
    end = ["more:", _again(polls, bounded)] if bounded else []
    return "\n".join(["{", ".reg .pred late;", *start, "again:", *load, *check, *end, "}"])


@triton.constexpr_function
def _outputs(count, bounded):
    """Return the types of the outputs of ``_awaiting_words``."""
    return (tl.int64,) * (count + 1) + (tl.int32,) * bounded


@triton.constexpr_function
def _operands(count, bounded):
    """Return the constraints for ``_awaiting_words``: outputs, addresses, epoch."""
    outputs = ["=&l"] * (count + 1) + ["=&r"] * bounded
    return ",".join([*outputs, *["l"] * (count + 1), "~{memory}"])


@triton.jit
def used(old):
    """Return ``old`` unchanged."""
    return old


@triton.jit
def first_lane():
    """Return the number of the thread in its program."""
    return tl.inline_asm_elementwise("mov.u32 $0, %tid.x;", "=r", [], tl.int32, is_pure=True, pack=1)


@triton.jit
def read_realtime():
    """Read ``%globaltimer``."""
    return tl.inline_asm_elementwise("mov.u64 $0, %globaltimer;", "=l", [], dtype=tl.int64, is_pure=False, pack=1)


@triton.jit
def get_cu_id():
    """Read ``%smid``."""
    return tl.inline_asm_elementwise("mov.u32 $0, %smid;", "=r", [], dtype=tl.int32, is_pure=True, pack=1)


@triton.jit
def get_xcc_id():
    """Return 0: a device is one die."""
    return tl.cast(0, tl.int32)
