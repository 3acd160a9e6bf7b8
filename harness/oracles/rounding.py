"""Bound on the error of a rounded sum, derived from IEEE 754 rounding instead of an empirical tolerance."""

from __future__ import annotations

import torch


def sum_error(got: torch.Tensor, parts: torch.Tensor) -> float:
    """Return the worst error of an element of ``got``, as a multiple of the error that rounding allows: correct up to
    1.

    ``got`` is the sum of W ``parts`` (W, *got.shape) of the same floating-point dtype, added in any order. The result
    is NaN if ``got`` has a NaN.

    Each of at most W additions rounds by half a unit of the partial sum, so at most by half a unit of the sum of
    magnitudes; elements of 16 bits are added in float32, and the sum is rounded once more. W must be far below 2^24, so
    that the sum in float64 is accurate enough for comparison.

    Example: float32 parts 1 and 2^-24 allow 2 additions x (1 + 2^-24) x 2^-24, plus half a unit of their sum: 1 is
    right, and so is the float32 above it; 1 + 2^-21 is not.
    """
    if not got.numel():
        return 0.0
    added_in = torch.float32 if got.dtype.itemsize == 2 else got.dtype
    exact, reach = parts.double().sum(0), parts.double().abs().sum(0)
    allowed = reach * (torch.finfo(added_in).eps / 2 * len(parts)) + exact.abs() * (torch.finfo(got.dtype).eps / 2)
    error = (got.double() - exact).abs()
    return float(torch.where(error == 0, error, error / allowed).max())
