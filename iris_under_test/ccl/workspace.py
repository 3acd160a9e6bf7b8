"""``AllReduceWorkspace``: memory that some variants of all_reduce share among the members."""

from __future__ import annotations

from dataclasses import dataclass

from iris_under_test.device.signals import MAX_PROGRAMS
from iris_under_test.host.groups import Members, Scratch
from iris_under_test.host.instance import Instance

from .work import Work

__all__ = ["FLAG_BYTES", "AllReduceWorkspace", "Needs"]

FLAG_BYTES = MAX_PROGRAMS.value * 4
"""Bytes reserved for the flags of the ring, whatever their number, so that no other data ever lies there."""


@dataclass(frozen=True)
class Needs:
    """Needs of one call on each member: ``words`` locks or flags, and ``num_bytes`` of memory including them."""

    words: int = 0
    num_bytes: int = 0


class AllReduceWorkspace:
    """Workspace that ``all_reduce`` returns and accepts: memory that the members share, and the handle of the last
    call.

    Three variants need memory: "spinlock", an int32 lock per tile; "ring", flags and slots per program;
    "two_shot_push", slots per program. The workspaces of the other variants are empty. The memory is outside the heap,
    and only the group's members take part in its allocation. Between calls all its locks and flags are zero, as at
    first, since the kernels reset them: no host, no barrier. It belongs to the group and lasts as long as the instance;
    workspaces of one group and variant share it, as the group's calls follow one another anyway.

    Attributes:
        variant: of ``Config.all_reduce_variant``.
        ranks: global ranks of the group's members.
        words: locks or flags (programs) that it was prepared for; a call may need fewer.
        num_bytes: bytes that it was prepared for.
    """

    def __init__(self, variant: str, members: Members, needs: Needs) -> None:
        self.variant = variant
        self.ranks = members.ranks
        self.words = needs.words
        self.num_bytes = needs.num_bytes
        self._scratch: Scratch | None = None
        self._work: Work | None = None

    @property
    def prepared(self) -> bool:
        """Return whether it has its memory. A call does not change this (in upstream Iris a call resets it)."""
        return self.num_bytes == 0 or self._scratch is not None

    def wait(self) -> None:
        """``Work.wait`` of the last call with this workspace; does nothing if that was not an ``async_op``."""
        if self._work is not None:
            self._work.wait()

    def synchronize(self) -> None:
        """``Work.synchronize`` of the last call with this workspace; does nothing if that was not an ``async_op``."""
        if self._work is not None:
            self._work.synchronize()

    def is_completed(self) -> bool:
        """``Work.is_completed`` of the last call with this workspace; True if that was not an ``async_op``."""
        return self._work is None or self._work.is_completed()

    def serves(self, variant: str, members: Members) -> bool:
        """Return whether it is for that variant and group, whatever its size."""
        return self.variant == variant and self.ranks == members.ranks

    def check_room(self, needs: Needs) -> None:
        """Raise ValueError if a call needs more than this was prepared for."""
        array = {"spinlock": "Lock", "ring": "Flags", "two_shot_push": "Slots"}.get(self.variant, "")
        if needs.words > self.words:
            raise ValueError(
                f"{array} array too small: the workspace was prepared for {self.words}, the call needs {needs.words}"
            )
        if needs.num_bytes > self.num_bytes:
            raise ValueError(
                f"Buffer too small: the workspace has {self.num_bytes} bytes, the call needs {needs.num_bytes}"
            )

    def scratch(self, ctx: Instance, members: Members) -> Scratch | None:
        """Return its memory, or None if the variant needs none. Collective over the group on the host if the group has
        too little.

        Called for each call: if the memory has grown in the meantime, members that pass no workspace use the new memory
        too.
        """
        if self.num_bytes:
            self._scratch = ctx.scratch(members, f"all_reduce {self.variant}", self.num_bytes)
        return self._scratch

    def called(self, work: Work | None) -> None:
        """Store the handle of a call that used it."""
        self._work = work
