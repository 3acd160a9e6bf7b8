"""All-gather in Gluon: flat-2D tiles, each read once and pushed to every member of the group.

Symbols: W group size, (M, N) input, (W*M, N) output. A tile of BLOCK_M x BLOCK_N elements is one flat 1-D block whose
fastest index runs along N; the layout gives each lane up to 16 bytes. The compiler proves accesses 16 bytes wide if N,
the strides along M and the pointers are multiples of 16 and the strides along N are 1 (Triton specialises on these).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from iris_under_test.ccl.tiles import grouped_tile, spread_over_xcds
from iris_under_test.ccl.utils import compiler_options
from iris_under_test.device.gluon import IrisDeviceCtx
from iris_under_test.device.gluon.address import translate
from iris_under_test.host.platform.base import warp_size
from iris_under_test.host.tracing.kernel_artifacts import iris_launch

if TYPE_CHECKING:
    from iris_under_test.ccl.config import Config

__all__ = ["launch_all_gather", "persistent_all_gather"]


# Not specialised: what differs between ranks and groups, so that all ranks run one binary.
@gluon.jit(do_not_specialize=["M", "rank_in_group", "rank_start", "rank_stride"])
def persistent_all_gather(
    IrisDeviceCtx: gl.constexpr,
    context_tensor,
    input_ptr,
    output_ptr,
    M,
    N,
    stride_in_m,
    stride_in_n,
    stride_out_m,
    stride_out_n,
    rank_in_group,
    rank_start,
    rank_stride,
    WORLD_SIZE: gl.constexpr,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    GROUP_M: gl.constexpr,
    NUM_XCDS: gl.constexpr,
    CHUNK: gl.constexpr,
    ELEMENTS_PER_LANE: gl.constexpr,
    LANES: gl.constexpr,
    WARPS: gl.constexpr,
):
    """Programs stride over the tiles; each tile goes to output rows [rank*M, rank*M + M) of every member.

    Writes start with the own rank and go round the group, so that at any time the members write to different ones.

    Example: W = 4, rank 2: a tile goes to ranks 2, 3, 0, 1.
    """
    ctx = IrisDeviceCtx.initialize(context_tensor)
    layout: gl.constexpr = gl.BlockedLayout([ELEMENTS_PER_LANE], [LANES], [WARPS], [0])
    flat = gl.arange(0, BLOCK_M * BLOCK_N, layout=layout)
    row_in_tile = flat // BLOCK_N
    column_in_tile = flat % BLOCK_N

    tiles_m = gl.cdiv(M, BLOCK_M)
    tiles_n = gl.cdiv(N, BLOCK_N)
    num_programs = gl.num_programs(0)
    first = spread_over_xcds(gl.program_id(0), num_programs, NUM_XCDS, CHUNK)

    # Moved to every member once, not at each store: AMD GPUs count loads and stores together, so waiting for a heap
    # base behind a store would wait for that store to reach its peer.
    outputs = ()
    for step in gl.static_range(WORLD_SIZE):
        member = (rank_in_group + step) % WORLD_SIZE
        outputs += (translate(output_ptr, ctx.heap_bases, ctx.cur_rank, rank_start + member * rank_stride),)

    for tile_id in range(first, tiles_m * tiles_n, num_programs):
        tile_m, tile_n = grouped_tile(tile_id, tiles_m, tiles_n, GROUP_M)
        rows = tile_m * BLOCK_M + row_in_tile
        columns = tile_n * BLOCK_N + column_in_tile
        mask = (rows < M) & (columns < N)

        # 64-bit before the first multiplication: tensors of 2^31 elements and more are ordinary here.
        rows64 = rows.to(gl.int64)
        columns64 = columns.to(gl.int64)
        output_rows = rows64 + rank_in_group.to(gl.int64) * M
        data = gl.load(input_ptr + (rows64 * stride_in_m + columns64 * stride_in_n), mask=mask)
        output_offsets = output_rows * stride_out_m + columns64 * stride_out_n
        for step in gl.static_range(WORLD_SIZE):
            gl.store(outputs[step] + output_offsets, data, mask=mask)  # remote


def launch_all_gather(
    output_tensor: torch.Tensor,
    input_tensor: torch.Tensor,
    context_tensor: torch.Tensor,
    *,
    rank_in_group: int,
    group_size: int,
    rank_start: int,
    rank_stride: int,
    block_m: int,
    block_n: int,
    config: Config,
) -> None:
    """Enqueues the kernel on the current stream; arguments have been checked. No synchronisation."""
    rows, columns = input_tensor.shape
    lanes = warp_size()
    per_lane = block_m * block_n // (lanes * config.num_warps)
    tiles = -(-rows // block_m) * -(-columns // block_n)
    # Programs beyond the number of tiles would have nothing to do.
    iris_launch(
        persistent_all_gather,
        (min(config.comm_sms, tiles),),
        IrisDeviceCtx,
        context_tensor,
        input_tensor,
        output_tensor,
        rows,
        columns,
        *input_tensor.stride(),
        *output_tensor.stride(),
        rank_in_group,
        rank_start,
        rank_stride,
        group_size,
        block_m,
        block_n,
        config.swizzle_size,
        config.num_xcds,
        config.chunk_size,
        min(per_lane, max(1, 16 // input_tensor.element_size())),
        lanes,
        config.num_warps,
        algorithm="all_gather",
        rank=rank_start + rank_in_group * rank_stride,
        dtype=input_tensor.dtype,
        **compiler_options(config),
    )
