"""Tensors outside the heap."""

import torch


def ends_with(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy with equal strides, in memory of its own that ends with its last element. It begins as far behind a
    multiple of 16 bytes as the tensor does, since Triton compiles another kernel for tensors
    that begin at such a multiple.

    On the emulated device an access beyond the last element is a fault.
    """
    if not tensor.numel():
        return torch.empty_like(tensor)
    count = 1 + sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    skipped = tensor.data_ptr() % 16 // tensor.itemsize
    memory = torch.empty(skipped + count, dtype=tensor.dtype, device=tensor.device)
    return memory.as_strided(tensor.shape, tensor.stride(), skipped).copy_(tensor)
