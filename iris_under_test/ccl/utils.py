"""``extract_group_info`` under the name that users import."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch.distributed as dist

from iris_under_test.host.distributed import helpers

if TYPE_CHECKING:
    from iris_under_test.host.iris import Iris

__all__ = ["extract_group_info"]


def extract_group_info(group: dist.ProcessGroup | None, iris_instance: Iris) -> tuple[int, int, int, int, int]:
    """``host.distributed.extract_group_info`` for an instance's rank and world."""
    return helpers.extract_group_info(group, iris_instance.cur_rank, iris_instance.num_ranks)
