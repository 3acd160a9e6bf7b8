"""Tensors of a fused op, and their checks."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch

from iris_under_test.ccl.overlap import is_lazy, lies_on_itself, shares_memory

__all__ = ["FusedShapeError", "Operands"]

DTYPES = (torch.float16, torch.bfloat16, torch.float32)


class FusedShapeError(ValueError, AssertionError):
    """Shapes or dtypes that do not fit. Upstream Iris asserts some of them; this is always a ValueError."""


@dataclass(frozen=True)
class Operands:
    """Operands of ``A`` @ ``B`` plus ``bias``, and the tensor for the result; each op defines their part of the whole
    product.

    ``bias``: one value for each row of ``A``.
    """

    output: torch.Tensor
    A: torch.Tensor
    B: torch.Tensor
    bias: torch.Tensor | None = None

    @property
    def addend(self) -> torch.Tensor:
        """Return the bias, or without one a tensor that kernels receive in its place and do not read."""
        return self.A if self.bias is None else self.bias

    @property
    def strides(self) -> tuple[int, ...]:
        """Return two strides of A, two of B, two of the output, and one of the bias, as most kernels take them."""
        step = 0 if self.bias is None else self.bias.stride(0)
        return (*self.A.stride(), *self.B.stride(), *self.output.stride(), step)

    def checked(self, op: str, device: torch.device, *, shards: int, stacked: int) -> tuple[int, int, int]:
        """Return (M, N, K) of the whole product.

        A has one of ``shards`` parts of its columns, and the rows of one of ``stacked`` parts of the output.

        Raises:
            FusedShapeError: a tensor does not have two dimensions, or has another shape; dtypes differ, or are not in
                ``DTYPES``; a tensor is on another device, or a lazy negative; elements of the output share memory with
                each other, or with an input.
        """
        for name, tensor in (("output", self.output), ("A", self.A), ("B", self.B)):
            if tensor.dim() != 2:
                raise FusedShapeError(f"{op}: {name} must have two dimensions, got {tuple(tensor.shape)}")
        (rows, columns), n = self.A.shape, self.B.shape[1]
        m, k = rows * stacked, columns * shards
        expected = {"output": (m, n), "A": (rows, columns), "B": (k, n), "bias": (rows,)}
        dtype = self.A.dtype
        if dtype not in DTYPES:
            raise FusedShapeError(f"{op}: A must be one of {DTYPES}, got {dtype}")
        for field in fields(self):
            name, tensor = field.name, getattr(self, field.name)
            if tensor is None:
                continue
            if tuple(tensor.shape) != expected[name]:
                raise FusedShapeError(f"{op}: {name} must have the shape {expected[name]}, got {tuple(tensor.shape)}")
            if tensor.dtype != dtype:
                raise FusedShapeError(f"{op}: {name} must have the dtype {dtype} of A, got {tensor.dtype}")
            if tensor.device != device:
                raise FusedShapeError(f"{op}: {name} must be on the heap's device {device}, got one on {tensor.device}")
            if is_lazy(tensor):
                raise FusedShapeError(f"{op}: {name} is a lazy negative, which kernels cannot read; pass resolve_neg()")
            if name != "output" and shares_memory(self.output, tensor if name != "bias" else tensor[:, None]):
                raise FusedShapeError(f"{op}: the output must not share memory with {name}")
        if lies_on_itself(self.output):
            raise FusedShapeError(
                f"{op}: elements of the output share memory with each other, got strides {self.output.stride()}"
            )
        return m, n, k
