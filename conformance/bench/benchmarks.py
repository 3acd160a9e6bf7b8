"""A file of benchmarks, as a user of the library writes one; ``test_main.py`` runs it.

HARNESS_PACKAGE names the library. HARNESS_CALLS names a file to which rank 0 appends a line for each call.
"""

import importlib
import os

import torch

ccl = importlib.import_module(f"{os.environ['HARNESS_PACKAGE']}.ccl")
bench = importlib.import_module(f"{os.environ['HARNESS_PACKAGE']}.bench")


def _gluon(state):
    """Return the option --use_gluon. The published State does not have it, although the option exists."""
    return getattr(state, "use_gluon", True)


def alone(state):
    """Skip the benchmark in a world of one rank, which exists for the order of the results; return whether it is."""
    if state["num_ranks"] == 1:
        state.skip("one rank")
    return state["num_ranks"] == 1


def counted(ctx, name, act):
    def call():
        if ctx.get_rank() == 0:
            with open(os.environ["HARNESS_CALLS"], "a", encoding="utf-8") as file:
                file.write(f"{name}\n")
        act()

    return call


@bench.register
@bench.axis("num_ranks", [1, 2])
@bench.axis("rows", bench.power_of_two(0, 2))
@bench.axis("dtype", [torch.float16, torch.float32])
def gather(state, ctx):
    """Measure all_gather, including its completion."""
    if alone(state):
        return
    mine = ctx.full((state["rows"], 64), ctx.get_rank() + 1.0, dtype=state["dtype"])
    everything = ctx.zeros(state["num_ranks"] * state["rows"], 64, dtype=state["dtype"])
    state.set_bytes((state["num_ranks"] - 1) * mine.numel() * mine.element_size())
    state.add_counter("requested", state.get("rows"))
    config = ccl.Config(use_gluon=_gluon(state))
    state.exec(
        counted(ctx, "gather", lambda: ctx.ccl.all_gather(everything, mine, config=config)),
        preamble_fn=counted(ctx, "before", everything.zero_),
    )


@bench.register
def of_eight(state, ctx):
    """Have no axis num_ranks: other world sizes than 8 skip it."""
    raise AssertionError("it runs in another world size")


@bench.register
@bench.axis("rows", [2, 4])
@bench.axis("num_ranks", [2])
def left_out(state, ctx):
    state.skip("for a reason")


@bench.register
@bench.axis("num_ranks", [2])
def own_counts(state, ctx):
    if alone(state):
        return
    state.set_warmup(0)
    state.set_repeat(2)
    state.set_flops(1e9)
    state.add_counter("gluon", int(_gluon(state)))
    state.add_counter("heap", ctx.heap_size)
    state.exec(counted(ctx, "own", lambda: None))


if __name__ == "__main__":
    bench.main()
