"""Benchmarks that do well, and benchmarks that do each thing wrong; ``test_bench.py`` runs this file as its users do.

Nothing here launches a kernel: what is measured is the host's work, so that it is quick.
"""

import time

import torch

from iris_under_test import bench


@bench.register
@bench.axis("num_ranks", [1, 2])
@bench.axis("dtype", [torch.float16, torch.float32])
@bench.axis("n", [64, 128])
def well(state, ctx):
    """Counts its calls, so that the results show how often each function ran."""
    data = ctx.zeros(state["n"], dtype=state["dtype"])
    calls = {"fn": 0, "preamble": 0}

    def fn():
        calls["fn"] += 1
        data.add_(1)

    def preamble():
        calls["preamble"] += 1
        data.zero_()

    def check():
        return calls == {"fn": 1 + 2 + 3, "preamble": 1 + 2 + 3} and bool((data == 1).all())

    state.set_bytes(data.nbytes)
    state.set_flops(2e12)
    state.add_counter("elements", data.numel())
    state.exec(fn, preamble_fn=preamble, check_fn=check)


@bench.register
@bench.axis("num_ranks", [2])
def its_own_counts(state, ctx):
    """Report also the values of ``get`` for known and for unknown axes."""
    state.set_warmup(0)
    state.set_repeat(state.get("num_ranks") + state.get("missing", 2))
    state.exec(lambda: None)


@bench.register
@bench.axis("num_ranks", [2])
@bench.axis("why", ["too small"])
def skipped(state, ctx):
    state.skip(f"it is {state['why']}")


@bench.register
@bench.axis("num_ranks", [2])
def without_exec(state, ctx):
    state.set_bytes(1)


@bench.register
@bench.axis("num_ranks", [2])
def raises_on_rank_1(state, ctx):
    if ctx.get_rank() == 1:
        raise ArithmeticError("planted on rank 1")
    state.exec(lambda: None)


@bench.register
@bench.axis("num_ranks", [2])
def raises_when_timed(state, ctx):
    state.exec(lambda: 1 / 0)


@bench.register
@bench.axis("num_ranks", [2])
def wrong_on_rank_1(state, ctx):
    state.exec(lambda: None, check_fn=lambda: ctx.get_rank() == 0)


@bench.register
@bench.axis("num_ranks", [2])
def counts_differ(state, ctx):
    state.set_repeat(3 + ctx.get_rank())
    state.exec(lambda: None)


@bench.register
@bench.axis("num_ranks", [2])
def more_than_the_heap(state, ctx):
    ctx.zeros(ctx.heap_size + 1, dtype=torch.uint8)


@bench.register
@bench.axis("num_ranks", [2])
def with_gluon(state, ctx):
    state.add_counter("gluon", float(state.use_gluon))
    state.exec(lambda: None)


@bench.register
def on_eight_ranks(state, ctx):
    state.exec(lambda: None)


@bench.register
@bench.axis("num_ranks", [2])
def a_stuck(state, ctx):
    if ctx.get_rank() == 1:
        time.sleep(3600)
    ctx.barrier()


@bench.register
@bench.axis("num_ranks", [2])
def after_it(state, ctx):
    state.exec(lambda: None)


if __name__ == "__main__":
    bench.main()
