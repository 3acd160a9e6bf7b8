"""The groups that an instance's collectives run on: their members, and the memory that members share.

Kernels count a group's members from 0 and never see a global rank: a group has a context tensor of its own, in the
format of the world's, whose rank, size and heap bases are the group's. Hence any list of ranks is a group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
import torch.distributed as dist

from iris_under_test.device.flagged import EPOCH_WORDS, MAX_SENDERS, slot_bytes
from iris_under_test.device.mailboxes import BOX_WORDS, MAX_TAGS
from iris_under_test.device.signals import MAX_MEMBERS, MAX_PROGRAMS
from iris_under_test.host.streams import is_capturing

from .distributed import host_barrier
from .distributed.helpers import exchange, is_outside
from .platform import Platform, SymmetricMemory

__all__ = ["MOST_GROUPS", "Groups", "Members", "Scratch"]

MOST_GROUPS = 64
"""Groups, the world among them, that one instance can have."""

_ROWS = MAX_PROGRAMS.value + 1
_PAGE = 4096


@dataclass(frozen=True)
class Members:
    """One group as this rank sees it.

    Attributes:
        ranks: global ranks, in the group's order.
        rank: the place of this rank among them.
        context: int64, as ``Iris.get_device_context()``, with the group's rank, size and heap bases, and tracing off.
        pads: int64 (size,): where each member's signal words for this group are mapped here; see ``device.signals``.
        words: int32 (MAX_PROGRAMS + 1, size): this rank's own.
        slots: for words that carry their own arrival flag; see ``device.flagged``. None for too many members.
        group: the handle; None for the world.
    """

    ranks: tuple[int, ...]
    rank: int
    context: torch.Tensor
    pads: torch.Tensor
    words: torch.Tensor
    slots: Scratch | None
    group: dist.ProcessGroup | None

    @property
    def size(self) -> int:
        """The number of members."""
        return len(self.ranks)

    def place_of(self, rank: int, name: str) -> int:
        """The place of a global rank. ValueError, which contains ``name``, if it is not a member."""
        if rank not in self.ranks:
            raise ValueError(f"{name} must be one of the group's ranks {list(self.ranks)}, got {rank!r}")
        return self.ranks.index(rank)

    def preset(self, count: int) -> None:
        """Set this rank's counts of turns, of ``device_barrier`` and of epochs to ``count``, modulo 2^32.

        For tests of counts that wrap. Every member must do this, with the same count, while the group is idle.
        """
        signed = (count + 2**31) % 2**32 - 2**31
        self.words.fill_(signed)
        if self.slots is not None:
            self.slots.own.zero_()  # no word may look like one of an epoch to come
            self.slots.own[: EPOCH_WORDS.value * 4].view(torch.int32).fill_(signed)


@dataclass(frozen=True)
class Scratch:
    """Memory of a group outside the heap, which each member has some of and every member reaches.

    Attributes:
        own: uint8, this rank's.
        bases: int64 (size,): where each member's is mapped here.
    """

    own: torch.Tensor
    bases: torch.Tensor


class Groups:
    """The groups of one instance. Construction is collective over the world; all signal words are zero after it.

    ``context_of`` makes the context tensor of a list of global ranks.
    """

    def __init__(
        self, platform: Platform, rank: int, num_ranks: int, context_of: Callable[[Sequence[int]], torch.Tensor]
    ) -> None:
        self._rank = rank
        self._num_ranks = num_ranks
        self._context_of = context_of
        self._closed = False
        # Per group: a table of addresses, and directly behind it this rank's words (``device.signals`` relies on that).
        slot = -(-(2 + _ROWS) * num_ranks // 4) * 4
        words = MOST_GROUPS * slot
        boxes = -(-words * 4 // _PAGE) * _PAGE
        size = boxes + num_ranks * MAX_TAGS.value * BOX_WORDS.value * 8
        self._memory = platform.map_symmetric_memory(size, rank, num_ranks)
        self._memory.pool[:size].zero_()
        self._words = self._memory.pool[: words * 4].view(torch.int32).view(MOST_GROUPS, slot)
        starts = [base + boxes if base else 0 for base in self._memory.bases]
        self._boxes = torch.tensor(starts, dtype=torch.int64, device=self._words.device)
        self._slots: dict[tuple[int, ...], int] = {}
        self._members: dict[tuple[int, ...], Members] = {}
        self._platform = platform
        self._scratch: dict[tuple[tuple[int, ...], str], Scratch] = {}
        self._scratch_memory: list[tuple[SymmetricMemory, Scratch]] = []
        self.barrier_words: dict[tuple[int, ...] | None, torch.Tensor] = {}
        self._enter(tuple(range(num_ranks)), None, 0)

    def members(self, group: dist.ProcessGroup | None) -> Members:
        """The group's members. The first use of a group exchanges them on the host, collectively over the group.

        Raises:
            ValueError: more than ``device.signals.MAX_MEMBERS`` ranks, or ranks of several hosts.
            RuntimeError: this rank is not in the group; the instance is closed; the first use of a group while a graph
                is captured; more than ``MOST_GROUPS`` groups.
        """
        if self._closed:
            raise RuntimeError("the instance is closed")
        if is_outside(group):
            raise RuntimeError(f"rank {self._rank} is not part of the group")
        # A group of all ranks in their order is the world, by whatever handle.
        ranks = tuple(range(self._num_ranks) if group is None else dist.get_process_group_ranks(group))
        new = ranks not in self._members
        if new and self._rank not in ranks:
            raise RuntimeError(f"rank {self._rank} is not part of the group {list(ranks)}")
        if new and len(ranks) > MAX_MEMBERS.value:
            raise ValueError(f"a group has at most {MAX_MEMBERS.value} members, got {len(ranks)}: {list(ranks)}")
        if far := [rank for rank in ranks if not self._memory.bases[rank]]:
            raise ValueError(
                f"the group {list(ranks)} has ranks on other hosts, {far}: kernels of rank {self._rank} reach only the"
                f" ranks {list(self.reachable)}, so make a group for each host"
            )
        if new:
            if is_capturing(self._words.device):
                raise RuntimeError(
                    f"the first use of the group {list(ranks)} exchanges data with its members: "
                    "use it once before capturing a graph"
                )
            self._enter(ranks, group, self._free_slot(group))
        known = self._members[ranks]
        if known.group is not None and known.group is not group:
            # The process group that was known may have been destroyed since.
            known = self._members[ranks] = replace(known, group=group)
        return known

    @property
    def reachable(self) -> tuple[int, ...]:
        """The ranks whose memory kernels of this rank reach, itself among them: those of its host."""
        return tuple(rank for rank, base in enumerate(self._memory.bases) if base)

    def boxes(self) -> torch.Tensor:
        """int64 (num_ranks,): where each rank's mailboxes are mapped here; see ``device.mailboxes``."""
        if self._closed:
            raise RuntimeError("the instance is closed")
        return self._boxes

    def scratch(self, members: Members, use: str, num_bytes: int) -> Scratch:
        """Return at least ``num_bytes`` of scratch memory for ``use``, zero at first: the same memory while it is
        large enough. Collective over the group on the host if it is not, else no member waits.

        Outgrown memory, and the table of its places, stay until the instance is closed, since a device graph may refer
        to them; as it at least doubles, that is less than what is in use.

        Raises:
            RuntimeError: memory is needed while a graph is captured.
            ValueError: the memory cannot be had, on some member.
        """
        kept = self._scratch.get((members.ranks, use))
        if kept is not None and kept.own.numel() >= num_bytes:
            return kept
        if is_capturing(self._words.device):
            raise RuntimeError(
                f"{use} needs {num_bytes} bytes that every member maps: prepare them before capturing a graph"
            )
        grown = max(num_bytes, 2 * kept.own.numel() if kept is not None else 0)
        kept = self._scratch[members.ranks, use] = self._mapped(grown, members.ranks, members.group)
        self._await_zeros(members.group)
        return kept

    def close(self) -> None:
        """Free the memory. Idempotent, not collective."""
        self._closed = True
        self._scratch.clear()
        while self._scratch_memory:
            memory, _ = self._scratch_memory.pop()
            memory.close()
        self._members.clear()
        self.barrier_words.clear()
        self._words = self._words[:0].clone()
        self._memory.close()

    def _enter(self, ranks: tuple[int, ...], group: dist.ProcessGroup | None, slot: int) -> None:
        size, table_words = len(ranks), 2 * len(ranks)
        # Now, when all members are here: later calls may not wait for anybody.
        slots = self._mapped(slot_bytes(size), ranks, group) if size <= MAX_SENDERS.value else None
        start = (slot * self._words.stride(0) + table_words) * 4
        pads = self._words[slot, :table_words].view(torch.int64)
        pads.copy_(torch.tensor([self._memory.bases[rank] + start for rank in ranks]))
        words = self._words[slot, table_words : table_words + _ROWS * size].view(_ROWS, size)
        self._await_zeros(group)
        self._slots[ranks] = slot
        self._members[ranks] = Members(
            ranks,
            ranks.index(self._rank),
            self._context_of(ranks),
            pads,
            words,
            slots,
            group,
        )
        world = ranks == tuple(range(self._num_ranks))
        self.barrier_words[None if world else ranks] = words[-1]

    def _mapped(self, num_bytes: int, ranks: tuple[int, ...], group: dist.ProcessGroup | None) -> Scratch:
        """Memory of that group's, zero once ``_await_zeros`` has returned. Collective over it."""
        size = -(-num_bytes // _PAGE) * _PAGE
        memory = self._platform.map_symmetric_memory(size, ranks.index(self._rank), len(ranks), group)
        own = memory.pool[:size].zero_()
        mapped = Scratch(own, torch.tensor(memory.bases, dtype=torch.int64, device=own.device))
        self._scratch_memory.append((memory, mapped))
        return mapped

    def _await_zeros(self, group: dist.ProcessGroup | None) -> None:
        """Return when what each member has enqueued to zero its memory has ended."""
        self._platform.synchronize()
        host_barrier(group)

    def _free_slot(self, group: dist.ProcessGroup | None) -> int:
        """The first one that no member uses yet. Collective over the group."""
        mine = [int(slot in self._slots.values()) for slot in range(MOST_GROUPS)]
        used = [any(column) for column in zip(*exchange(mine, group, "meeting in a new group"), strict=True)]
        if all(used):
            raise RuntimeError(f"{MOST_GROUPS} groups are in use already, all that an instance can have")
        return used.index(False)
