"""The tensors of a fused op, and what is asked of them."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch

from iris_under_test.ccl.overlap import lies_on_itself, shares_memory

__all__ = ["FusedShapeError", "Operands"]

DTYPES = (torch.float16, torch.bfloat16, torch.float32)


class FusedShapeError(ValueError, AssertionError):
    """Shapes or dtypes that do not fit. The reference asserts some of them; this is a ValueError in any case."""


@dataclass(frozen=True)
class Operands:
    """What is multiplied, ``A`` @ ``B`` plus ``bias``, and where the result goes: each op says what of the whole
    product these are. ``bias``: one value for each row of ``A``.
    """

    output: torch.Tensor
    A: torch.Tensor
    B: torch.Tensor
    bias: torch.Tensor | None = None

    @property
    def addend(self) -> torch.Tensor:
        """The bias, or where there is none a tensor that kernels get in its place and do not read."""
        return self.A if self.bias is None else self.bias

    @property
    def strides(self) -> tuple[int, ...]:
        """Two of A, two of B, two of the output, and one of the bias, as most kernels take them."""
        step = 0 if self.bias is None else self.bias.stride(0)
        return (*self.A.stride(), *self.B.stride(), *self.output.stride(), step)

    def checked(self, op: str, device: torch.device, *, shards: int, stacked: int) -> tuple[int, int, int]:
        """(M, N, K) of the whole product, of which A has one of ``shards`` of the columns, and the rows of one of
        ``stacked`` parts of the output.

        Raises:
            FusedShapeError: a tensor that must have two dimensions has not, or one has another shape; dtypes differ, or
                are none of ``DTYPES``; a tensor is on another device; elements of the output lie on each other, or on
                those of an input.
        """
        for name, tensor in (("output", self.output), ("A", self.A), ("B", self.B)):
            if tensor.dim() != 2:
                raise FusedShapeError(f"{op}: {name} must have two dimensions, got {tuple(tensor.shape)}")
        (rows, columns), n = self.A.shape, self.B.shape[1]
        m, k = rows * stacked, columns * shards
        wanted = {"output": (m, n), "A": (rows, columns), "B": (k, n), "bias": (rows,)}
        dtype = self.A.dtype
        if dtype not in DTYPES:
            raise FusedShapeError(f"{op}: A must be one of {DTYPES}, got {dtype}")
        for field in fields(self):
            name, tensor = field.name, getattr(self, field.name)
            if tensor is None:
                continue
            if tuple(tensor.shape) != wanted[name]:
                raise FusedShapeError(f"{op}: {name} must have the shape {wanted[name]}, got {tuple(tensor.shape)}")
            if tensor.dtype != dtype:
                raise FusedShapeError(f"{op}: A is {dtype}, but {name} is {tensor.dtype}")
            if tensor.device != device:
                raise FusedShapeError(f"{op}: {name} is on {tensor.device}, the heap on {device}")
            if name != "output" and shares_memory(self.output, tensor if name != "bias" else tensor[:, None]):
                raise FusedShapeError(f"{op}: elements of the output lie on those of {name}")
        if lies_on_itself(self.output):
            raise FusedShapeError(f"{op}: elements of the output lie on each other: strides {self.output.stride()}")
        return m, n, k
