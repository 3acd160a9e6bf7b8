"""Test data and comparisons shared by the kernel-level tests of the emulator."""

import torch

DTYPES = {
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "fp32": torch.float32,
    "fp64": torch.float64,
    "i8": torch.int8,
    "i16": torch.int16,
    "i32": torch.int32,
    "i64": torch.int64,
}
_WORD = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """Return the same memory as integers, to compare bits instead of values."""
    return tensor.view(_WORD[tensor.element_size()])


def random_bits(n: int, dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Return any bit patterns, including NaN and infinities: for moves, which must not depend on values."""
    generator = torch.Generator().manual_seed(seed)
    size = torch.empty(0, dtype=dtype).element_size()
    return torch.randint(0, 256, (n * size,), dtype=torch.uint8, generator=generator).view(dtype)


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.equal(bits(a), bits(b))
