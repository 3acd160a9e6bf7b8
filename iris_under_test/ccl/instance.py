"""``ctx.ccl``: the collectives bound to an instance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_under_test.host.binding import bound

from . import (
    all_gather,
    all_reduce,
    all_reduce_preamble,
    all_to_all,
    barrier,
    broadcast,
    gather,
    recv,
    reduce,
    reduce_scatter,
    scatter,
    send,
    sendrecv,
)

if TYPE_CHECKING:
    from iris_under_test.host.iris import Iris

__all__ = ["InstanceCollectives"]


class InstanceCollectives:
    """The functions of ``ccl`` without their instance argument."""

    def __init__(self, instance: Iris) -> None:
        self._instance = instance

    all_gather = bound(all_gather)
    all_reduce = bound(all_reduce)
    all_reduce_preamble = bound(all_reduce_preamble)
    all_to_all = bound(all_to_all)
    reduce_scatter = bound(reduce_scatter)
    broadcast = bound(broadcast)
    reduce = bound(reduce)
    scatter = bound(scatter)
    gather = bound(gather)
    barrier = bound(barrier)
    send = bound(send)
    recv = bound(recv)
    sendrecv = bound(sendrecv)
