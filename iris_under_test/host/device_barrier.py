"""A barrier that runs on the devices: one small kernel in stream order, no host wait.

Each rank has, for each group, a row of int32 flags, one per rank of the world. A rank's own flag counts the barriers
that it has entered; it is written into every member's row at the rank's place, and a rank leaves when every member's
flag in its own row has reached its own count. Only the own row is polled, so that waiting crosses no link.

The rows lie in symmetric memory of their own beside the heap, made with the instance: a group that uses the barrier
for the first time takes nothing from the heap, and asks no rank but its members.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
import triton
import triton.language as tl
from triton.language.target_info import is_hip

from .distributed import extract_group_info, host_barrier
from .distributed.helpers import exchange
from .tracing.kernel_artifacts import iris_launch

if TYPE_CHECKING:
    from .platform import Platform

__all__ = ["MOST_GROUPS", "POLL_LIMIT", "DeviceBarriers", "barrier_kernel"]

POLL_LIMIT = tl.constexpr(10**9)

MOST_GROUPS = 64
"""Groups, the world among them, that one instance can have barriers for."""


@triton.jit(do_not_specialize=["rank_start", "rank_stride"])
def barrier_kernel(context_tensor, flags, rank_start, rank_stride, SIZE: tl.constexpr, LANES: tl.constexpr):
    """One program; lane i is for member i of the group. LANES is a power of two, at least SIZE.

    Counts may wrap: of two counts the later one is that which is less than 2^31 steps ahead. No member is ever more
    than one barrier ahead of another.

    Example: SIZE 2, both flags 6: both ranks write 7 into both rows, and leave when they find two flags of at least 7.
    """
    rank = tl.load(context_tensor).to(tl.int32)
    heap_bases = context_tensor + 2
    lane = tl.arange(0, LANES)
    mask = lane < SIZE
    member = rank_start + lane * rank_stride
    if is_hip():  # noqa: SIM108 - two comments
        # An atomic with a result: what it released is out before the flags below are written. Triton 3.6 waits for
        # the write-back of a release on AMD GPUs only where the wavefront has an access of its own to wait for.
        count = tl.atomic_add(flags + rank, 1, sem="release", scope="sys") + 1
    else:
        # Nobody else writes it, and this rank's own barriers follow one another.
        count = tl.load(flags + rank) + 1

    distance = tl.load(heap_bases + member, mask=mask) - tl.load(heap_bases + rank)
    theirs = ((flags + rank).to(tl.int64) + distance).to(flags.dtype)
    # Whatever this rank did in stream order before is visible to who sees its count.
    tl.atomic_xchg(theirs, count, mask=mask, sem="release", scope="sys")  # remote

    late, polls = 1, 0
    while late > 0:
        seen = tl.atomic_add(flags + member, 0, mask=mask, sem="acquire", scope="sys")
        late = tl.sum((mask & (seen - count < 0)).to(tl.int32))
        if is_hip() and late > 0:
            # 64 clocks without a poll: the link and the wavefronts beside this one have better things to do.
            late = tl.inline_asm_elementwise("s_sleep 1", "=v,0", [late], dtype=tl.int32, is_pure=False, pack=1)
        polls += 1
        tl.device_assert(polls < POLL_LIMIT, "device_barrier: a member of the group has not arrived")


class DeviceBarriers:
    """The flags of one instance. Construction is collective over the world; each rank's flags are zero after it."""

    def __init__(self, platform: Platform, rank: int, num_ranks: int) -> None:
        self._rank = rank
        self._num_ranks = num_ranks
        self._closed = False
        self._memory = platform.map_symmetric_memory(MOST_GROUPS * num_ranks * 4, rank, num_ranks)
        flags = self._memory.pool[: MOST_GROUPS * num_ranks * 4].view(torch.int32)
        self._rows = flags.zero_().view(MOST_GROUPS, num_ranks)
        platform.synchronize()
        host_barrier()
        table = [rank, num_ranks, *self._memory.bases]
        self._context = torch.tensor(table, dtype=torch.int64, device=flags.device)
        self.state = {None: self._rows[0]}

    def enqueue(self, group: dist.ProcessGroup | None) -> None:
        """See ``Iris.device_barrier``."""
        if self._closed:
            raise RuntimeError("device_barrier: the instance is closed")
        _, _, size, rank_start, rank_stride = extract_group_info(group, self._rank, self._num_ranks)
        iris_launch(
            barrier_kernel, (1,),
            self._context, self._flags(group, size), rank_start, rank_stride, size, triton.next_power_of_2(size),
            algorithm="device_barrier", rank=self._rank, num_warps=1,
        )  # fmt: skip

    def close(self) -> None:
        """Gives the memory back. Idempotent, not collective."""
        self._closed = True
        self.state.clear()
        self._rows = self._rows[:0].clone()
        self._memory.close()

    def _flags(self, group: dist.ProcessGroup | None, size: int) -> torch.Tensor:
        # A group of all ranks is the world, by whatever handle: some ranks may call with one, some without.
        key = None if group is None or size == self._num_ranks else tuple(dist.get_process_group_ranks(group))
        if key not in self.state:
            if self._context.is_cuda and torch.cuda.is_current_stream_capturing():
                raise RuntimeError(
                    "the first device_barrier of a group asks its members: call it once before capturing a graph"
                )
            self.state[key] = self._rows[self._free_row(group)]
        return self.state[key]

    def _free_row(self, group: dist.ProcessGroup | None) -> int:
        """The first row that no member uses yet. Collective over the group."""
        starts = {flags.data_ptr() for flags in self.state.values()}
        mine = [int(row.data_ptr() in starts) for row in self._rows]
        used = [any(column) for column in zip(*exchange(mine, group, "finding flags for device_barrier"), strict=True)]
        if all(used):
            raise RuntimeError(f"device_barrier: {MOST_GROUPS} groups have one already, all that an instance can have")
        return used.index(False)
