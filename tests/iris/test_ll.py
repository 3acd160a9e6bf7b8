"""The "ll" protocol of the collectives: all it does, against plain torch, and what it refuses."""

from __future__ import annotations

import math

import pytest
import torch
import torch.distributed as dist

from iris_under_test.ccl import Config, ReduceOp
from iris_under_test.device.flagged import EPOCH_WORDS
from tests.iris.ranks import run_checks

RANKS = 4
POOL = 1 << 18
SHAPES = (((1, 1), False, 4), ((40, 130), True, 32), ((129, 3), False, 16), ((0, 5), True, 4), ((64, 64), False, 4))
"""Rows and columns, language, rows of a tile. Few, since each compiles its kernels."""
GROUPS = ([0, 1, 3], [2], None)


def _config(gluon, **fields):
    return Config(**{"block_size_m": 4, "block_size_n": 64, "comm_sms": 3, "num_warps": 1, **fields}, use_gluon=gluon,
                  protocol="ll")  # fmt: skip


def _groups(rank):
    for number, ranks in enumerate(GROUPS):
        group = None if ranks is None else dist.new_group(ranks)
        if ranks is None or rank in ranks:
            yield number, group, list(range(RANKS)) if ranks is None else ranks


def _given(shape, dtype, rank, call):
    generator = torch.Generator().manual_seed(100 * call + rank)
    return torch.randint(-100, 100, shape, generator=generator).to(dtype)


def _check(ctx, pool, group, ranks, shape, dtype, config, call, strided=False):
    """Each op once, with inputs that belong to this call, and outputs that hold another value before."""
    rank, size = ctx.get_rank(), len(ranks)
    place, (rows, columns) = ranks.index(rank), shape
    keywords = {"group": group, "config": config, "async_op": call % 2 == 0}
    own = [_given(shape, dtype, other, call) for other in ranks]
    wide = [_given((rows, size * columns), dtype, other, call) for other in ranks]

    taken = 0

    def on_heap(*shape):  # The same place on every member; allocations are the world's.
        nonlocal taken
        begin, taken = taken, taken + -(-math.prod(shape) * dtype.itemsize // 16) * 16
        return pool[begin : begin + math.prod(shape) * dtype.itemsize].view(dtype).view(shape)

    def source(value):
        tensor = torch.empty(value.shape[0], 2 * value.shape[1], dtype=dtype)[:, ::2] if strided else value.clone()
        return tensor.copy_(value)

    def output(*shape):
        tensor = torch.empty(*reversed(shape), dtype=dtype).T if strided else torch.empty(*shape, dtype=dtype)
        return tensor.fill_(77)

    def compare(case, actual, wanted):
        torch.testing.assert_close(actual, wanted, rtol=0, atol=0, msg=lambda text: f"call {call}, {case}: {text}")

    gathered = on_heap(size * rows, columns).fill_(77)
    ctx.ccl.all_gather(gathered, source(own[place]), **keywords)
    compare("all_gather", gathered, torch.cat(own))

    exchanged = on_heap(rows, size * columns).fill_(77)
    ctx.ccl.all_to_all(exchanged, source(wide[place]), **keywords)
    block = slice(place * columns, (place + 1) * columns)
    compare("all_to_all", exchanged, torch.cat([each[:, block] for each in wide], 1))

    total = torch.stack(own).sum(0, dtype=torch.float64 if dtype.is_floating_point else torch.int64).to(dtype)
    mine = on_heap(*shape).copy_(own[place])
    reduced = output(*shape)
    ctx.ccl.all_reduce(reduced, mine, **keywords)
    compare("all_reduce", reduced, total)
    scattered = on_heap(*shape).fill_(77)
    ctx.ccl.reduce_scatter(scattered, mine, **keywords)
    written = scattered != 77
    compare("reduce_scatter", scattered[written], total[written])
    reduced = on_heap(*shape).copy_(own[place])
    ctx.ccl.all_reduce(reduced, reduced, op=ReduceOp.MAX, **keywords)
    compare("all_reduce MAX in place", reduced, torch.stack(own).amax(0))

    root = call % size
    tensor = on_heap(*shape).copy_(own[place])
    ctx.ccl.broadcast(tensor, src=ranks[root], **keywords)
    compare("broadcast", tensor, own[root])


def every_op_on_every_group(ctx, rank, num_ranks):
    pool = ctx.empty(POOL, dtype=torch.uint8)
    for number, group, ranks in _groups(rank):
        for call, dtype in enumerate((torch.uint8, torch.float16, torch.float32), start=10 * number):
            if len(ranks) == 1 and dtype != torch.float16:
                continue
            config = _config(call % 2 == 0, all_reduce_variant="one_shot")
            _check(ctx, pool, group, ranks, (7, 70), dtype, config, call)


def calls_of_all_sizes_follow_each_other(ctx, rank, num_ranks):
    """With other tiles, numbers of programs and of epochs each, so that one's words lie on those of another."""
    pool = ctx.empty(POOL, dtype=torch.uint8)
    for call in range(3 * len(SHAPES)):
        shape, gluon, block_m = SHAPES[call % len(SHAPES)]
        config = _config(gluon, block_size_m=block_m, comm_sms=1 + call % 7, all_reduce_variant="one_shot")
        config.all_reduce_distribution = int(gluon)
        _check(ctx, pool, None, list(range(RANKS)), shape, torch.bfloat16, config, call, strided=block_m == 16)
        if call % 5 == 0:  # the other protocol between them
            simple = ctx.empty(RANKS, 3, dtype=torch.int64)
            ctx.ccl.all_gather(simple, torch.full((1, 3), rank), async_op=True, config=Config(comm_sms=2))
            assert simple[:, 0].tolist() == list(range(RANKS))


def epochs_wrap(ctx, rank, num_ranks):
    pool = ctx.empty(POOL, dtype=torch.uint8)
    words = ctx.members(None).slots.own[: 4 * EPOCH_WORDS.value].view(torch.int32)
    assert words.unique().numel() == 1, "all programs are in the same epoch"
    for last in (2**31 - 2, -2):
        words.fill_(last)
        ctx.barrier()
        for call in range(2):
            config = _config(False, all_reduce_variant="one_shot")
            _check(ctx, pool, None, list(range(RANKS)), (3, 64), torch.float32, config, call)
        (now,) = words.unique().tolist()
        assert 12 <= (now - last) % 2**32 < 100, "an epoch or more for each op"


def what_it_has_not_is_refused(ctx, rank, num_ranks):
    floats, longs = (ctx.zeros(8, 64, dtype=dtype) for dtype in (torch.float32, torch.int64))
    rows = ctx.zeros(2, 64, dtype=torch.float32)
    with pytest.raises(ValueError, match=r"'ll'.*1, 2 or 4 bytes, got torch.int64"):
        ctx.ccl.all_gather(longs, ctx.zeros(2, 64, dtype=torch.int64), config=_config(False))
    with pytest.raises(ValueError, match=r"'ll' is for one_shot, got two_shot"):
        ctx.ccl.all_reduce(floats, floats, config=_config(False, all_reduce_variant="two_shot"))
    with pytest.raises(ValueError, match=r"'ll'.*ring"):
        ctx.ccl.all_reduce(floats, floats, config=_config(False, all_reduce_variant="ring"))
    with pytest.raises(ValueError, match=r"'ll'.*partitioned"):
        ctx.ccl.all_gather(floats, rows, config=_config(False, all_gather_variant="partitioned", comm_sms=4))
    for gluon, block_m, limit in ((True, 2, 255), (False, 1, 3)):
        tile = _config(gluon, block_size_m=block_m, block_size_n=64 if gluon else 2)
        with pytest.raises(
            ValueError, match=rf"'ll'.*have {limit + 1} bytes or more, got {block_m * tile.block_size_n} "
        ):
            ctx.ccl.all_gather(ctx.zeros(8, 64, dtype=torch.int8), ctx.zeros(2, 64, dtype=torch.int8), config=tile)
    config = _config(False)
    config.protocol = "LL"
    with pytest.raises(ValueError, match=r"protocol must be one of \('simple', 'll'\), got 'LL'"):
        ctx.ccl.all_gather(floats, rows, config=config)


CHECKS = [
    every_op_on_every_group,
    calls_of_all_sizes_follow_each_other,
    epochs_wrap,
    what_it_has_not_is_refused,
]


@pytest.fixture(scope="module")
def outcome():
    return run_checks(CHECKS, RANKS, 8 << 20, emulated=True)


@pytest.mark.nightly
@pytest.mark.parametrize("check", [check.__name__ for check in CHECKS])
def test_on_ranks(outcome, check):
    assert outcome[check] == ""
