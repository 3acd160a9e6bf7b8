"""device_barrier: rows of flags are the members' affair, and there are as many as promised."""

from __future__ import annotations

import pytest
import torch.distributed as dist

import iris_under_test
from iris_under_test.host.device_barrier import MOST_GROUPS
from tests.iris.ranks import run_checks

RANKS = 3


def the_first_call_of_a_group_asks_its_members_alone(ctx, rank, num_ranks):
    left, right = dist.new_group([0, 1]), dist.new_group([1, 2])
    # Rank 2 does nothing while 0 and 1 make theirs: had they to wait for it, the group's timeout would end this.
    if rank < 2:
        free = ctx.heap.allocator.heap_offset
        ctx.device_barrier(left)
        ctx.device_barrier(left)
        assert ctx.heap.allocator.heap_offset == free, "nothing is taken from the heap"
    if rank > 0:
        ctx.device_barrier(right)
    if rank == 1:
        rows = {flags.data_ptr() for flags in ctx._device_barrier_state.values()}
        assert len(rows) == len(ctx._device_barrier_state), "groups share a row"
        assert [flags.tolist() for flags in ctx._device_barrier_state.values()] == [[0] * 3, [2, 2, 0], [0, 1, 1]]


def all_ranks_by_any_handle_are_the_world(ctx, rank, num_ranks):
    everybody = dist.new_group(list(range(num_ranks)))
    before = ctx._device_barrier_state[None][rank].item()
    ctx.device_barrier(everybody if rank == 0 else None)
    ctx.device_barrier(None if rank == 0 else dist.group.WORLD)
    assert ctx._device_barrier_state[None].tolist() == [before + 2] * num_ranks


def one_group_too_many_is_refused_on_every_member(ctx, rank, num_ranks):
    group = dist.new_group([0, 1])
    if rank == 2:
        return
    state = ctx._device_barrier_state
    kept = dict(state)
    # As if rank 0 alone had used all rows: its partner has free ones, and must hear of it.
    if rank == 0:
        for index, row in enumerate(ctx._device_barriers._rows):
            state.setdefault(("filler", index), row)
    # The handle is another one, and so are the members as far as the table knows.
    state.pop((0, 1), None)
    with pytest.raises(RuntimeError, match=f"{MOST_GROUPS} groups"):
        ctx.device_barrier(group)
    state.clear()
    state.update(kept)


def a_closed_instance_has_none(ctx, rank, num_ranks):
    """Its kernel would poll memory that is not mapped any more."""
    second = iris_under_test.iris(1 << 16)
    second.device_barrier()
    ctx.barrier()
    second.close()
    second.close()
    with pytest.raises(RuntimeError, match="the instance is closed"):
        second.device_barrier()


CHECKS = [
    the_first_call_of_a_group_asks_its_members_alone,
    all_ranks_by_any_handle_are_the_world,
    one_group_too_many_is_refused_on_every_member,
    a_closed_instance_has_none,
]


@pytest.fixture(scope="module")
def outcome():
    return run_checks(CHECKS, RANKS, 1 << 20, emulated=True)


@pytest.mark.parametrize("check", [check.__name__ for check in CHECKS])
def test_on_ranks(outcome, check):
    assert outcome[check] == ""
