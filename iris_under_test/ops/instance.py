"""``ctx.ops``: the fused ops bound to an instance."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from .all_gather_matmul import all_gather_matmul, all_gather_matmul_preamble
from .config import FusedConfig
from .matmul_all_gather import matmul_all_gather, matmul_all_gather_preamble
from .matmul_all_reduce import matmul_all_reduce, matmul_all_reduce_preamble
from .matmul_reduce_scatter import matmul_reduce_scatter, matmul_reduce_scatter_preamble
from .workspace import FusedWorkspace

if TYPE_CHECKING:
    from iris_under_test.host.iris import Iris

__all__ = ["InstanceOps"]


class InstanceOps:
    """The functions of ``ops`` without their instance argument; ``bias`` follows the matrices in all of them."""

    def __init__(self, instance: Iris) -> None:
        self._instance = instance

    def matmul_all_reduce(
        self,
        output_tensor: torch.Tensor,
        A: torch.Tensor,
        B: torch.Tensor,
        bias: torch.Tensor | None = None,
        async_op: bool = False,
        config: FusedConfig | None = None,
        workspace: FusedWorkspace | None = None,
    ) -> FusedWorkspace:
        """See ``ops.matmul_all_reduce``."""
        return matmul_all_reduce(self._instance, output_tensor, A, B, async_op, config, workspace, bias)

    def all_gather_matmul(
        self,
        output_tensor: torch.Tensor,
        A_shard: torch.Tensor,
        B: torch.Tensor,
        bias: torch.Tensor | None = None,
        async_op: bool = False,
        config: FusedConfig | None = None,
        workspace: FusedWorkspace | None = None,
    ) -> FusedWorkspace:
        """See ``ops.all_gather_matmul``."""
        return all_gather_matmul(self._instance, output_tensor, A_shard, B, bias, async_op, config, workspace)

    def matmul_all_gather(
        self,
        output_tensor: torch.Tensor,
        A: torch.Tensor,
        B: torch.Tensor,
        bias: torch.Tensor | None = None,
        async_op: bool = False,
        config: FusedConfig | None = None,
        workspace: FusedWorkspace | None = None,
    ) -> FusedWorkspace:
        """See ``ops.matmul_all_gather``."""
        return matmul_all_gather(self._instance, output_tensor, A, B, bias, async_op, config, workspace)

    def matmul_reduce_scatter(
        self,
        output_tensor: torch.Tensor,
        A: torch.Tensor,
        B: torch.Tensor,
        bias: torch.Tensor | None = None,
        async_op: bool = False,
        config: FusedConfig | None = None,
        workspace: FusedWorkspace | None = None,
    ) -> FusedWorkspace:
        """See ``ops.matmul_reduce_scatter``."""
        return matmul_reduce_scatter(self._instance, output_tensor, A, B, async_op, config, workspace, bias)

    def matmul_all_reduce_preamble(
        self,
        output_tensor: torch.Tensor,
        A: torch.Tensor,
        B: torch.Tensor,
        config: FusedConfig | None = None,
        workspace: FusedWorkspace | None = None,
    ) -> FusedWorkspace:
        """See ``ops.matmul_all_reduce_preamble``."""
        return matmul_all_reduce_preamble(self._instance, output_tensor, A, B, config, workspace)

    def all_gather_matmul_preamble(
        self,
        output_tensor: torch.Tensor,
        A_shard: torch.Tensor,
        B: torch.Tensor,
        config: FusedConfig | None = None,
        workspace: FusedWorkspace | None = None,
    ) -> FusedWorkspace:
        """See ``ops.all_gather_matmul_preamble``."""
        return all_gather_matmul_preamble(self._instance, output_tensor, A_shard, B, config, workspace)

    def matmul_all_gather_preamble(
        self,
        output_tensor: torch.Tensor,
        A: torch.Tensor,
        B: torch.Tensor,
        config: FusedConfig | None = None,
        workspace: FusedWorkspace | None = None,
    ) -> FusedWorkspace:
        """See ``ops.matmul_all_gather_preamble``."""
        return matmul_all_gather_preamble(self._instance, output_tensor, A, B, config, workspace)

    def matmul_reduce_scatter_preamble(
        self,
        output_tensor: torch.Tensor,
        A: torch.Tensor,
        B: torch.Tensor,
        config: FusedConfig | None = None,
        workspace: FusedWorkspace | None = None,
    ) -> FusedWorkspace:
        """See ``ops.matmul_reduce_scatter_preamble``."""
        return matmul_reduce_scatter_preamble(self._instance, output_tensor, A, B, config, workspace)
