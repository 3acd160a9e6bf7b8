"""The yardstick of benchmarks.collectives_isa: an all-gather that loads each tile once and stores it W times."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from benchmarks.one_process import Rank
from iris_under_test.ccl import Config
from iris_under_test.device.gluon import IrisDeviceCtx
from iris_under_test.device.gluon.address import translate
from iris_under_test.host.platform.base import warp_size

__all__ = ["flat_2d_kernel", "launch"]


@gluon.jit(do_not_specialize=["M", "tiles"])
def flat_2d_kernel(
    IrisDeviceCtx: gl.constexpr, context, input_ptr, output_ptr, M, N, tiles,
    WORLD_SIZE: gl.constexpr, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr,
    PER_LANE: gl.constexpr, LANES: gl.constexpr, WARPS: gl.constexpr,
):  # fmt: skip
    """A tile of BLOCK_M x BLOCK_N elements is one flat block; tiles count along N first. Contiguous tensors.

    Example: W = 2, rank 1, M = 3: element (2, 0) of the input goes to (5, 0) of both ranks' outputs.
    """
    ctx = IrisDeviceCtx.initialize(context)
    flat = gl.arange(0, BLOCK_M * BLOCK_N, layout=gl.BlockedLayout([PER_LANE], [LANES], [WARPS], [0]))
    outputs = ()
    for step in gl.static_range(WORLD_SIZE):
        outputs += (translate(output_ptr, ctx.heap_bases, ctx.cur_rank, (ctx.cur_rank + step) % WORLD_SIZE),)
    tiles_n = gl.cdiv(N, BLOCK_N)
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        rows = tile // tiles_n * BLOCK_M + flat // BLOCK_N
        columns = tile % tiles_n * BLOCK_N + flat % BLOCK_N
        mask = (rows < M) & (columns < N)
        offsets = rows.to(gl.int64) * N + columns
        data = gl.load(input_ptr + offsets, mask=mask)
        for step in gl.static_range(WORLD_SIZE):
            gl.store(outputs[step] + (ctx.cur_rank.to(gl.int64) * M * N + offsets), data, mask=mask)


def launch(rank: Rank, tensors: Sequence[torch.Tensor], config: Config) -> None:
    """Enqueues the kernel, without a barrier around it. ``tensors``: output, input."""
    output, source = tensors
    m, n = source.shape
    block_m, block_n, lanes = config.block_size_m, config.block_size_n, warp_size()
    tiles = -(-m // block_m) * -(-n // block_n)
    per_lane = min(block_m * block_n // (lanes * config.num_warps), 16 // source.element_size())
    flat_2d_kernel[(min(config.comm_sms, tiles),)](
        IrisDeviceCtx, rank.get_device_context(), source, output, m, n, tiles, rank.num_ranks, block_m, block_n,
        per_lane, lanes, config.num_warps, num_warps=config.num_warps,
    )  # fmt: skip
