"""Device functions in instructions of AMD's gfx942 and gfx950. See ``targets``."""

import triton
import triton.language as tl
from triton.language.target_info import is_hip_cdna3, is_hip_cdna4

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
    """Make each wavefront wait until its own stores have reached memory, then synchronise all wavefronts.

    The barrier alone is not enough: an s_barrier does not wait for stores, and a write-back covers only its own
    wavefront's stores (LLVM, memory model of gfx942).
    """
    tl.inline_asm_elementwise(
        "buffer_wbl2 sc0 sc1\ns_waitcnt vmcnt(0) lgkmcnt(0)\nv_mov_b32 $0, 0",
        "=v,~{memory}", [], tl.int32, is_pure=False, pack=1,
    )  # fmt: skip
    tl.debug_barrier()


@triton.jit
def await_count(word, count, awaited: tl.constexpr):
    """Poll in each wavefront separately."""
    polls = 0
    while peek(word) - count < 0:
        pause()
        polls += 1
        bound(polls, awaited)
    observe()


@triton.jit
def peek(word):
    """Load past the caches. Not tl.load(volatile=True): Triton 3.6 makes it a plain load, which a cache may answer
    forever.
    """
    return tl.inline_asm_elementwise(
        "global_load_dword $0, $1, off sc0 sc1\ns_waitcnt vmcnt(0)",
        "=v,v,~{memory}", [word.to(tl.int64)], tl.int32, is_pure=False, pack=1,
    )  # fmt: skip


@triton.jit
def observe():
    """Invalidate the caches."""
    tl.inline_asm_elementwise(
        "buffer_inv sc0 sc1\nv_mov_b32 $0, 0", "=v,~{memory}", [], tl.int32, is_pure=False, pack=1
    )


@triton.jit
def pause():
    """Sleep for 64 clocks."""
    tl.inline_asm_elementwise("s_sleep 1\nv_mov_b32 $0, 0", "=v", [], tl.int32, is_pure=False, pack=1)


@triton.jit
def signal_turn(pads, member, SIZE: tl.constexpr, program, turn):
    """Load the addresses first: AMD GPUs count loads and stores together, so a load after a store would wait for its
    peer.
    """
    first = _anew(member)
    own = (program * SIZE + member).to(tl.int64) * 4
    words = ()
    for step in tl.static_range(SIZE):
        # ``signals.behind``, which is unsigned for the same reason.
        peer = ((first + step).to(tl.uint32) % SIZE).to(tl.int32)
        words += ((tl.load(pads + peer) + own).to(tl.pointer_type(tl.int32)),)
    publish()
    for step in tl.static_range(SIZE):
        tl.atomic_xchg(words[step], turn, sem="relaxed", scope="sys")


@triton.jit
def await_turn(row, SIZE: tl.constexpr, turn, awaited: tl.constexpr):
    """Poll in each wavefront separately, lane i for member i."""
    late, polls = _is_any_late(row, SIZE, turn), 0
    while late != 0:
        pause()
        polls += 1
        bound(polls, awaited)
        late = _is_any_late(row, SIZE, turn)
    observe()


@triton.jit
def _anew(value):
    """Return ``value`` as a result that the compiler knows nothing about.

    So values computed from it are not kept from one signal to the next, in registers that the kernel needs in between.
    """
    return tl.inline_asm_elementwise("", "=s,0", [value], tl.int32, is_pure=False, pack=1)


@triton.jit
def _is_any_late(row, SIZE: tl.constexpr, turn):
    """Return 1 if a word of the row in memory has not reached the turn yet, else 0.

    Lane i of each wavefront reads word i, so that all words cost one round trip to memory; lanes beyond the last word
    read the last one.

    The s_nop: an address that a v_readfirstlane has put into SGPRs may be used by a load 5 wait states later, and a
    register that a matrix instruction of 16 passes writes may be written by another one 19 wait states later (LLVM,
    GCNHazardRecognizer). The compiler does not insert them inside inline assembly. Next to a load past all caches they
    take no time.
    """
    _, late = tl.inline_asm_elementwise(
        """s_nop 7
        s_nop 7
        s_nop 2
        v_mbcnt_lo_u32_b32 $0, -1, 0
        v_mbcnt_hi_u32_b32 $0, -1, $0
        v_min_u32 $0, $3, $0
        v_lshlrev_b32 $0, 2, $0
        global_load_dword $0, $0, $2 sc0 sc1
        s_waitcnt vmcnt(0)
        v_sub_u32 $0, $0, $4
        v_cmp_gt_i32 vcc, 0, $0
        s_cmp_lg_u64 vcc, 0
        s_cselect_b32 $1, 1, 0""",
        "=&v,=s,s,s,s,~{vcc},~{scc},~{memory}",
        [row.to(tl.int64), tl.cast(SIZE - 1, tl.int32), turn],
        (tl.int32, tl.int32),
        is_pure=False,
        pack=1,
    )
    return late


@triton.jit
def send_words(addresses, words):
    """Store each word with one instruction of 8 bytes, past all caches."""
    tl.inline_asm_elementwise(
        "global_store_dwordx2 $1, $2, off sc0 sc1\nv_mov_b32 $0, 0",
        "=v,v,v,~{memory}", [addresses, words], tl.int32, is_pure=False, pack=1,
    )  # fmt: skip


@triton.jit
def await_words(addresses, epoch, awaited: tl.constexpr):
    """Poll in all lanes of a wavefront until the last lane has its words."""
    COUNT: tl.constexpr = len(addresses)
    addresses += (epoch,)
    BOUNDED: tl.constexpr = IRIS_DEBUG or compiled_with_debug()
    words = tl.inline_asm_elementwise(
        _awaiting(COUNT, BOUNDED), _operands(COUNT, BOUNDED), addresses, _outputs(COUNT, BOUNDED),
        is_pure=False, pack=1,
    )  # fmt: skip
    if BOUNDED:
        bound(words[COUNT + 1], awaited)
    return words


@triton.constexpr_function
def _awaiting(count, bounded):
    """Return assembly that loads ``count`` words into $0 and following until the upper half of each equals the last
    operand.

    A debug build also stops after POLL_LIMIT polls. After the words comes a register for the comparison, then, in a
    debug build, the number of polls.
    """
    outputs = count + 1 + bounded
    words = [(f"${index}", f"${outputs + index}") for index in range(count)]
    upper, polls, epoch = f"${count}", f"${count + 1}", f"${outputs + count}"
    load = [f"global_load_dwordx2 {word}, {address}, off sc0 sc1" for word, address in words]
    check = [
        f"v_lshrrev_b64 {upper}, 32, {word}\nv_cmp_ne_u64 vcc, {upper}, {epoch}\ns_cbranch_vccnz 1b"
        for word, _ in words
    ]
    start = [f"s_mov_b32 {polls}, 0"] if bounded else []
    count_one = [f"s_add_u32 {polls}, {polls}, 1\ns_cmp_ge_u32 {polls}, {POLL_LIMIT.value}\ns_cbranch_scc1 3f"]
    lines = [
        *start,
        "s_branch 2f",
        "1:",
        *(count_one if bounded else []),
        "s_sleep 1",
        "2:",
        *load,
        "s_waitcnt vmcnt(0)",
    ]
    return "\n".join([*lines, *check, *(["3:"] if bounded else [])])


@triton.constexpr_function
def _outputs(count, bounded):
    """Return the types of the outputs of ``_awaiting``."""
    return (tl.int64,) * (count + 1) + (tl.int32,) * bounded


@triton.constexpr_function
def _operands(count, bounded):
    """Return the constraints for ``_awaiting``: outputs, addresses, epoch, and the other registers that are
    overwritten.
    """
    outputs = ["=&v"] * (count + 1) + ["=&s"] * bounded
    return ",".join([*outputs, *["v"] * (count + 1), "~{vcc}", *["~{scc}"] * bounded, "~{memory}"])


@triton.jit
def used(old):
    """Emit no instruction, only an operand ("v" is a vector register). Only the AMD compiler combines lanes."""
    if old.type.is_block() and old.dtype.is_int_signed():
        old = tl.inline_asm_elementwise("; $0", "=v,0", [old], dtype=old.dtype, is_pure=False, pack=1)
    return old


@triton.jit
def first_lane():
    """Return the number of the lane in its wavefront."""
    return tl.inline_asm_elementwise(
        "v_mbcnt_lo_u32_b32 $0, -1, 0\nv_mbcnt_hi_u32_b32 $0, -1, $0", "=&v", [], tl.int32, is_pure=True, pack=1
    )


@triton.jit
def read_realtime():
    """Wait for the value here: scalar memory answers out of order, and the compiler does not see into the assembly
    text.

    (Triton's own memrealtime waits for vector memory, which does not cover this read.)
    """
    return tl.inline_asm_elementwise(
        "s_memrealtime $0\ns_waitcnt lgkmcnt(0)", "=s", [], dtype=tl.int64, is_pure=False, pack=1
    )


@triton.jit
def get_cu_id():
    """Return bits 15..8 of the register HW_ID."""
    return tl.inline_asm_elementwise(
        "s_getreg_b32 $0, hwreg(HW_REG_HW_ID, 8, 8)", "=s", [], dtype=tl.int32, is_pure=True, pack=1
    )


@triton.jit
def get_xcc_id():
    """Return bits 3..0 of the register XCC_ID, which only gfx942 and gfx950 have (LLVM AMDGPU, hwreg 20)."""
    if is_hip_cdna3() or is_hip_cdna4():
        die = tl.inline_asm_elementwise(
            "s_getreg_b32 $0, hwreg(HW_REG_XCC_ID, 0, 4)", "=s", [], dtype=tl.int32, is_pure=True, pack=1
        )
    else:
        die = tl.cast(0, tl.int32)
    return die
