"""What collectives share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

from iris_under_test.host.distributed import helpers

if TYPE_CHECKING:
    from iris_under_test.host.iris import Iris

    from .config import Config

__all__ = ["extract_group_info"]


def extract_group_info(group: dist.ProcessGroup | None, iris_instance: Iris) -> tuple[int, int, int, int, int]:
    """``host.distributed.extract_group_info`` for an instance's rank and world."""
    return helpers.extract_group_info(group, iris_instance.cur_rank, iris_instance.num_ranks)


def finished(enqueue: Callable[[], None], ctx: Iris, async_op: bool) -> None:
    """Calls ``enqueue``, then without ``async_op`` the barrier of the world; an error comes out behind that."""
    if async_op:
        enqueue()
        return
    error: Exception | None = None
    try:
        enqueue()
    except Exception as failure:  # noqa: BLE001 - raised by host_barrier, once the others have been told
        error = failure
    if error is None:
        ctx.barrier()
    else:
        helpers.host_barrier(None, error)


def compiler_options(config: Config) -> dict[str, Any]:
    """What a launch tells the compiler. ``waves_per_eu`` only for AMD GPUs: Triton refuses it for others."""
    from triton.runtime import driver

    options = {"num_warps": config.num_warps, "num_stages": config.num_stages}
    if config.waves_per_eu and driver.active.get_current_target().backend == "hip":
        options["waves_per_eu"] = config.waves_per_eu
    return options
