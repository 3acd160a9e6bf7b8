"""all_gather_matmul in Triton: some programs gather the shards of A, and all multiply the parts that have arrived.

Reading a peer's shard within the product would carry each element over the link once per column of tiles, so shards are
gathered once into local memory. Work is distributed by tickets: *units* (one panel of BLOCK_M rows of one shard) to the
first ``gatherers`` programs, then *tiles* to all programs. A program that gathers joins the product later, and takes
fewer tiles.

Progress, if a device starts programs in the order of their numbers, however few are resident at once: only a running
program takes a unit, and a gatherer waits only until the programs of its own number have started on the other members;
it signals that it has finished reading before it multiplies. Consider the lowest number whose program some device has
not started yet. All lower ones run or are done everywhere; the gatherers among them have gathered all units of their
devices, or no unit is left; so nothing blocks the product of those lower programs, they end, and the program starts.
"""

import triton
import triton.language as tl

from iris_under_test.device.bounds import bound
from iris_under_test.device.fences import observe, pause, peek, poke, publish
from iris_under_test.device.signals import behind, first_turn, signal, wait
from iris_under_test.device.triton.address import translate

from .arguments import Matrix
from .matmul import Inner, add_product, panel_of_tile, place_of_tile, tiles_of, wide_product

__all__ = ["COUNTERS", "gather_and_matmul"]

COUNTERS = 3
"""Number of int32 words before the units' flags: units taken, tiles taken, number of the call. At first 0, 0 and 1."""


@triton.jit(do_not_specialize=["member", "M", "gatherers"])
def gather_and_matmul(
    context_tensor, pads, member, a, gathered, words, b, c, bias, M, N, K,
    stride_am, stride_ak, stride_gathered, stride_bk, stride_bn, stride_cm, stride_cn, stride_bias, gatherers,
    SIZE: tl.constexpr, BIASED: tl.constexpr, ALIGNMENT: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, EVEN_K: tl.constexpr, COPY_K: tl.constexpr,
    GROUP_M: tl.constexpr, CACHE_A: tl.constexpr, CACHE_B: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Compute ``c`` (M, N) = all members' ``a`` (M, K), side by side, @ ``b`` (SIZE * K, N).

    ``gathered``: (SIZE, M, stride_gathered) local memory for the shards, rows padded to ``stride_gathered`` elements.
    ``words``: int32, local, COUNTERS and a flag per unit: number of the call that has gathered it. The sum over K goes
    through the shards in the order of members, whichever arrives first: all members get the same bits from the same b.

    Example: SIZE 2, 1 tile row: member 1 gathers unit 0, which is its own shard, then unit 1, member 0's.
    """
    program = tl.program_id(0)
    units = tl.cdiv(M, BLOCK_M) * SIZE
    call = peek(words + 2)
    flags = words + 3
    turn = first_turn(pads, member, SIZE, program)
    if program < gatherers:
        signal(pads, member, SIZE, program, turn)  # my shard may be read
        wait(pads, SIZE, program, turn)
        unit = tl.atomic_add(words, 1, sem="relaxed", scope="gpu")
        while unit < units:
            shard = behind(member, unit, SIZE)
            _gather(
                context_tensor, a, gathered, member, shard, unit // SIZE, M, K, stride_am, stride_ak, stride_gathered,
                ALIGNMENT, BLOCK_M, COPY_K,
            )  # fmt: skip
            publish()
            poke(flags + unit // SIZE * SIZE + shard, call)
            unit = tl.atomic_add(words, 1, sem="relaxed", scope="gpu")
        if unit == units + gatherers - 1:  # the last gatherer that finds no unit left
            tl.store(words, 0)
        signal(pads, member, SIZE, program, turn + 1)  # I have finished reading your shard

    tiles = tiles_of(M, N, BLOCK_M, BLOCK_N)
    tile = tl.atomic_add(words + 1, 1, sem="relaxed", scope="gpu")
    while tile < tiles:
        rows, columns = place_of_tile(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        panel = panel_of_tile(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for shard in range(SIZE):
            _wait_for(flags + panel * SIZE + shard, call)
            total = add_product(
                total, Matrix(gathered + wide_product(shard, stride_gathered) * M, stride_gathered, 1),
                Matrix(b + wide_product(shard, stride_bk) * K, stride_bk, stride_bn), rows, columns, M, N, K,
                Inner(BLOCK_K, EVEN_K, CACHE_A, CACHE_B, PRECISION),
            )  # fmt: skip
        if BIASED:
            total += tl.load(bias + rows * stride_bias, mask=rows < M, other=0.0).to(tl.float32)
        value = total.to(c.dtype.element_ty)
        tl.store(c + rows * stride_cm + columns * stride_cn, value, mask=(rows < M) & (columns < N))
        tile = tl.atomic_add(words + 1, 1, sem="relaxed", scope="gpu")
    if tile == tiles + tl.num_programs(0) - 1:  # the last program that finds no tile left: all have read ``call``
        tl.store(words + 1, 0)
        tl.store(words + 2, call + 1)
    if program < gatherers:
        wait(pads, SIZE, program, turn + 1)  # no member reads my shard any more


@triton.jit
def _gather(
    context_tensor, a, gathered, member, shard, panel, M, K, stride_am, stride_ak, stride_gathered,
    ALIGNMENT: tl.constexpr, BLOCK_M: tl.constexpr, COPY_K: tl.constexpr,
):  # fmt: skip
    """Copy rows [panel * BLOCK_M, ...) of one member's ``a`` into ``gathered``."""
    rows = (panel * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    source = translate(a, context_tensor + 2, member, shard, ALIGNMENT)
    target = gathered + wide_product(shard, stride_gathered) * M
    for start in range(0, K, COPY_K):
        columns = (start + tl.arange(0, COPY_K)).to(tl.int64)[None, :]
        mask = (rows < M) & (columns < K)
        value = tl.load(source + rows * stride_am + columns * stride_ak, mask=mask)
        tl.store(target + rows * stride_gathered + columns, value, mask=mask)


@triton.jit
def _wait_for(flag, call):
    """Wait until the unit of ``flag`` has been gathered in this ``call``."""
    seen, polls = peek(flag), 0
    while seen != call:
        pause()
        seen = peek(flag)
        polls += 1
        bound(polls, "all_gather_matmul: a part of A has not arrived")
    observe()
