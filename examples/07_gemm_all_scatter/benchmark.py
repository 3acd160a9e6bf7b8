"""GEMM all-scatter in Triton: the counterpart of the Gluon one, with the same options except int8, and
``--num_stages``.

    python examples/07_gemm_all_scatter/benchmark.py -v -b -r 4 --BLK_M 128 --BLK_N 256 --num_stages 3     # Hopper

Here the compiler chooses layouts and pipelines. A tile is stored to all ranks when it is finished. Stores do not wait
for a peer, so they overlap with the next tile's product as far as the memory system allows. Exits with status 1 if any
element on any rank is wrong.
"""

import dataclasses
import functools

import torch
import triton
import triton.language as tl
from gluon.driver import main, parser
from gluon.gemm_all_scatter import GemmAllScatter

from iris_under_test.device.signals import first_turn, signal, wait
from iris_under_test.device.triton.address import translate
from iris_under_test.kernels.tiles import grouped_tile


@triton.jit
def gemm_all_scatter_kernel(
    context_tensor,
    pads,
    a,
    b,
    c,
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cm,
    WORLD_SIZE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    LOCAL: tl.constexpr,
):
    """C[:, rank * N : (rank + 1) * N] = A @ B at every rank.

    Example: W = 2, M = N = K = 1, A = [[2]], B = [[3]] at rank 0 and [[4]] at rank 1: C is [[6, 8]] at both.
    """
    rank = tl.load(context_tensor).to(tl.int32)
    heap_bases = context_tensor + 2
    program, programs = tl.program_id(0), tl.num_programs(0)
    turn = first_turn(pads, rank, WORLD_SIZE, program)
    signal(pads, rank, WORLD_SIZE, program, turn)
    # This rank's columns of C on every rank, itself first. Computed once: AMD GPUs would wait for stores before each
    # load.
    outputs = ()
    for step in tl.static_range(1 if LOCAL else WORLD_SIZE):
        outputs += (translate(c + rank * N, heap_bases, rank, (rank + step) % WORLD_SIZE),)
    # From here on ranks may write into each other's C.
    wait(pads, WORLD_SIZE, program, turn)

    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    for tile in range(program, tiles_m * tiles_n, programs):
        tile_m, tile_n = grouped_tile(tile, tiles_m, tiles_n, GROUP_M)
        rows = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
        columns = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
        left = a + (rows.to(tl.int64)[:, None] * stride_am + k[None, :] * stride_ak)
        right = b + (k[:, None] * stride_bk + columns.to(tl.int64)[None, :] * stride_bn)
        sums = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for start in range(0, K, BLOCK_K):
            x = tl.load(left, mask=(rows < M)[:, None] & (start + k < K)[None, :], other=0.0)
            y = tl.load(right, mask=(start + k < K)[:, None] & (columns < N)[None, :], other=0.0)
            sums = tl.dot(x, y, sums)
            left += BLOCK_K * stride_ak
            right += BLOCK_K * stride_bk
        data = sums.to(c.dtype.element_ty)
        offsets = rows.to(tl.int64)[:, None] * stride_cm + columns[None, :]
        for step in tl.static_range(1 if LOCAL else WORLD_SIZE):
            tl.store(outputs[step] + offsets, data, mask=(rows < M)[:, None] & (columns < N)[None, :])

    signal(pads, rank, WORLD_SIZE, program, turn + 1)
    wait(pads, WORLD_SIZE, program, turn + 1)


class TritonGemmAllScatter(GemmAllScatter):
    """The operation by the kernel above; see ``GemmAllScatter``. Tiles are not split and not traced."""

    def __init__(self, ctx, tiling, num_stages=2):
        super().__init__(ctx, dataclasses.replace(tiling, fewest_steps=0))
        self._num_stages = num_stages

    def launch(self, c, a, b, *, local, traced):
        if traced or a.dtype == torch.int8:
            raise ValueError(f"the Triton kernel supports neither tracing nor int8, got traced={traced} and {a.dtype}")
        tiling = self.tiling
        (rows, depth), columns = a.shape, b.shape[1]
        programs, _ = tiling.schedule(rows, columns, depth, self.ctx.get_cu_count())
        return gemm_all_scatter_kernel[(programs,)](
            self.ctx.get_device_context(),
            self.members.pads,
            a,
            b,
            c,
            rows,
            columns,
            depth,
            *a.stride(),
            *b.stride(),
            c.stride(0),
            self.members.size,
            tiling.block_m,
            tiling.block_n,
            tiling.block_k,
            tiling.group_m,
            local,
            num_stages=self._num_stages,
            num_warps=8 if tiling.block_m * tiling.block_n >= 128 * 128 else 4,
        )


if __name__ == "__main__":
    options = parser(__doc__, ("fp16", "fp32", "bf16"))
    options.set_defaults(BLK_N=64)
    options.add_argument("--num_stages", type=int, default=2, help="compiler option: depth of the pipeline")
    chosen = options.parse_args()
    main(functools.partial(TritonGemmAllScatter, num_stages=chosen.num_stages), chosen)
