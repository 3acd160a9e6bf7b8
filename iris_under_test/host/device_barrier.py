"""A barrier that runs on the devices: one small kernel in stream order, no host wait."""

from __future__ import annotations

import triton
import triton.language as tl

from iris_under_test.device.signals import MAX_PROGRAMS, first_turn, signal, wait

from .groups import Members
from .tracing.kernel_artifacts import iris_launch

__all__ = ["barrier_kernel", "enqueue_barrier"]


@triton.jit(do_not_specialize=["member"])
def barrier_kernel(pads, member, SIZE: tl.constexpr):
    """One program, with a row of signal words of its own. See ``device.signals``."""
    row: tl.constexpr = MAX_PROGRAMS
    turn = first_turn(pads, member, SIZE, row)
    signal(pads, member, SIZE, row, turn)
    wait(pads, SIZE, row, turn)


def enqueue_barrier(members: Members) -> None:
    """On the current stream. See ``Iris.device_barrier``."""
    iris_launch(
        barrier_kernel, (1,), members.pads, members.rank, members.size,
        algorithm="device_barrier", rank=members.ranks[members.rank], num_warps=1,
    )  # fmt: skip
