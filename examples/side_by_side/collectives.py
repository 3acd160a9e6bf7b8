"""Every collective of the library, compared with torch.distributed's.

    python examples/side_by_side/collectives.py

Each writes into a tensor of the symmetric heap; torch.distributed's result for the same inputs must be the same, bit
for bit. Whole numbers are summed, so that no order of the sum rounds.
"""

import torch
import torch.distributed as dist
from ranks import run

from iris_under_test.ccl import Config

ROWS, COLUMNS = 4, 64


def gather_by_ccl(ctx, out, mine):
    ctx.ccl.all_gather(out, mine)


def gather_by_torch(out, mine):
    dist.all_gather_into_tensor(out, mine)


def exchange_by_ccl(ctx, out, mine):
    ctx.ccl.all_to_all(out, mine)


def exchange_by_torch(out, mine):
    world = dist.get_world_size()
    arriving = torch.empty_like(mine)
    dist.all_to_all_single(arriving, torch.cat(mine.chunk(world, 1)))
    out.copy_(torch.cat(arriving.view(mine.shape[0] * world, -1).chunk(world), 1))


def sum_by_ccl(ctx, out, mine):
    ctx.ccl.all_reduce(out, mine)


def sum_by_torch(out, mine):
    out.copy_(mine)
    dist.all_reduce(out)


def share_by_ccl(ctx, out, mine):
    rows = ROWS // ctx.get_num_ranks()
    total = ctx.zeros((ROWS, COLUMNS), dtype=mine.dtype)
    ctx.ccl.reduce_scatter(total, mine, config=Config(block_size_m=rows, block_size_n=COLUMNS))
    out.copy_(total[ctx.get_rank() * rows :][:rows])


def share_by_torch(out, mine):
    dist.reduce_scatter_tensor(out, mine)


def broadcast_by_ccl(ctx, out, mine):
    out.copy_(mine)
    ctx.ccl.broadcast(out, src=1)


def broadcast_by_torch(out, mine):
    out.copy_(mine)
    dist.broadcast(out, src=1)


def pass_on_by_ccl(ctx, out, mine):
    rank, world = ctx.get_rank(), ctx.get_num_ranks()
    ctx.ccl.sendrecv(mine, out, dst=(rank + 1) % world, src=(rank - 1) % world)


def pass_on_by_torch(out, mine):
    rank, world = dist.get_rank(), dist.get_world_size()
    sending = dist.isend(mine, (rank + 1) % world)
    dist.recv(out, (rank - 1) % world)
    sending.wait()


PAIRS = (
    (gather_by_ccl, gather_by_torch),
    (exchange_by_ccl, exchange_by_torch),
    (sum_by_ccl, sum_by_torch),
    (share_by_ccl, share_by_torch),
    (broadcast_by_ccl, broadcast_by_torch),
    (pass_on_by_ccl, pass_on_by_torch),
)


def main(ctx):
    rank, world = ctx.get_rank(), ctx.get_num_ranks()
    mine = ctx.zeros((ROWS, COLUMNS), dtype=torch.float32)
    mine.copy_(torch.arange(ROWS * COLUMNS).view(ROWS, COLUMNS) * (rank + 1))
    rows = {gather_by_ccl: ROWS * world, share_by_ccl: ROWS // world}
    for by_ccl, by_torch in PAIRS:
        out = ctx.full((rows.get(by_ccl, ROWS), COLUMNS), -1, dtype=torch.float32)
        wanted = torch.full_like(out, -2)
        by_ccl(ctx, out, mine)
        by_torch(wanted, mine)
        assert torch.equal(out, wanted), f"rank {rank}, {by_ccl.__name__}: {out} is not {wanted}"
        ctx.info(f"{by_ccl.__name__}: as torch.distributed's")
    ctx.barrier()


if __name__ == "__main__":
    run(main)
