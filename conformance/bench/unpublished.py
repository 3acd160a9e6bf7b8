"""A file of benchmarks that uses what the published API does not have; ``test_main.py`` runs it.

HARNESS_PACKAGE names the library. HARNESS_CALLS is the start of the names of files to which rank 0 adds a byte for each
call.
"""

import importlib
import os
import time
from pathlib import Path

bench = importlib.import_module(f"{os.environ['HARNESS_PACKAGE']}.bench")

CALL_S = 2.0


@bench.register
def of_eight(state, ctx):
    """Have no axis num_ranks; the command line excludes 8 ranks."""
    raise AssertionError("it runs in a world size that is excluded")


@bench.register
@bench.axis("num_ranks", [2])
@bench.axis("form", ["ring", "1e3"])
@bench.axis("mode", ["2", "1.0", "inf"])
def late(state, ctx):
    """Time a call that takes long on rank 0 and no time on rank 1; all calls must have ended when it is checked."""
    calls = Path(f"{os.environ['HARNESS_CALLS']}-{state['form']}-{state['mode']}")

    def call():
        if ctx.get_rank() == 0:
            time.sleep(CALL_S)
            with calls.open("ab") as file:
                file.write(b".")

    def complete():
        return calls.stat().st_size == 1 + state.n_warmup + state.n_repeat if calls.exists() else False

    state.set_warmup(0)
    state.set_repeat(1)
    state.exec(call, check_fn=complete)


@bench.register
@bench.axis("num_ranks", [2])
def crash(state, ctx):
    """End the process of rank 1. It is the last benchmark: the others have figures."""
    if ctx.get_rank() == 1:
        os._exit(3)
    state.exec(lambda: None)


if __name__ == "__main__":
    bench.main()
