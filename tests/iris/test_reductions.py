"""Reductions of elements of special types or values: unsigned, bool, NaN. One process has all ranks."""

from __future__ import annotations

import pytest
import torch

from benchmarks.one_process import World
from harness import emulator
from iris_under_test.ccl import Config, ReduceOp

NAN = float("nan")


def _reduced(op, inputs, variant="one_shot"):
    """The result that all members have."""
    emulator.activate()
    try:
        world = World(len(inputs), 1 << 18)
        sources, outputs = (world.tensors(inputs[0].shape, inputs[0].dtype) for _ in range(2))
        for source, given in zip(sources, inputs, strict=True):
            source.copy_(given)
        config = Config(block_size_m=1, block_size_n=64, comm_sms=1, num_warps=1, all_reduce_variant=variant)
        world.run(
            lambda rank: rank.ccl.all_reduce(
                outputs[rank.cur_rank], sources[rank.cur_rank], op=op, async_op=True, config=config
            )
        )
        assert all(torch.equal(output.view(torch.uint8), outputs[0].view(torch.uint8)) for output in outputs)
        return outputs[0]
    finally:
        emulator.deactivate()


@pytest.mark.parametrize(
    ("op", "dtype", "variant"),
    [
        (ReduceOp.MIN, torch.uint8, "one_shot"),
        (ReduceOp.MAX, torch.uint8, "spinlock"),
        (ReduceOp.MAX, torch.uint32, "atomic"),
        (ReduceOp.MIN, torch.uint64, "atomic"),
    ],
)
def test_unsigned_integers_are_compared_as_such(op, dtype, variant):
    limit = 2 ** (8 * dtype.itemsize) - 1
    left, right = ([1, limit, 5], [limit, 1, 7])
    result = _reduced(op, [torch.tensor([one], dtype=dtype) for one in (left, right)], variant)
    choose = min if op is ReduceOp.MIN else max
    assert result.tolist() == [[choose(pair) for pair in zip(left, right, strict=True)]]


@pytest.mark.parametrize("op", ReduceOp)
@pytest.mark.parametrize("variant", ["one_shot", "ring"])
def test_bools_stay_bools(op, variant):
    """The sum is "or", the product "and"."""
    left, right = torch.tensor([[False, False, True, True]]), torch.tensor([[False, True, False, True]])
    either = op in (ReduceOp.SUM, ReduceOp.MAX, ReduceOp.BOR)
    wanted = left ^ right if op is ReduceOp.BXOR else left | right if either else left & right
    result = _reduced(op, [left, right], variant)
    assert result.view(torch.uint8).tolist() == wanted.view(torch.uint8).tolist()


@pytest.mark.parametrize("op", [ReduceOp.MIN, ReduceOp.MAX])
def test_a_nan_counts_where_there_is_no_number(op):
    left, right = torch.tensor([[NAN, 1.0, NAN, -2.0]]), torch.tensor([[3.0, NAN, NAN, 4.0]])
    last = -2.0 if op is ReduceOp.MIN else 4.0
    wanted = torch.tensor([[3.0, 1.0, NAN, last]])
    torch.testing.assert_close(_reduced(op, [left, right]), wanted, rtol=0, atol=0, equal_nan=True)
