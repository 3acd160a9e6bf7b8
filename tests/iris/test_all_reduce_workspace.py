"""all_reduce by ring, locks and atomics: what is shared among the members, by whom, and what is refused."""

from __future__ import annotations

import dataclasses
import weakref

import pytest
import torch
import torch.distributed as dist

from iris_under_test.ccl import Config, ReduceOp
from iris_under_test.ccl.workspace import FLAG_BYTES
from tests.iris.ranks import run_checks

RANKS = 3
M, N = 6, 96


def _config(variant, **fields):
    shape = {"block_size_m": 2, "block_size_n": 32, "comm_sms": 4, "num_warps": 1, **fields}
    return Config(**shape, all_reduce_variant=variant)


def _given(rank, turn, shape=(M, N)):
    return (torch.arange(shape[0] * shape[1], dtype=torch.int32) * 7 + 1000 * rank + 77 * turn).view(shape)


def a_group_needs_its_members_alone(ctx, rank, num_ranks):
    """Rank 1 does nothing: had the others to wait for it, the group's timeout would end this."""
    group = dist.new_group([0, 2])
    if rank == 1:
        return
    free = ctx.heap.allocator.heap_offset
    # Neither tensor is on the heap: a member that passes slices on accesses only the workspace.
    output, source = torch.zeros(M, N, dtype=torch.int32), _given(rank, 0)
    ctx.ccl.all_reduce(output, source, group=group, config=_config("ring"))
    torch.testing.assert_close(output, _given(0, 0) + _given(2, 0), rtol=0, atol=0)
    workspace = ctx.ccl.all_reduce_preamble(output, source, group=group, config=_config("spinlock"))
    assert workspace.prepared
    assert (workspace.ranks, workspace.variant) == ((0, 2), "spinlock")
    assert ctx.heap.allocator.heap_offset == free, "nothing is taken from the heap"


def calls_of_any_shape_follow_one_another(ctx, rank, num_ranks):
    """One kept workspace for tiles, slices and rings of all kinds, nothing between the calls; it grows when it must."""
    kinds = [
        {}, {"all_reduce_num_rings": 2, "all_reduce_ring_slice_n": 8}, {"block_size_m": 4, "use_gluon": True},
        {"block_size_m": 16, "comm_sms": 1}, {},
    ]  # fmt: skip
    sizes = []
    for turn, fields in enumerate(kinds):
        config = _config("ring", **fields)
        before = dataclasses.replace(config)
        shape = (M, N) if turn % 2 else (5, 33)
        output = torch.zeros(shape, dtype=torch.int32)
        workspace = ctx.ccl.all_reduce(output, _given(rank, turn, shape), async_op=True, config=config)
        workspace.wait()
        torch.testing.assert_close(output, sum(_given(r, turn, shape) for r in range(num_ranks)), rtol=0, atol=0)
        assert config == before, "the caller's config is not touched"
        sizes.append(_kept(ctx, "ring").numel())
    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[-1]
    ctx.barrier()
    assert not _kept(ctx, "ring")[:FLAG_BYTES].any(), "flags are zero behind the calls"
    ctx.barrier()


def _scratch(ctx, variant):
    return ctx._groups._scratch[tuple(range(ctx.num_ranks)), f"all_reduce {variant}"]


def _kept(ctx, variant):
    return _scratch(ctx, variant).own


def a_workspace_grows_with_its_group(ctx, rank, num_ranks):
    """Rank 1 passes an old workspace, the others none: all must use the same memory."""
    output, source = ctx.zeros(M, N, dtype=torch.int32), _given(rank, 0)
    old = ctx.ccl.all_reduce_preamble(output, source, config=_config("two_shot_push", comm_sms=1, block_size_m=1))
    before = _scratch(ctx, "two_shot_push")
    kept, before = [weakref.ref(tensor) for tensor in (before.own, before.bases)], before.own.numel()
    ctx.ccl.all_reduce(output, source, config=_config("two_shot_push", block_size_m=8))
    config = _config("two_shot_push", comm_sms=1, block_size_m=1)
    ctx.ccl.all_reduce(output.zero_(), source, config=config, workspace=old if rank == 1 else None)
    assert _scratch(ctx, "two_shot_push").own.numel() > before
    assert all(ref() is not None for ref in kept), "a device graph may refer to what was outgrown"
    torch.testing.assert_close(output, sum(_given(r, 0) for r in range(num_ranks)), rtol=0, atol=0)


def locks_are_given_back(ctx, rank, num_ranks):
    output, source = ctx.zeros(M, N, dtype=torch.int16), ctx.zeros(M, N, dtype=torch.int16)
    workspace = None
    for op in (ReduceOp.PRODUCT, ReduceOp.BXOR):  # of 16 bits, which atomics have none of
        source.copy_(_given(rank, 3))
        ctx.barrier()
        workspace = ctx.ccl.all_reduce(output, source, op=op, config=_config("spinlock"), workspace=workspace)
        wanted = _given(0, 3).short()
        for other in range(1, num_ranks):
            theirs = _given(other, 3).short()
            wanted = wanted * theirs if op == ReduceOp.PRODUCT else wanted ^ theirs
        torch.testing.assert_close(output, wanted, rtol=0, atol=0)
        ctx.barrier()
        assert not _kept(ctx, "spinlock").any(), "locks are zero behind the call"


def nothing_is_written_past_the_end(ctx, rank, num_ranks):
    """Behind what a call needs of the memory that the group keeps lies something that stays."""
    source = _given(rank, 5)
    for variant in ("ring", "spinlock", "two_shot_push"):
        output = ctx.zeros(M, N, dtype=torch.int32)
        workspace = ctx.ccl.all_reduce_preamble(output, source, config=_config(variant))
        memory = workspace.scratch(ctx, ctx.members()).own
        memory[workspace.num_bytes :] = 0x5A
        ctx.barrier()
        ctx.ccl.all_reduce(output, source, config=_config(variant), workspace=workspace)
        ctx.barrier()
        assert (memory[workspace.num_bytes :] == 0x5A).all()
        memory[workspace.num_bytes :] = 0
        ctx.barrier()


def too_little_is_refused(ctx, rank, num_ranks):
    output, source = ctx.zeros(M, N, dtype=torch.int32), ctx.zeros(M, N, dtype=torch.int32)
    for variant, words in (("spinlock", "Lock array too small"), ("ring", "Flags array too small")):
        workspace = ctx.ccl.all_reduce_preamble(output, source, config=_config(variant, block_size_m=8))
        with pytest.raises(ValueError, match=f"{words}.*prepared for {workspace.words}, the call needs"):
            ctx.ccl.all_reduce(output, source, config=_config(variant, block_size_m=1), workspace=workspace)
        ctx.ccl.all_reduce(output, source, config=_config(variant, block_size_m=8), workspace=workspace)
    workspace = ctx.ccl.all_reduce_preamble(output, source, config=_config("ring", comm_sms=1))
    with pytest.raises(ValueError, match="uffer too small"):
        ctx.ccl.all_reduce(output, source, config=_config("ring", comm_sms=1, block_size_m=4), workspace=workspace)


def what_cannot_be_is_refused(ctx, rank, num_ranks):
    heap = ctx.zeros(2 * M, N, dtype=torch.int32)
    output, source = heap[:M], heap[M:]
    small = _config("ring")
    small.all_reduce_ring_slice_n = 48  # which is assigned after Config has checked it
    named = _config("ring")
    named.all_reduce_variant = "tree"
    for call, words in (
        (
            lambda: ctx.ccl.all_reduce(output.short(), source.short(), config=_config("atomic")),
            "atomic does not support SUM",
        ),
        (
            lambda: ctx.ccl.all_reduce(output, source, op=ReduceOp.PRODUCT, config=_config("atomic")),
            "one_shot, two_shot",
        ),
        (lambda: ctx.ccl.all_reduce(heap[1 : M + 1], output, config=_config("ring")), "overlap"),
        (
            lambda: ctx.ccl.all_reduce(output, source, config=_config("ring", all_reduce_num_rings=5)),
            "comm_sms 4, got 5",
        ),
        (lambda: ctx.ccl.all_reduce(output, source, config=small), "power of two that divides"),
        (lambda: ctx.ccl.all_reduce(output, source, config=named), "must be one of"),
        (lambda: ctx.ccl.all_reduce(torch.zeros_like(output), source, config=_config("atomic")), "symmetric heap"),
        (lambda: ctx.ccl.all_reduce(output, source.to("meta"), config=_config("ring")), "device cpu, got one on"),
        (
            lambda: ctx.ccl.all_reduce(output, source, op=dist.ReduceOp.PRODUCT, config=_config("ring")),
            "op must be one",
        ),
        (lambda: ctx.ccl.all_reduce(output[:-1], source, config=_config("spinlock")), "one shape"),
    ):
        with pytest.raises(ValueError, match=words):
            call()
    # One member alone is wrong: the error is raised on all members, and none waits.
    with pytest.raises(ValueError if rank == 1 else RuntimeError, match="overlap" if rank == 1 else r"ranks \[1\]"):
        ctx.ccl.all_reduce(heap[1 : M + 1] if rank == 1 else output, output, config=_config("ring"))


CHECKS = [
    a_group_needs_its_members_alone,
    calls_of_any_shape_follow_one_another,
    a_workspace_grows_with_its_group,
    locks_are_given_back,
    nothing_is_written_past_the_end,
    too_little_is_refused,
    what_cannot_be_is_refused,
]


@pytest.fixture(scope="module")
def outcome():
    return run_checks(CHECKS, RANKS, 1 << 20, emulated=True)


@pytest.mark.nightly
@pytest.mark.parametrize("check", [check.__name__ for check in CHECKS])
def test_on_ranks(outcome, check):
    assert outcome[check] == ""
