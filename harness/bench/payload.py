"""What a benchmark's tensors hold: numbered words where data only moves, small numbers where it is added.

Everything is written in one pass over the tensor, on its device, since each timing has inputs of its own. Imported on
ranks only: it needs torch.
"""

from __future__ import annotations

import torch

PERIOD = 1_048_573
"""Numbers to be added repeat after so many elements: a prime, so that no tile, row or share is the next one's equal."""

SMALLEST = -14
"""Floating-point numbers are multiples of 2**-14, fp16's smallest normal one: their sums can be summed again."""

_SPREAD, _STEP, _RANK_STEP, _STIR = 0x9E3779B1, 0x85EBCA6B, 0xC2B2AE35, 0x2C1B3C6D
_MASK = (1 << 32) - 1


def number(tensor: torch.Tensor, first: int, generation: int) -> None:
    """Write 32-bit words, all different within 16 GiB, each different from one generation to the next.

    ``tensor`` is 2-D; its rows are contiguous, multiples of 4 bytes, and counted from ``first`` on, as words.
    """
    words = tensor.view(torch.int32)
    rows, columns = (torch.arange(count, dtype=torch.int32, device=words.device) for count in words.shape)
    # (row * C + column) * SPREAD, as one sum: arithmetic on words wraps.
    rows.mul_(_signed(words.shape[1] * _SPREAD)).add_(_signed(first * _SPREAD + generation * _STEP))
    torch.add(rows[:, None], columns.mul_(_signed(_SPREAD))[None, :], out=words)


def addends(tensor: torch.Tensor, bits: int, rank: int, generation: int) -> None:
    """Write what ``rank`` adds: numbers of ``bits`` bits, in which neighbours, ranks and generations differ."""
    _repeat(tensor, _addends(tensor, bits, rank, generation, 0), 0)


def sums(tensor: torch.Tensor, bits: int, first: int, ranks: int, generation: int, factor: int = 1) -> None:
    """Write ``factor`` times the sum of all ranks' ``addends``, those of element ``first`` and on."""
    total = _addends(tensor, bits, 0, generation, first)
    for rank in range(1, ranks):
        total += _addends(tensor, bits, rank, generation, first)
    _repeat(tensor, total * (float(factor) if total.dtype.is_floating_point else factor), first)


def _addends(tensor: torch.Tensor, bits: int, rank: int, generation: int, first: int) -> torch.Tensor:
    """float64 or int64, one period, or its start where that is all that the tensor takes."""
    count = PERIOD if first else min(PERIOD, tensor.numel())
    found = torch.arange(count, dtype=torch.int64, device=tensor.device)
    found.mul_(_SPREAD).add_(rank * _RANK_STEP + generation * _STEP).bitwise_and_(_MASK)
    # Stirred: without this, ranks whose offsets happen to be near each other would have nearly the same numbers.
    found ^= found >> 15
    found.mul_(_STIR).bitwise_and_(_MASK)
    found ^= found >> 12
    found &= (1 << bits) - 1
    return found.to(torch.float64) * 2.0**SMALLEST if tensor.dtype.is_floating_point else found


def _repeat(tensor: torch.Tensor, period: torch.Tensor, first: int) -> None:
    flat = tensor.view(-1)
    period = period.roll(-(first % PERIOD)).to(tensor.dtype)
    times = flat.numel() // len(period)
    whole = times * len(period)
    flat[:whole].view(times, len(period)).copy_(period)
    flat[whole:].copy_(period[: flat.numel() - whole])


def _signed(value: int) -> int:
    """``value`` modulo 2**32 as an int32 has it."""
    value %= 1 << 32
    return value - (1 << 32) if value >= 1 << 31 else value
