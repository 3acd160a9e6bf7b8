"""matmul_all_gather in Triton: each finished tile is sent to every member at once."""

import triton
import triton.language as tl

from iris_under_test.device.signals import first_turn, signal, wait

from .arguments import Matrix
from .matmul import Inner, add_product, everywhere, place_of_tile, tiles_of, wide_product
from .tiles import spread_over_xcds

__all__ = ["matmul_and_push"]


@triton.jit(do_not_specialize=["member", "M"])
def matmul_and_push(
    context_tensor, pads, member, a, b, c, bias, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, stride_bias,
    SIZE: tl.constexpr, BIASED: tl.constexpr, ALIGNMENT: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, EVEN_K: tl.constexpr,
    GROUP_M: tl.constexpr, NUM_XCDS: tl.constexpr, CHUNK: tl.constexpr,
    CACHE_A: tl.constexpr, CACHE_B: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write tiles of ``a @ b`` (M, N) to rows [member * M, member * M + M) of every member's ``c``.

    At most one program per tile. Sending tile i overlaps with computing tile i + 1.

    Example: SIZE 2, M 16, N 32, 16 x 16 tiles, 2 programs: on member 1 program 0 computes columns 0..15 and stores them
    into rows 16..31 of both members' ``c``, program 1 does the same with columns 16..31.
    """
    program, programs = tl.program_id(0), tl.num_programs(0)
    outputs = everywhere(context_tensor, c, member, SIZE, ALIGNMENT)
    turn = first_turn(pads, member, SIZE, program)
    signal(pads, member, SIZE, program, turn)  # my c may be overwritten
    first = spread_over_xcds(program, programs, NUM_XCDS, CHUNK)
    for tile in range(first, tiles_of(M, N, BLOCK_M, BLOCK_N), programs):
        rows, columns = place_of_tile(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        total = add_product(
            total, Matrix(a, stride_am, stride_ak), Matrix(b, stride_bk, stride_bn), rows, columns, M, N, K,
            Inner(BLOCK_K, EVEN_K, CACHE_A, CACHE_B, PRECISION),
        )  # fmt: skip
        if BIASED:
            total += tl.load(bias + rows * stride_bias, mask=rows < M, other=0.0).to(tl.float32)
        if tile == first:
            wait(pads, SIZE, program, turn)  # theirs too; by now they have had a tile's time
        places = (rows + wide_product(member, M)) * stride_cm + columns * stride_cn
        value = total.to(c.dtype.element_ty)
        for step in tl.static_range(SIZE):
            tl.store(outputs[step] + places, value, mask=(rows < M) & (columns < N))
    signal(pads, member, SIZE, program, turn + 1)
    wait(pads, SIZE, program, turn + 1)
