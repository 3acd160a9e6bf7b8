"""``ctx.ccl``: the collectives bound to an instance."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from . import all_gather as _module_function
from .config import Config

if TYPE_CHECKING:
    from iris_under_test.host.iris import Iris

__all__ = ["InstanceCollectives"]


class InstanceCollectives:
    """The functions of ``ccl`` without their instance argument."""

    def __init__(self, instance: Iris) -> None:
        self._instance = instance

    def all_gather(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup | None = None,
        async_op: bool = False,
        config: Config | None = None,
    ) -> None:
        """See ``ccl.all_gather``."""
        _module_function(output_tensor, input_tensor, self._instance, group, async_op, config)
