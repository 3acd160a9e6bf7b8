"""``AllReduceWorkspace``: the memory that some variants of all_reduce share among the members."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from iris_under_test.device.signals import MOST_PROGRAMS

if TYPE_CHECKING:
    from iris_under_test.host.groups import Members, Scratch
    from iris_under_test.host.iris import Iris

    from .work import Work

__all__ = ["FLAG_BYTES", "AllReduceWorkspace", "Needs"]

FLAG_BYTES = MOST_PROGRAMS.value * 4
"""What the flags of the ring take, whatever their number: where they lie, nothing else ever does."""


@dataclass(frozen=True)
class Needs:
    """What one call needs of each member: ``words`` locks or flags, and ``num_bytes`` with them."""

    words: int = 0
    num_bytes: int = 0


class AllReduceWorkspace:
    """What ``all_reduce`` returns and takes again: memory that the members share, and the handle of the last call.

    Memory is needed by "spinlock", an int32 lock per tile, by "ring", flags and slots per program, and by
    "two_shot_push", slots per program; the other variants' workspaces are empty. It lies beside the heap, and only
    the group's members take part in getting it. Between calls it is as at first, all locks and flags zero, since
    the kernels see to that: no host, no barrier. It belongs to the group and lasts as long as the instance;
    workspaces of one group and variant share it, as the group's calls follow one another anyway.

    Attributes:
        variant: of ``Config.all_reduce_variant``.
        ranks: global ranks of the group's members.
        words: locks or flags (programs) that it was prepared for; a call may need fewer.
        num_bytes: that it was prepared for.
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
        """Whether it has its memory. It stays so (in the reference a call takes it back)."""
        return self.num_bytes == 0 or self._scratch is not None

    def wait(self) -> None:
        """``Work.wait`` of the last call with this workspace; nothing if that was not an ``async_op``."""
        if self._work is not None:
            self._work.wait()

    def synchronize(self) -> None:
        """``Work.synchronize``, likewise."""
        if self._work is not None:
            self._work.synchronize()

    def is_completed(self) -> bool:
        """``Work.is_completed``, likewise."""
        return self._work is None or self._work.is_completed()

    def serves(self, variant: str, members: Members) -> bool:
        """Whether it is one for that variant and group, of whatever size."""
        return self.variant == variant and self.ranks == members.ranks

    def check_room(self, needs: Needs) -> None:
        """ValueError if a call needs more than this was prepared for."""
        what = {"spinlock": "Lock", "ring": "Flags", "two_shot_push": "Slots"}.get(self.variant, "")
        if needs.words > self.words:
            raise ValueError(
                f"{what} array too small: the workspace was prepared for {self.words}, the call needs {needs.words}"
            )
        if needs.num_bytes > self.num_bytes:
            raise ValueError(
                f"Buffer too small: the workspace has {self.num_bytes} bytes, the call needs {needs.num_bytes}"
            )

    def scratch(self, ctx: Iris, members: Members) -> Scratch | None:
        """Its memory, None for none. Collective over the group on the host if the group has too little of it.

        Asked for at each call: where it has grown since, members who pass no workspace use the new one too.
        """
        if self.num_bytes:
            self._scratch = ctx.scratch(members, f"all_reduce {self.variant}", self.num_bytes)
        return self._scratch

    def called(self, work: Work | None) -> None:
        """Remembers the handle of a call that used it."""
        self._work = work
