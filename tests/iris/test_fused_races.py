"""Fused products in race mode: whatever no signal, flag or lock orders is an error, in whatever order it came."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable

import pytest
import torch

from benchmarks.one_process import World
from harness import emulator
from harness.emulator.driver.driver import EmulatedDriver
from harness.emulator.faults import DataRace
from iris_under_test.kernels import matmul_reduce as reduce
from iris_under_test.ops import FusedConfig

CALLS = 2
K = 16


@pytest.fixture(autouse=True)
def _no_driver_left():
    yield
    emulator.deactivate()


def products(
    op: str, size: int, columns: int, variant: str = "two_shot", tile: tuple[int, int] = (16, 32)
) -> Callable[[EmulatedDriver], None]:
    """Calls one behind the other on one workspace and output, each of other matrices. ``tile``: its height is that of
    a rank's C."""
    config = FusedConfig(*tile, 16, num_sms=4, num_xcds=2, chunk_size=2, all_reduce_variant=variant)
    m = tile[0]
    inner = K * size if op == "all_gather_matmul" else K
    rows = m * size if op == "matmul_all_gather" else m

    def numbers(seed: int, *shape: int) -> torch.Tensor:
        return torch.randint(-2, 3, shape, generator=torch.Generator().manual_seed(seed)).half()

    def program(driver: EmulatedDriver) -> None:
        world = World(size, 1 << 18)
        outputs = world.tensors((rows, columns), torch.float16)
        left = [world.tensors((m, K), torch.float16) for _ in range(CALLS)]
        right = [[numbers(100 + 10 * turn + rank, inner, columns) for rank in range(size)] for turn in range(CALLS)]
        for turn, tensors in enumerate(left):
            for rank, tensor in enumerate(tensors):
                tensor.copy_(numbers(10 * turn + rank, m, K))

        def calls(rank):
            mine = rank.cur_rank
            for a, b in zip(left, right, strict=True):
                getattr(rank.ops, op)(outputs[mine], a[mine], b[mine], async_op=True, config=config)

        world.run(calls)
        whole, parts = torch.cat(left[-1], 1), [a @ b for a, b in zip(left[-1], right[-1], strict=False) if inner == K]
        for rank, output in enumerate(outputs):
            wanted = whole @ right[-1][rank] if inner > K else torch.cat(parts) if rows > m else sum(parts)
            assert torch.equal(output, wanted), f"rank {rank} has another result"

    return program


PROGRAMS = {
    "spinlock": products("matmul_all_reduce", 3, 32, "spinlock"),
    "two_shot": products("matmul_all_reduce", 2, 128),
    "one_shot": products("matmul_all_reduce", 2, 64, "one_shot"),
    # A tile with enough elements per lane that float32 and float16 are spread over lanes in different ways.
    "atomic": products("matmul_all_reduce", 2, 64, "atomic", (32, 64)),
    "matmul_all_gather": products("matmul_all_gather", 2, 64),
    "all_gather_matmul": products("all_gather_matmul", 2, 64),
}


@pytest.mark.long
@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_races(name):
    PROGRAMS[name](emulator.activate(mode="race", choices=0))


def test_a_sum_that_is_cleared_while_others_load_it_is_a_race():
    """A program clears float32 tiles after a barrier: the lane that clears an element may not be the one that loaded
    it.
    """
    lines, first = inspect.getsourcelines(reduce.matmul_and_reduce.fn)
    [place] = [first + k for k, line in enumerate(lines) if "tl.debug_barrier()" in line]
    driver = emulator.activate(mode="race", choices=0)
    driver.rewrite = lambda kernel, listing: re.sub(rf"(\.loc\s+\d+ {place} .*\n)\s*s_barrier", r"\1", listing)
    with pytest.raises(DataRace, match=r"store of 16 bytes.*\n?.*reduce.py"):
        PROGRAMS["atomic"](driver)


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("spinlock", "buffer_wbl2"),
        ("spinlock", "buffer_inv"),
        ("two_shot", "buffer_wbl2"),
        ("all_gather_matmul", "buffer_inv"),
    ],
)
def test_a_fence_that_is_left_out_is_a_race(name, line):
    driver = emulator.activate(mode="race", choices=0)
    driver.rewrite = lambda kernel, listing: re.sub(rf"(?m)^\s*{line}.*$", "", listing)
    with pytest.raises(DataRace):
        PROGRAMS[name](driver)
