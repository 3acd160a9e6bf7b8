"""A file of benchmarks, as a user of the library writes one; ``test_main.py`` runs it. HARNESS_PACKAGE names the
library."""

import importlib
import os

import torch

ccl = importlib.import_module(f"{os.environ['HARNESS_PACKAGE']}.ccl")
bench = importlib.import_module(f"{os.environ['HARNESS_PACKAGE']}.bench")


@bench.register
@bench.axis("num_ranks", [1, 2])
@bench.axis("rows", bench.power_of_two(0, 1))
@bench.axis("dtype", [torch.float16, torch.float32])
def gather(state, ctx):
    """Times the completion too, and counts its calls."""
    mine = ctx.full((state["rows"], 64), ctx.get_rank() + 1.0, dtype=state["dtype"])
    everything = ctx.zeros(state["num_ranks"] * state["rows"], 64, dtype=state["dtype"])
    state.set_bytes((state["num_ranks"] - 1) * mine.numel() * mine.element_size())
    state.add_counter("asked", state.get("rows"))
    config = ccl.Config(use_gluon=state.use_gluon)
    state.exec(lambda: ctx.ccl.all_gather(everything, mine, config=config), preamble_fn=everything.zero_)


@bench.register
@bench.axis("num_ranks", [2])
def left_out(state, ctx):
    state.skip("for a reason")


@bench.register
@bench.axis("num_ranks", [2])
def own_counts(state, ctx):
    state.set_warmup(0)
    state.set_repeat(2)
    state.set_flops(1e9)
    state.add_counter("gluon", int(state.use_gluon))
    state.exec(lambda: None)


if __name__ == "__main__":
    bench.main()
