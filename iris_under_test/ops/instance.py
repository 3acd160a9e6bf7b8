"""``ctx.ops``: the fused ops bound to an instance."""

from __future__ import annotations

import torch

from iris_under_test.host.instance import Instance

from .all_gather_matmul import all_gather_matmul, all_gather_matmul_preamble
from .config import FusedConfig
from .matmul_all_gather import matmul_all_gather, matmul_all_gather_preamble
from .matmul_all_reduce import matmul_all_reduce, matmul_all_reduce_preamble
from .matmul_reduce_scatter import matmul_reduce_scatter, matmul_reduce_scatter_preamble
from .workspace import FusedWorkspace

__all__ = ["InstanceOps"]


class InstanceOps:
    """The functions of ``ops`` as methods, without their instance argument; ``bias`` follows the matrices in all of
    them.

    A test compares each method's parameters with its function's.
    """

    def __init__(self, instance: Instance) -> None:
        self._instance = instance

    def matmul_all_reduce(
        self,
        C: torch.Tensor,
        A: torch.Tensor,
        B: torch.Tensor,
        bias: torch.Tensor | None = None,
        async_op: bool = False,
        config: FusedConfig | None = None,
        workspace: FusedWorkspace | None = None,
    ) -> FusedWorkspace:
        """Multiply, and sum the products of all ranks on every rank. See ``ops.matmul_all_reduce``."""
        return matmul_all_reduce(
            self._instance, C, A, B, async_op=async_op, config=config, workspace=workspace, bias=bias
        )

    def all_gather_matmul(
        self,
        C: torch.Tensor,
        A_sharded: torch.Tensor,
        B: torch.Tensor,
        bias: torch.Tensor | None = None,
        async_op: bool = False,
        config: FusedConfig | None = None,
        workspace: FusedWorkspace | None = None,
    ) -> FusedWorkspace:
        """Gather the shards of A of all ranks, and multiply. See ``ops.all_gather_matmul``."""
        return all_gather_matmul(self._instance, C, A_sharded, B, bias, async_op, config, workspace)

    def matmul_all_gather(
        self,
        C: torch.Tensor,
        A: torch.Tensor,
        B: torch.Tensor,
        bias: torch.Tensor | None = None,
        async_op: bool = False,
        config: FusedConfig | None = None,
        workspace: FusedWorkspace | None = None,
    ) -> FusedWorkspace:
        """Multiply, and gather the products of all ranks on every rank. See ``ops.matmul_all_gather``."""
        return matmul_all_gather(self._instance, C, A, B, bias, async_op, config, workspace)

    def matmul_reduce_scatter(
        self,
        C: torch.Tensor,
        A: torch.Tensor,
        B: torch.Tensor,
        bias: torch.Tensor | None = None,
        async_op: bool = False,
        config: FusedConfig | None = None,
        workspace: FusedWorkspace | None = None,
    ) -> FusedWorkspace:
        """Multiply, and sum the products of all ranks, each rank its own tiles. See ``ops.matmul_reduce_scatter``."""
        return matmul_reduce_scatter(
            self._instance, C, A, B, async_op=async_op, config=config, workspace=workspace, bias=bias
        )

    def matmul_all_reduce_preamble(
        self,
        C: torch.Tensor,
        A: torch.Tensor,
        B: torch.Tensor,
        config: FusedConfig | None = None,
        workspace: FusedWorkspace | None = None,
    ) -> FusedWorkspace:
        """Return a workspace for such calls. Collective. See ``ops.matmul_all_reduce_preamble``."""
        return matmul_all_reduce_preamble(self._instance, C, A, B, config, workspace)

    def all_gather_matmul_preamble(
        self,
        C: torch.Tensor,
        A_sharded: torch.Tensor,
        B: torch.Tensor,
        config: FusedConfig | None = None,
        workspace: FusedWorkspace | None = None,
    ) -> FusedWorkspace:
        """Return a workspace for such calls. Collective. See ``ops.all_gather_matmul_preamble``."""
        return all_gather_matmul_preamble(self._instance, C, A_sharded, B, config, workspace)

    def matmul_all_gather_preamble(
        self,
        C: torch.Tensor,
        A: torch.Tensor,
        B: torch.Tensor,
        config: FusedConfig | None = None,
        workspace: FusedWorkspace | None = None,
    ) -> FusedWorkspace:
        """Return a workspace for such calls. Collective. See ``ops.matmul_all_gather_preamble``."""
        return matmul_all_gather_preamble(self._instance, C, A, B, config, workspace)

    def matmul_reduce_scatter_preamble(
        self,
        C: torch.Tensor,
        A: torch.Tensor,
        B: torch.Tensor,
        config: FusedConfig | None = None,
        workspace: FusedWorkspace | None = None,
    ) -> FusedWorkspace:
        """Return a workspace for such calls. Collective. See ``ops.matmul_reduce_scatter_preamble``."""
        return matmul_reduce_scatter_preamble(self._instance, C, A, B, config, workspace)
