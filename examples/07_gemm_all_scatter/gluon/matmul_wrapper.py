"""``matmul``: GEMM all-scatter as a function that torch can differentiate."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from .gemm_all_scatter import GemmAllScatter

__all__ = ["matmul"]


def matmul(a: torch.Tensor, b: torch.Tensor, gemm: GemmAllScatter, c: torch.Tensor | None = None) -> torch.Tensor:
    """Return ``a`` times all ranks' ``b`` side by side: (M, K) and (K, n) give (M, ranks * n) on every rank.
    Collective.

    ``c``: the tensor for the result, on the heap; allocated there, which is collective, if None. float16, bfloat16 and
    float32 can be differentiated, for a loss that every rank computes alike from the whole result: then ``b.grad`` is
    this rank's part, and ``a.grad`` the sum over all ranks, computed by ``torch.distributed.all_reduce``.
    """
    if c is None:
        dtype = torch.int32 if a.dtype == torch.int8 else a.dtype
        c = gemm.ctx.empty((a.shape[0], gemm.ctx.get_num_ranks() * b.shape[1]), dtype=dtype)
    return _MatmulAllScatter.apply(a, b, (gemm, c))


class _MatmulAllScatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: torch.Tensor, b: torch.Tensor, where: tuple[GemmAllScatter, torch.Tensor]) -> torch.Tensor:
        gemm, c = where
        gemm(c, a, b)
        ctx.save_for_backward(a, b)
        ctx.rank = gemm.ctx.get_rank()
        # The same memory as another tensor: the caller's own gets no history.
        return c.detach()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        a, b = ctx.saved_tensors
        mine = gradient[:, ctx.rank * b.shape[1] : (ctx.rank + 1) * b.shape[1]]
        of_a = of_b = None
        if ctx.needs_input_grad[0]:
            of_a = mine @ b.T
            dist.all_reduce(of_a)
        if ctx.needs_input_grad[1]:
            of_b = a.T @ mine
        return of_a, of_b, None
