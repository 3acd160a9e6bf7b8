"""``extract_group_info`` under its published module path."""

from __future__ import annotations

import torch.distributed as dist

from iris_under_test.host.distributed import helpers
from iris_under_test.host.instance import Instance

__all__ = ["extract_group_info"]


def extract_group_info(group: dist.ProcessGroup | None, iris_instance: Instance) -> tuple[int, int, int, int, int]:
    """``host.distributed.extract_group_info`` for an instance's rank and world."""
    return helpers.extract_group_info(group, iris_instance.cur_rank, iris_instance.num_ranks)
