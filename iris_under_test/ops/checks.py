"""What the fused ops ask of their arguments."""

from __future__ import annotations

from collections.abc import Sequence

import torch

__all__ = ["FusedShapeError", "check_operands"]

DTYPES = (torch.float16, torch.bfloat16, torch.float32)


class FusedShapeError(ValueError, AssertionError):
    """Shapes or dtypes that do not fit. The reference asserts some of them; this is a ValueError in any case."""


def check_operands(
    op: str,
    shapes: Sequence[tuple[str, torch.Tensor, tuple[int, int]]],
    bias: torch.Tensor | None,
    rows: int,
    device: torch.device,
) -> None:
    """``shapes``: name, tensor and wanted shape of each operand. ``bias``: one value for each of ``rows`` rows.

    Raises:
        FusedShapeError: an operand has another shape; dtypes differ, or are none of ``DTYPES``; a tensor is on another
            device; elements of the output, the last operand, lie on each other.
    """
    dtype = shapes[0][1].dtype
    if dtype not in DTYPES:
        raise FusedShapeError(f"{op}: {shapes[0][0]} must be one of {DTYPES}, got {dtype}")
    for name, tensor, wanted in shapes:
        if tuple(tensor.shape) != wanted:
            raise FusedShapeError(f"{op}: {name} must have the shape {wanted}, got {tuple(tensor.shape)}")
    if bias is not None and tuple(bias.shape) != (rows,):
        raise FusedShapeError(f"{op}: bias must have one value per row, ({rows},), got {tuple(bias.shape)}")
    for name, tensor in [(name, tensor) for name, tensor, _ in shapes] + ([("bias", bias)] if bias is not None else []):
        if tensor.dtype != dtype:
            raise FusedShapeError(f"{op}: {shapes[0][0]} is {dtype}, but {name} is {tensor.dtype}")
        if tensor.device != device:
            raise FusedShapeError(f"{op}: {name} is on {tensor.device}, the heap on {device}")
    output = shapes[-1][1]
    if output.numel() and torch._debug_has_internal_overlap(output) == 1:
        raise FusedShapeError(f"{op}: elements of the output lie on each other: its strides are {output.stride()}")


def check_matrices(op: str, **tensors: torch.Tensor) -> None:
    """FusedShapeError unless all have two dimensions."""
    for name, tensor in tensors.items():
        if tensor.dim() != 2:
            raise FusedShapeError(f"{op}: {name} must have two dimensions, got {tuple(tensor.shape)}")
