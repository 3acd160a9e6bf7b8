"""Measuring: ``do_bench`` times one function; registered benchmarks are run by ``main`` over axes and world sizes.

from iris_under_test import bench

@bench.register
@bench.axis("num_ranks", [2, 4])
@bench.axis("n", bench.power_of_two(10, 20))
def copy_out(state, ctx):
    mine, all_of_them = ctx.zeros(1, state["n"]), ctx.zeros(state["num_ranks"], state["n"])
    state.set_bytes((state["num_ranks"] - 1) * mine.nbytes)
    state.exec(lambda: ctx.ccl.all_gather(all_of_them, mine, async_op=True))

if __name__ == "__main__":
    bench.main()
"""

from iris_under_test.host.platform.timing import do_bench

from .axes import linear_range, power_of_two
from .command import main
from .registry import axis, register
from .results import Result
from .state import State

__all__ = ["Result", "State", "axis", "do_bench", "linear_range", "main", "power_of_two", "register"]
