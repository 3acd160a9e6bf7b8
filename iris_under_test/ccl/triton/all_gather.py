"""All-gather in Triton: tiles are read once and pushed to every member of the group.

Symbols: W group size, (M, N) input, (W*M, N) output. Two kernels: *flat*, where both tensors are contiguous and a
rank's rows are one run of M*N elements, and *strided*, where they are not. Two variants of each: *persistent*, in which
a program pushes its tiles to every member, and *partitioned*, in which it serves one member only.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from iris_under_test.ccl.tiles import triton_grouped_tile, triton_spread_over_xcds
from iris_under_test.ccl.utils import compiler_options
from iris_under_test.device.triton import translate
from iris_under_test.host.tracing.kernel_artifacts import iris_launch

if TYPE_CHECKING:
    from iris_under_test.ccl.config import Config

__all__ = ["flat_all_gather", "launch_all_gather", "strided_all_gather"]

_DIFFERS = ["rank_in_group", "rank_start", "rank_stride"]
"""Not specialised: what differs between ranks and groups, so that all ranks run one binary."""


@triton.jit
def _member_outputs(
    context_tensor, output_ptr, pid, rank_in_group, rank_start, rank_stride,
    WORLD_SIZE: tl.constexpr, PARTED: tl.constexpr, ALIGNMENT: tl.constexpr,
):  # fmt: skip
    """The output as each member has it that this program serves, starting with the own rank."""
    heap_bases = context_tensor + 2
    rank = tl.load(context_tensor).to(tl.int32)
    outputs = ()
    if PARTED:
        member = (rank_in_group + pid) % WORLD_SIZE
        outputs += (translate(output_ptr, heap_bases, rank, rank_start + member * rank_stride, ALIGNMENT),)
    else:
        for step in tl.static_range(WORLD_SIZE):
            member = (rank_in_group + step) % WORLD_SIZE
            outputs += (translate(output_ptr, heap_bases, rank, rank_start + member * rank_stride, ALIGNMENT),)
    return outputs


@triton.jit(do_not_specialize=_DIFFERS)
def flat_all_gather(
    context_tensor, input_ptr, output_ptr, count, rank_in_group, rank_start, rank_stride,
    WORLD_SIZE: tl.constexpr, PARTED: tl.constexpr, ALIGNMENT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """``count`` elements from ``input_ptr`` go to elements [rank * count, rank * count + count) of every member.

    Whole blocks move without a mask, so that accesses are 16 bytes wide whatever the tail is.

    Example: count 10, BLOCK 4, 2 programs: program 0 moves elements 0..3 and the tail 8..9, program 1 moves 4..7.
    """
    pid = tl.program_id(0)
    SERVED: tl.constexpr = 1 if PARTED else WORLD_SIZE
    SHARES: tl.constexpr = WORLD_SIZE if PARTED else 1
    # 64-bit before the first multiplication: tensors of 2^31 elements and more are ordinary here.
    start = rank_in_group.to(tl.int64) * count
    outputs = _member_outputs(
        context_tensor, output_ptr, pid, rank_in_group, rank_start, rank_stride, WORLD_SIZE, PARTED, ALIGNMENT
    )
    step = tl.num_programs(0) // SHARES
    offsets = tl.arange(0, BLOCK)
    whole = (count + 0 * pid) // BLOCK  # a tensor also where count is 1, which Triton makes a constant
    for block in range(pid // SHARES, whole, step):
        places = block.to(tl.int64) * BLOCK + offsets
        data = tl.load(input_ptr + places)
        for served in tl.static_range(SERVED):
            tl.store(outputs[served] + start + places, data)  # remote
    if whole % step == pid // SHARES and whole * BLOCK < count:
        places = whole.to(tl.int64) * BLOCK + offsets
        data = tl.load(input_ptr + places, mask=places < count)
        for served in tl.static_range(SERVED):
            tl.store(outputs[served] + start + places, data, mask=places < count)  # remote


@triton.jit(do_not_specialize=["M", *_DIFFERS])
def strided_all_gather(
    context_tensor, input_ptr, output_ptr, M, N, stride_in_m, stride_in_n, stride_out_m, stride_out_n,
    rank_in_group, rank_start, rank_stride,
    WORLD_SIZE: tl.constexpr, PARTED: tl.constexpr, ALIGNMENT: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    GROUP_M: tl.constexpr, NUM_XCDS: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """Tiles of BLOCK_M x BLOCK_N go to output rows [rank*M, rank*M + M) of every member."""
    pid = tl.program_id(0)
    SERVED: tl.constexpr = 1 if PARTED else WORLD_SIZE
    SHARES: tl.constexpr = WORLD_SIZE if PARTED else 1
    step = tl.num_programs(0) // SHARES
    first = triton_spread_over_xcds(pid // SHARES, step, NUM_XCDS, CHUNK)
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    outputs = _member_outputs(
        context_tensor, output_ptr, pid, rank_in_group, rank_start, rank_stride, WORLD_SIZE, PARTED, ALIGNMENT
    )
    for tile in range(first, tiles_m * tiles_n, step):
        tile_m, tile_n = triton_grouped_tile(tile, tiles_m, tiles_n, GROUP_M)
        rows = (tile_m * BLOCK_M + tl.arange(0, BLOCK_M))[:, None]
        columns = (tile_n * BLOCK_N + tl.arange(0, BLOCK_N))[None, :]
        mask = (rows < M) & (columns < N)
        rows64, columns64 = rows.to(tl.int64), columns.to(tl.int64)
        output_rows = rows64 + rank_in_group.to(tl.int64) * M
        data = tl.load(input_ptr + (rows64 * stride_in_m + columns64 * stride_in_n), mask=mask)
        places = output_rows * stride_out_m + columns64 * stride_out_n
        for served in tl.static_range(SERVED):
            tl.store(outputs[served] + places, data, mask=mask)  # remote


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
    parted = config.all_gather_variant == "partitioned"
    shares = group_size if parted else 1
    alignment = math.gcd(output_tensor.data_ptr(), 16)
    place = (rank_in_group, rank_start, rank_stride, group_size, parted, alignment)
    options = {
        **compiler_options(config),
        # Of the launch, for the artifacts.
        "algorithm": "all_gather",
        "rank": rank_start + rank_in_group * rank_stride,
        "dtype": input_tensor.dtype,
    }

    def programs(tiles: int) -> tuple[int]:
        # Programs beyond the number of tiles would have nothing to do.
        return (min(config.comm_sms // shares, tiles) * shares,)

    if input_tensor.is_contiguous() and output_tensor.is_contiguous():
        block, count = block_m * block_n, rows * columns
        iris_launch(
            flat_all_gather,
            programs(-(-count // block)),
            context_tensor,
            input_tensor,
            output_tensor,
            count,
            *place,
            block,
            **options,
        )
    else:
        iris_launch(
            strided_all_gather,
            programs(-(-rows // block_m) * -(-columns // block_n)),
            context_tensor,
            input_tensor,
            output_tensor,
            rows,
            columns,
            *input_tensor.stride(),
            *output_tensor.stride(),
            *place,
            block_m,
            block_n,
            config.swizzle_size,
            config.num_xcds,
            config.chunk_size,
            **options,
        )
