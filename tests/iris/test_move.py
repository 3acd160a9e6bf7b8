"""The collectives that are one kernel: in both languages, on groups that no stride describes, against plain torch."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

from iris_under_test.ccl import Config, ReduceOp
from iris_under_test.ccl.kernel_launch import _step
from iris_under_test.ccl.plans import PLANS, Plan, prepare_move
from tests.iris.ranks import run_checks

RANKS = 4
M, N = 9, 40


def _config(gluon, **fields):
    return Config(block_size_m=4, block_size_n=32, comm_sms=3, num_warps=1, use_gluon=gluon, **fields)


def _groups(rank):
    for ranks in ([0, 1, 3], [2], None):
        group = None if ranks is None else dist.new_group(ranks)
        if ranks is None or rank in ranks:
            yield group, list(range(RANKS)) if ranks is None else ranks


def _input(rank, rows=M, columns=N):
    return torch.arange(rows * columns, dtype=torch.int32).view(rows, columns) * 8 + rank


def every_op_on_every_group(ctx, rank, num_ranks):
    wide, tall = ctx.empty(M, RANKS * N, dtype=torch.int32), ctx.empty(RANKS * M, N, dtype=torch.int32)
    out_wide, out_tall = torch.empty_like(wide), torch.empty_like(tall)
    out_wide, out_tall = ctx.as_symmetric(out_wide), ctx.as_symmetric(out_tall)
    for group, ranks in _groups(rank):
        size, place, root = len(ranks), ranks.index(rank), ranks[-1]
        at_root = rank == root
        rows, columns = slice(size * M), slice(size * N)
        mine, everyone = _input(rank), [_input(other) for other in ranks]
        broad, everyone_broad = _input(rank, M, size * N), [_input(other, M, size * N) for other in ranks]
        stacked = torch.cat(everyone)
        blocks = torch.cat([each[:, place * N : place * N + N] for each in everyone_broad], 1)
        unchanged = torch.tensor(-1, dtype=torch.int32)
        part, out_part = wide[:, :N], out_wide[:, :N]
        calls = {
            "all_gather": (out_tall[rows], part, mine, stacked, {}),
            "all_to_all": (out_wide[:, columns], wide[:, columns], broad, blocks, {}),
            "reduce": (out_part, part, mine, sum(everyone) if at_root else unchanged, {"dst": root}),
            "scatter": (out_part, tall[rows], stacked, mine, {"src": root}),
            "gather": (out_tall[rows], part, mine, stacked if at_root else unchanged, {"dst": root}),
        }
        for gluon in (False, True):
            keywords = {"group": group, "config": _config(gluon), "async_op": gluon}
            for op, (output, source, given, wanted, root_of) in calls.items():
                source.copy_(given)
                output.fill_(-1)
                needless = {"gather": 0, "scatter": 1}.get(op) if not at_root else None
                tensors = [None if index == needless else each for index, each in enumerate((output, source))]
                handle = getattr(ctx.ccl, op)(*tensors, **root_of, **keywords)
                assert (handle is not None) == gluon
                torch.testing.assert_close(output, wanted.expand_as(output), rtol=0, atol=0)
            part.copy_(mine)
            ctx.ccl.broadcast(part, src=root, **keywords)
            torch.testing.assert_close(part, _input(root), rtol=0, atol=0)


def reductions_are_shared_or_not(ctx, rank, num_ranks):
    source, output = ctx.empty(M, N, dtype=torch.float16), ctx.empty(M, N, dtype=torch.float16)
    given = [torch.randn(M, N, generator=torch.Generator().manual_seed(r)).half() for r in range(RANKS)]
    total = given[0].float()
    for other in given[1:]:
        total = total + other.float()
    wanted = total.half()
    for gluon in (False, True):
        for variant in ("one_shot", "two_shot"):
            for target in (output, source):  # the second: in place
                source.copy_(given[rank])
                output.fill_(7)
                _, launch = prepare_move(
                    PLANS[f"all_reduce {variant}"], target, source, ctx, ctx.members(None), _config(gluon)
                )
                ctx.barrier()
                launch()
                ctx.barrier()
                torch.testing.assert_close(target, wanted, rtol=0, atol=0)
        for striding in (0, 1):
            source.copy_(given[rank])
            output.fill_(7)
            ctx.ccl.reduce_scatter(output, source, config=_config(gluon, all_reduce_distribution=striding))
            written = output != 7
            torch.testing.assert_close(output[written], wanted[written], rtol=0, atol=0)
            counts = written.int()
            dist.all_reduce(counts)
            assert counts.min() == counts.max() == 1, "every element is one member's"


def every_reduction(ctx, rank, num_ranks):
    source, output = ctx.empty(3, 16, dtype=torch.int16), ctx.empty(3, 16, dtype=torch.int16)
    given = [_input(r, 3, 16).to(torch.int16) * 77 for r in range(RANKS)]
    folds = {
        ReduceOp.SUM: torch.add, ReduceOp.PRODUCT: torch.mul, ReduceOp.MIN: torch.minimum, ReduceOp.MAX: torch.maximum,
        ReduceOp.BAND: torch.bitwise_and, ReduceOp.BOR: torch.bitwise_or, ReduceOp.BXOR: torch.bitwise_xor,
    }  # fmt: skip
    for op, fold in folds.items():
        wanted = given[0]
        for other in given[1:]:
            wanted = fold(wanted, other)
        source.copy_(given[rank])
        ctx.ccl.reduce(output, source, dst=2, op=op, config=_config(op % 2 == 0))
        if rank == 2:
            torch.testing.assert_close(output, wanted, rtol=0, atol=0)


def an_error_or_a_difference_is_told_to_all_members(ctx, rank, num_ranks):
    source, output = ctx.zeros(4, 8, dtype=torch.int32), ctx.zeros(4 * RANKS, 8, dtype=torch.int32)
    with pytest.raises(
        ValueError if rank == 1 else RuntimeError, match="multiple of 4" if rank == 1 else r"ranks \[1\]"
    ):
        ctx.ccl.all_gather(output[:-1] if rank == 1 else output, source)
    columns = 4 if rank == 3 else 8
    with pytest.raises(ValueError, match=r"every member must pass the same arguments, got .*3: .*\(4, 4\)"):
        ctx.ccl.all_gather(output[:, :columns], source[:, :columns])
    with pytest.raises(ValueError, match="dst must be one of"):
        ctx.ccl.reduce(source, source, dst=9)
    ctx.ccl.all_gather(output, source)


def an_op_that_was_never_measured_has_the_default_configuration(ctx, rank, num_ranks):
    """So that a new collective need not be named in the tuning tables' module."""
    plan = Plan("home_made", "own", "all", out_parts="rows")
    output, source = ctx.zeros(num_ranks * M, N), ctx.full((M, N), float(rank))
    reported, launch = prepare_move(plan, output, source, ctx, ctx.members(), None)
    assert repr(Config()) in reported
    launch()
    ctx.barrier()
    assert output[::M, 0].tolist() == list(range(num_ranks))


@pytest.mark.parametrize(("parts", "whole"), [("rows", (4 * 5, 70)), ("columns", (5, 4 * 70)), ("", (5, 70))])
def test_a_member_without_a_tensor_runs_the_binary_of_the_others(parts, whole):
    """Gather's and scatter's members that pass None: their steps are specialized like those of a contiguous tensor."""
    assert _step(None, parts, (5, 70)) == _step(torch.empty(whole), parts, (5, 70))


CHECKS = [
    an_op_that_was_never_measured_has_the_default_configuration,
    every_op_on_every_group,
    reductions_are_shared_or_not,
    every_reduction,
    an_error_or_a_difference_is_told_to_all_members,
]


@pytest.fixture(scope="module")
def outcome():
    return run_checks(CHECKS, RANKS, 1 << 20, emulated=True)


@pytest.mark.nightly
@pytest.mark.parametrize("check", [check.__name__ for check in CHECKS])
def test_on_ranks(outcome, check):
    assert outcome[check] == ""
