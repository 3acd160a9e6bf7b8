"""device_barrier: rows of flags are the members' affair, and there are as many as promised."""

from __future__ import annotations

import pytest
import torch.distributed as dist

import iris_under_test
from iris_under_test.host.groups import MOST_GROUPS
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
        assert [flags.tolist() for flags in ctx._device_barrier_state.values()] == [[0] * 3, [2, 2], [1, 1]]


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
    slots = ctx._groups._slots
    kept = dict(slots)
    # As if rank 0 alone had used all slots: its partner has free ones, and must hear of it.
    if rank == 0:
        slots.update({(-1, slot): slot for slot in range(MOST_GROUPS)})
    ctx._groups._members.pop((0, 1), None)
    with pytest.raises(RuntimeError, match=f"{MOST_GROUPS} groups"):
        ctx.device_barrier(group)
    slots.clear()
    slots.update(kept)


def any_list_of_ranks_is_a_group(ctx, rank, num_ranks):
    for ranks in ([2, 0, 1], [2, 1, 0], [2, 0]):
        group = dist.new_group(ranks)
        if rank in ranks:
            members = ctx.members(group)
            # torch.distributed sorts a group's ranks unless the caller has the order kept.
            assert members.ranks == tuple(dist.get_process_group_ranks(group))
            assert members.ranks[members.rank] == rank
            bases = ctx.get_heap_bases().tolist()
            assert members.context.tolist()[: 2 + members.size] == [
                members.rank, members.size, *(bases[place] for place in members.ranks)
            ]  # fmt: skip
            ctx.device_barrier(group)


def a_group_of_more_members_than_a_warp_polls_is_refused(ctx, rank, num_ranks):
    requested = dist.get_process_group_ranks
    dist.get_process_group_ranks = lambda group: list(range(33))
    try:
        with pytest.raises(ValueError, match="at most 32 members, got 33"):
            ctx.device_barrier(dist.group.WORLD)
    finally:
        dist.get_process_group_ranks = requested


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
    any_list_of_ranks_is_a_group,
    a_group_of_more_members_than_a_warp_polls_is_refused,
]


@pytest.fixture(scope="module")
def outcome():
    return run_checks(CHECKS, RANKS, 1 << 20, emulated=True)


@pytest.mark.slow
@pytest.mark.parametrize("check", [check.__name__ for check in CHECKS])
def test_on_ranks(outcome, check):
    assert outcome[check] == ""
