"""Contents of a benchmark's tensors: numbered words for ops that only move data, small numbers for ops that add.

Each timing has new inputs, so that every function writes its tensor in one pass, on the tensor's device. Only ranks
import this module: it needs torch.
"""

from __future__ import annotations

import torch

PERIOD = 1_048_573
"""Period of the addends, in elements: a prime, so that no tile, row or rank's part equals the next one."""

SMALLEST = -14
"""Floating-point addends are multiples of 2**-14, fp16's smallest normal number, so that sums can be summed again."""

_SPREAD, _STEP, _RANK_STEP, _STIR = 0x9E3779B1, 0x85EBCA6B, 0xC2B2AE35, 0x2C1B3C6D
_MASK = (1 << 32) - 1


def number(tensor: torch.Tensor, first: int, generation: int) -> None:
    """Write 32-bit words that are all different within 16 GiB; each word also differs from one generation to the next.

    ``tensor`` is 2-D, with contiguous rows that are multiples of 4 bytes. Its first word has the number ``first``.
    """
    words = tensor.view(torch.int32)
    rows, columns = (torch.arange(count, dtype=torch.int32, device=words.device) for count in words.shape)
    # (row * C + column) * SPREAD, as one sum: arithmetic on words wraps.
    rows.mul_(_signed(words.shape[1] * _SPREAD)).add_(_signed(first * _SPREAD + generation * _STEP))
    torch.add(rows[:, None], columns.mul_(_signed(_SPREAD))[None, :], out=words)


def addends(tensor: torch.Tensor, bits: int, rank: int, generation: int) -> None:
    """Write the addends of ``rank``: numbers of ``bits`` bits that differ between neighbours, ranks and generations."""
    _repeat(tensor, _addends(tensor, bits, rank, generation, 0), 0)


def sums(tensor: torch.Tensor, bits: int, first: int, ranks: int, generation: int, factor: int = 1) -> None:
    """Write ``factor`` times the sum of all ranks' ``addends``, from element ``first`` on."""
    total = _addends(tensor, bits, 0, generation, first)
    for rank in range(1, ranks):
        total += _addends(tensor, bits, rank, generation, first)
    _repeat(tensor, total * (float(factor) if total.dtype.is_floating_point else factor), first)


def _addends(tensor: torch.Tensor, bits: int, rank: int, generation: int, first: int) -> torch.Tensor:
    """Return one period of addends as float64 or int64, or only its start if the tensor is shorter."""
    count = PERIOD if first else min(PERIOD, tensor.numel())
    values = torch.arange(count, dtype=torch.int64, device=tensor.device)
    values.mul_(_SPREAD).add_(rank * _RANK_STEP + generation * _STEP).bitwise_and_(_MASK)
    # Mix the bits: without this, ranks whose offsets are close to each other would have nearly the same numbers.
    values ^= values >> 15
    values.mul_(_STIR).bitwise_and_(_MASK)
    values ^= values >> 12
    values &= (1 << bits) - 1
    return values.to(torch.float64) * 2.0**SMALLEST if tensor.dtype.is_floating_point else values


def _repeat(tensor: torch.Tensor, period: torch.Tensor, first: int) -> None:
    flat = tensor.view(-1)
    period = period.roll(-(first % PERIOD)).to(tensor.dtype)
    times = flat.numel() // len(period)
    whole = times * len(period)
    flat[:whole].view(times, len(period)).copy_(period)
    flat[whole:].copy_(period[: flat.numel() - whole])


def _signed(value: int) -> int:
    """Return ``value`` modulo 2**32 as a signed 32-bit integer."""
    value %= 1 << 32
    return value - (1 << 32) if value >= 1 << 31 else value
