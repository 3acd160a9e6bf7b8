"""all_gather of the library over world sizes, shapes and element types, by its own bench module; see docs/measuring.md.

    python benchmarks/all_gather.py --axis_num_ranks=4 --axis_M=pow2:10:12 --benchmark_out=all_gather.csv

Symbols: W ranks, (M, N) the input of each. Counted are the bytes that reach a rank from the others. Every output is
compared with what the ranks sent.
"""

import torch

from iris_under_test import bench, ccl


def payload(rank, rows, columns, dtype, device):
    """Shape (rows, columns): whole numbers below 251, which 8 bits of mantissa hold; each rank's are others."""
    row = torch.arange(rows, dtype=torch.int32, device=device)[:, None] * 7
    column = torch.arange(columns, dtype=torch.int32, device=device)[None, :]
    return ((row + column + 13 * rank) % 251).to(dtype)


@bench.register
@bench.axis("num_ranks", [2, 4, 8])
@bench.axis("M", bench.power_of_two(10, 14))
@bench.axis("N", bench.power_of_two(10, 14))
@bench.axis("dtype", [torch.float16, torch.bfloat16])
def all_gather(state, ctx):
    ranks, rows, columns, dtype = (state[name] for name in ("num_ranks", "M", "N", "dtype"))
    mine = ctx.empty(rows, columns, dtype=dtype)
    gathered = ctx.empty(ranks * rows, columns, dtype=dtype)
    mine.copy_(payload(ctx.get_rank(), rows, columns, dtype, ctx.get_device()))
    config = None
    if state.use_gluon:
        config = ccl.tuned_config(
            "all_gather", element_size=dtype.itemsize, world_size=ranks, nbytes=gathered.nbytes, use_gluon=True
        )

    def right():
        return all(
            torch.equal(share, payload(rank, rows, columns, dtype, ctx.get_device()))
            for rank, share in enumerate(gathered.chunk(ranks))
        )

    state.set_bytes((ranks - 1) * mine.nbytes)
    state.exec(
        lambda: ctx.ccl.all_gather(gathered, mine, async_op=True, config=config),
        preamble_fn=gathered.zero_,
        check_fn=right,
    )


if __name__ == "__main__":
    bench.main()
