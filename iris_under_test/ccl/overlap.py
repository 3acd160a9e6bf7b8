"""Checks of a tensor's memory: whether elements are shared, which those of a collective's output must not be, and
whether it holds the tensor's values."""

from __future__ import annotations

import math

import torch

__all__ = ["is_lazy", "lies_on_itself", "same_memory", "shares_memory"]


def is_lazy(tensor: torch.Tensor) -> bool:
    """Return whether torch negates or conjugates what the tensor's memory holds whenever it reads an element. A kernel
    reads the memory.
    """
    return bool(tensor.is_neg() or tensor.is_conj())


def lies_on_itself(tensor: torch.Tensor) -> bool:
    """Return whether two elements of a tensor of one or two dimensions are the same memory.

    Example: (2, 4) with strides (2, 1) does, since element (1, 0) is element (0, 2).
    """
    (rows, columns), (down, right) = (1, *tensor.shape)[-2:], (0, *tensor.stride())[-2:]
    if not tensor.numel():
        return False
    # i * down == j * right for the least i and j.
    common = math.gcd(down, right)
    if common == 0:
        return bool(tensor.numel() > 1)
    return bool(right // common < rows and down // common < columns)


def same_memory(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two tensors have the same elements at the same addresses. The stride of a dimension of size 1 is
    ignored.
    """
    if one.data_ptr() != other.data_ptr() or one.shape != other.shape:
        return False
    strides = zip(one.shape, one.stride(), other.stride(), strict=True)
    return all(mine == theirs for length, mine, theirs in strides if length > 1)


def shares_memory(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two 2-D tensors, neither of which overlaps itself, have a byte in common. Does not wait for a
    device.

    Example: the left and the right half of a matrix have none, although each starts before the other one ends.
    """
    if not one.numel() or not other.numel() or _first(one) >= _end(other) or _first(other) >= _end(one):
        return False
    (many, apart, length), (others, their_apart, their_length) = _runs(one), _runs(other)
    starts = torch.arange(many, dtype=torch.int64) * apart + (_first(one) - _first(other))
    # Of the other's runs, from byte k * their_apart on, those that end behind a start and begin before its end.
    lowest = torch.div(starts - their_length, their_apart, rounding_mode="floor") + 1
    highest = torch.div(starts + length - 1, their_apart, rounding_mode="floor")
    return bool((lowest.clamp(min=0) <= highest.clamp(max=others - 1)).any())


def _runs(tensor: torch.Tensor) -> tuple[int, int, int]:
    """Return (count, bytes from one to the next, bytes) of the contiguous runs of memory."""
    size = tensor.element_size()
    (near, few), (far, many) = sorted(zip(tensor.stride(), tensor.shape, strict=True), key=lambda pair: pair[0])
    if few == 1:
        near, few, far, many = far, many, far * many, 1
    if near == 1 and (many == 1 or far >= few):
        return many, max(far, few) * size, few * size
    if many == 1:
        return few, near * size, size
    # Elements apart in both directions: each by itself would be exact, its row is on the safe side.
    return many, max(far, 1) * size, ((few - 1) * near + 1) * size


def _first(tensor: torch.Tensor) -> int:
    return tensor.data_ptr()


def _end(tensor: torch.Tensor) -> int:
    """Return the address after the last element."""
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr() + (last + 1) * tensor.element_size()
